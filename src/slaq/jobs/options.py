"""What may be asked for a job: each option with what it may be, and how to say so."""

import math
from collections.abc import Callable

from slaq.core.errors import JobOptionError

#: None is always the absence of a choice.
OPTIONS: dict[str, tuple[Callable[[float], bool], str]] = {
    "weight": (lambda weight: 0 < weight < math.inf, "a number above 0"),
    "min_units": (lambda units: units >= 0, "0 or more units"),
    "max_units": (lambda units: units >= 1, "1 or more units"),
    "min_cores": (lambda cores: 0 <= cores < math.inf, "0 or more cores"),
    "max_cores": (lambda cores: 0 < cores < math.inf, "a number of cores above 0"),
    "target_loss": (math.isfinite, "a finite number"),
    "partitions": (lambda count: count >= 1, "1 or more"),
    "stop_at": (
        lambda share: 0 < share <= 1,
        "a share of the reduction, above 0 and at most 1, such as 0.95",
    ),
    "by": (lambda seconds: 0 < seconds < math.inf, "seconds above 0"),
    "max_iterations": (lambda count: count >= 1, "1 or more"),
    "time_budget": (lambda seconds: seconds > 0, "seconds above 0"),
    "max_restarts": (lambda count: count >= 0, "0 or more"),
    "task_timeout": (lambda seconds: seconds > 0, "seconds above 0"),
    "memory_limit": (lambda size: size > 0, "bytes above 0"),
}


def check_options(**options: float | None) -> None:
    """Refuse options that make no sense, before anything is started."""
    for name, value in options.items():
        holds, wanted = OPTIONS[name]
        if value is not None and not holds(value):
            raise JobOptionError(name, value, wanted)
    for unit in ("units", "cores"):
        least, most = options.get(f"min_{unit}"), options.get(f"max_{unit}")
        if least is not None and most is not None and least > most:
            raise JobOptionError(f"min_{unit}", least, f"at most max_{unit}, which is {most}")
