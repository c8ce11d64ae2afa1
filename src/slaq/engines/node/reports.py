"""What a job's reports say: the one place where lines that a job wrote become bounded values."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slaq.core.demand import Demand
from slaq.jobs.demands import read_demand

#: Bytes of a line of reports, beyond which it is cut.
LONGEST_LINE = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One loss as it was found."""

    loss: float
    #: Where the source says which iteration it belongs to.
    iteration: int | None = None
    #: Unix time of the loss, where the source says so.
    at: float | None = None
    #: CPU seconds of the process that reported it, where the source says so.
    cpu: float | None = None
    #: Where in its source, in bytes, it ends, where that is known.
    reach: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRate:
    """A learning rate as it was announced."""

    learning_rate: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDemand:
    """What a job says it can use from now on."""

    demand: Demand
    at: float


Item = Reading | NewRate | NewDemand


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One line that `slaq.report`, `slaq.announce` or `slaq.can_use` wrote."""

    item: Item
    pid: int
    #: How many losses that process had reported before; None where the line tells no loss.
    count: int | None = None


def parse_report(line: bytes) -> Report | None:
    """Return what the line says; None for one that makes no sense."""
    record = json_object(line)
    at, pid = record.get("time"), record.get("pid")
    if not isinstance(at, float) or not isinstance(pid, int) or not math.isfinite(at):
        return None
    if "can_use" in record:
        demand = read_demand(record["can_use"])
        return None if demand is None else Report(item=NewDemand(demand=demand, at=at), pid=pid)
    rate, loss = number(record.get("learning_rate")), number(record.get("loss"))
    if rate is not None:
        return Report(item=NewRate(learning_rate=rate, at=at), pid=pid)
    if loss is None:
        return None
    count = record.get("iteration")
    reading = Reading(
        loss=loss, at=at, cpu=number(record.get("cpu")), metrics=read_metrics(record.get("metrics"))
    )
    return Report(item=reading, pid=pid, count=count if isinstance(count, int) else None)


def read_metrics(said: object) -> dict[str, float]:
    """Return the metrics that are numbers."""
    named = said if isinstance(said, dict) else {}
    return {name: value for name, given in named.items() if (value := number(given)) is not None}


def json_object(line: bytes | str) -> dict[str, object]:
    """Return the JSON object in a line; an empty one where there is none."""
    try:
        # Given bytes, json first guesses their encoding, which takes longer than all the rest.
        record = json.loads(line.decode(errors="replace") if isinstance(line, bytes) else line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def number(value: object) -> float | None:
    """Return a number, or a text that is one, as a float; None for anything else."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
