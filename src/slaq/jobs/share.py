"""Read what a running job holds now from the small read-only file that its node writes."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from slaq.jobs import variables

#: The file's name in the job's directory, and how much of one is read.
FILE, MOST_BYTES = "share.json", 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a job holds: it may use this much now, and less or more after the next decision."""

    cores: float
    gpus: float = 0.0
    #: How many workers the job holds, at one core each; may be a fraction.
    workers: float
    #: The Unix time by which the job has to leave its machine; None where it may stay.
    leave_by: float | None = None


#: Functions of engines that run jobs in threads; each returns the share of the current thread's job.
_tellers: list[Callable[[], Share | None]] = []


def tell_share(teller: Callable[[], Share | None]) -> Callable[[], None]:
    """Register a function that `share` calls first; return a function that unregisters it."""
    _tellers.append(teller)
    return lambda: _tellers.remove(teller)


def share() -> Share | None:
    """Return what the job that this process, or this thread, belongs to holds now.

    None outside slaq, and where the file cannot be read. Costs a few microseconds; call it as often as you like.
    """
    for teller in tuple(_tellers):
        held = teller()
        if held is not None:
            return held
    path = os.environ.get(variables.SHARE)
    return None if not path else read_share(Path(path))


def read_share(path: Path) -> Share | None:
    """Return the share in a file; None if the file is missing, damaged or not a valid share."""
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(MOST_BYTES))
        leave_by = said["leave_by"]
        return Share(
            cores=_amount(said["cores"]),
            gpus=_amount(said["gpus"]),
            workers=_amount(said["workers"]),
            leave_by=None if leave_by is None else _amount(leave_by),
        )
    except (OSError, ValueError, ArithmeticError, TypeError, LookupError, RecursionError):
        return None


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    amount = float(value)
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(value)
    return amount
