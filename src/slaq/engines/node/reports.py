"""What a job's reports say: the one place where lines that a job wrote become bounded values."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slaq.core.demand import Demand
from slaq.core.visible import visible
from slaq.detection.plain_values import json_object, number
from slaq.jobs.demands import read_demand, written_demand

#: Bytes of a line of reports, beyond which it is cut.
LONGEST_LINE = 65536
#: The bounds of what a line may say: a number beyond them makes no sense, and no code behind has to expect it.
LARGEST_PID, LARGEST_ITERATION = 2**31 - 1, 2**53
#: Unix time in seconds, and CPU seconds.
LATEST, MOST_CPU = 1e11, 1e12
#: Metrics of one loss, and characters of a metric's name; what is beyond is left out.
MOST_METRICS, LONGEST_NAME = 64, 100
#: Names of other series, and characters of what is said of a source of losses.
MOST_OTHERS, LONGEST_TEXT = 20, 600


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTotal:
    """How many iterations a job says it will make in all."""

    iterations: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSource:
    """Where the losses of a job come from, and what is wrong with that."""

    series: str = ""
    place: str = ""
    others: tuple[str, ...] = ()
    trouble: str = ""
    #: Told when it is read.
    at: None = None


Item = Reading | NewRate | NewDemand | NewTotal | NewSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One line that `slaq.report`, `slaq.announce` or `slaq.can_use` wrote."""

    item: Item
    pid: int
    #: How many losses that process had reported before; None where the line tells no loss.
    count: int | None = None


def parse_report(line: bytes, reach: int | None = None) -> Report | None:
    """Return what the line, which ends at byte `reach` of its source, says; None for one that makes no sense."""
    record = json_object(line)
    at, pid = bounded(record.get("time"), LATEST), whole(record.get("pid"), LARGEST_PID)
    if at is None or not pid:
        return None
    if "can_use" in record:
        demand = read_demand(record["can_use"])
        return None if demand is None else Report(item=NewDemand(demand=demand, at=at), pid=pid)
    # A line of a script's own that has both is taken for a loss.
    if "total" in record and "loss" not in record:
        total = _new_total(record["total"], at)
        return None if total is None else Report(item=total, pid=pid)
    rate, loss = record.get("learning_rate"), number(record.get("loss"))
    if rate is not None:
        found = _new_rate(rate, at)
        return None if found is None else Report(item=found, pid=pid)
    if loss is None:
        return None
    reading = Reading(
        loss=loss,
        iteration=whole(record.get("step"), LARGEST_ITERATION),
        at=at,
        cpu=bounded(record.get("cpu"), MOST_CPU),
        reach=reach,
        metrics=read_metrics(record.get("metrics")),
    )
    return Report(item=reading, pid=pid, count=whole(record.get("iteration"), LARGEST_ITERATION))


def as_json(item: Item) -> object:
    """Return an item as JSON can hold it; the inverse of `item_from`."""
    if isinstance(item, NewRate):
        return {"rate": item.learning_rate, "at": item.at}
    if isinstance(item, NewDemand):
        return {"can_use": written_demand(item.demand), "at": item.at}
    if isinstance(item, NewTotal):
        return {"total": item.iterations, "at": item.at}
    if isinstance(item, NewSource):
        return {
            "source": [item.series, item.place, item.trouble],
            "others": list(item.others),
        }
    return [item.loss, item.iteration, item.at, item.cpu, dict(item.metrics)]


def item_from(said: object) -> Item | None:
    """Return the item that JSON holds; None where it makes no sense."""
    if isinstance(said, list) and len(said) == 5:
        loss = number(said[0])
        if loss is None:
            return None
        return Reading(
            loss=loss,
            iteration=whole(said[1], LARGEST_ITERATION),
            at=bounded(said[2], LATEST),
            cpu=bounded(said[3], MOST_CPU),
            metrics=read_metrics(said[4]),
        )
    if not isinstance(said, dict):
        return None
    if "source" in said:
        return _new_source(said["source"], said.get("others"))
    at = bounded(said.get("at"), LATEST)
    return None if at is None else _timed_item(said, at)


def _timed_item(said: Mapping[str, object], at: float) -> Item | None:
    """Return the item that tells its moment."""
    if "rate" in said:
        return _new_rate(said["rate"], at)
    if "total" in said:
        return _new_total(said["total"], at)
    demand = read_demand(said.get("can_use"))
    return None if demand is None else NewDemand(demand=demand, at=at)


def _new_rate(said: object, at: float) -> NewRate | None:
    rate = number(said)
    return NewRate(learning_rate=rate, at=at) if rate is not None and math.isfinite(rate) else None


def _new_total(said: object, at: float) -> NewTotal | None:
    total = whole(said, LARGEST_ITERATION)
    return NewTotal(iterations=total, at=at) if total else None


def _new_source(said: object, others: object) -> NewSource | None:
    if not isinstance(said, list) or len(said) != 3 or not isinstance(others, list):
        return None
    texts = [one for one in (*said, *others[:MOST_OTHERS]) if isinstance(one, str)]
    if len(texts) != 3 + len(others[:MOST_OTHERS]):
        return None
    series, place, trouble, *rest = [visible(one)[:LONGEST_TEXT] for one in texts]
    return NewSource(series=series, place=place, others=tuple(one for one in rest if one), trouble=trouble)


def read_metrics(said: object) -> dict[str, float]:
    """Return the metrics that are numbers and have names that can be shown and stored, so many at most."""
    found: dict[str, float] = {}
    for name, given in said.items() if isinstance(said, dict) else ():
        value = number(given)
        if (
            value is not None
            and isinstance(name, str)
            and 0 < len(name) <= LONGEST_NAME
            and name.isprintable()
        ):
            found[name] = value
            if len(found) == MOST_METRICS:
                break
    return found


def whole(value: object, most: int) -> int | None:
    """Return a whole number from 0 to the given one; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def bounded(value: object, most: float) -> float | None:
    """Return a number from 0 to the given one; None for anything else."""
    found = number(value)
    return found if found is not None and 0.0 <= found <= most else None
