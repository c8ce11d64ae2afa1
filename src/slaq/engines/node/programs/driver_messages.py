"""What drivers say: the one place where a message from a driver becomes bounded values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slaq.core.demand import Demand
from slaq.detection.plain_values import json_object
from slaq.engines.node.programs.messages import WAITS, MessageKind
from slaq.engines.node.reports import LONGEST_LINE, read_metrics
from slaq.engines.node.wire import MalformedError, Message
from slaq.jobs.demands import read_demand

#: CPU seconds, thirty years, beyond which no process can have used so much.
MOST_CPU = 1e9
#: Characters of the reason for which a program says that it has left.
LONGEST_REASON = 1000


@dataclass(frozen=True, slots=True)
class MapBegun:
    """The program waits for a function over all partitions."""

    number: int
    #: The packed function and its arguments, which workers unpack.
    call: memoryview


@dataclass(frozen=True, slots=True)
class LossTold:
    """The program has told a loss, and waits to be let go on where it runs no maps."""

    iteration: int
    loss: float
    waits: bool
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateTold:
    """The program has announced a learning rate."""

    learning_rate: float


@dataclass(frozen=True, slots=True)
class DemandTold:
    """The program has said what it can use."""

    demand: Demand


@dataclass(frozen=True, slots=True)
class TotalTold:
    """The program has said how many iterations it will make in all."""

    iterations: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The program has returned a value, which its owner unpacks."""

    value: memoryview


@dataclass(frozen=True, slots=True)
class Raised:
    """The program has raised an exception, which its owner unpacks."""

    error: memoryview


@dataclass(frozen=True, slots=True)
class Left:
    """The program has ended as it was told to, or says for which reason."""

    reason: str


Said = MapBegun | LossTold | RateTold | DemandTold | TotalTold | Returned | Raised | Left


def read_driver_message(message: Message) -> tuple[float, Said | None]:
    """Return the CPU seconds that the driver has used so far, and what it says; None for what makes no sense.

    What a program can say by mistake makes no sense at worst: a learning rate that is no number, metrics that
    are too long. Raises MalformedError for what no driver sends.
    """
    head, payload = message
    said: Said | None
    if head.kind == MessageKind.MAP:
        said = MapBegun(head.b, payload)
    elif head.kind == MessageKind.REPORT:
        metrics = read_metrics(_object(payload)) if payload else {}
        said = LossTold(head.c, head.y, head.flag == WAITS, metrics)
    elif head.kind == MessageKind.ANNOUNCE:
        said = RateTold(head.y) if 0.0 <= head.y < math.inf else None
    elif head.kind == MessageKind.CAN_USE:
        demand = read_demand(_object(payload).get("can_use"))
        said = None if demand is None else DemandTold(demand)
    elif head.kind == MessageKind.TOTAL:
        said = TotalTold(head.c) if head.c else None
    elif head.kind == MessageKind.RETURNED:
        said = Returned(payload)
    elif head.kind == MessageKind.RAISED:
        said = Raised(payload)
    elif head.kind == MessageKind.LEFT:
        said = Left(bytes(payload[:LONGEST_REASON]).decode(errors="replace"))
    else:
        raise MalformedError(f"a message of kind {head.kind}, which drivers do not send")
    return cpu_said(head.x), said


def cpu_said(seconds: float) -> float:
    """Return the CPU seconds that a process says it has used; raises MalformedError where that cannot be."""
    if not 0.0 <= seconds <= MOST_CPU:
        raise MalformedError(f"{seconds:g} CPU seconds")
    return seconds


def _object(payload: memoryview) -> dict[str, object]:
    """Return the JSON object in a payload; an empty one where there is none, or one longer than a line may be."""
    return json_object(bytes(payload)) if len(payload) <= LONGEST_LINE else {}
