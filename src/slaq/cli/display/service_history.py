"""The history of some jobs of a service, fetched by its client; times count from the first arrival."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.ports import History

if TYPE_CHECKING:
    from slaq.client import Client

#: Decisions per request.
PAGE = 100
#: Rows of decisions that are fetched, about, and the fewest and most decisions.
ROWS, FEWEST, DECISIONS = 20_000, 100, 1_000


class FetchedHistory(History):
    """The jobs, losses and decisions that were fetched."""

    def __init__(
        self,
        views: Sequence[Mapping[str, Any]],
        curves: Mapping[str, Mapping[str, Any]],
        decisions: list[Any],
    ) -> None:
        start = min((view["submitted_at"] for view in views), default=0.0)
        chosen = {view["id"] for view in views}
        self._specs = [_spec(view, start) for view in views]
        self._events = {view["id"]: _events(view, curves[view["id"]], start) for view in views}
        told = (_decision(found, chosen, start) for found in decisions)
        # A service also decides while none of these jobs is active; such decisions are left out.
        self._decisions = [decision for decision in told if decision.ids]

    @override
    def jobs(self) -> Sequence[JobSpec]:
        return self._specs

    @override
    def events(self, job_id: str) -> Sequence[Event]:
        return self._events[job_id]

    @override
    def decisions(self) -> Sequence[Decision]:
        return self._decisions


def fetch(
    client: "Client", views: Sequence[Mapping[str, Any]], progress: Callable[[float], None]
) -> FetchedHistory:
    """Return the history of these jobs, as far as the service still stores it."""
    curves: dict[str, Mapping[str, Any]] = {}
    for curve in client.curves([view["id"] for view in views]):
        curves[curve["job"]] = curve
        progress(0.5 * len(curves) / len(views))
    decisions = []
    for found, done in _decisions(client, views):
        decisions.append(found)
        progress(0.5 + 0.5 * done)
    return FetchedHistory(views, curves, decisions)


def _decisions(
    client: "Client", views: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the decisions from the first submission to the last end, each with the fraction fetched so far."""
    cluster = client.cluster()
    start = min((view["submitted_at"] for view in views), default=cluster["now"])
    ends = [view["ended_at"] or cluster["now"] for view in views]
    end = max(ends, default=start)
    # Find the first decision by bisection: epochs vary in length, and some are missing.
    since = bisect_left(range(cluster["epoch"]), start, key=lambda epoch: _time_after(client, epoch)) - 1
    every = _stride(client, since, cluster["epoch"] - since)
    while page := client.decisions(since=since, limit=PAGE, every=every):
        for found in page:
            if found["time"] > end:
                return
            if found["time"] >= start:
                yield found, (found["time"] - start) / max(end - start, 1e-9)
        since = page[-1]["epoch"]


def _stride(client: "Client", since: int, epochs: int) -> int:
    """Return of how many epochs one is fetched, so that about ROWS rows come, and DECISIONS decisions at most."""
    sample = client.decisions(since=since + epochs // 2, limit=1)
    wanted = min(max(ROWS // max(len(sample[0]["jobs"]), 1), FEWEST), DECISIONS) if sample else DECISIONS
    return max(math.ceil(epochs / wanted), 1)


def _time_after(client: "Client", epoch: int) -> float:
    """Return the time of the first decision at or after `epoch`; infinity if there is none."""
    found = client.decisions(since=epoch - 1, limit=1)
    return float(found[0]["time"]) if found else math.inf


def _spec(view: Mapping[str, Any], start: float) -> JobSpec:
    return JobSpec(
        id=view["id"],
        arrival=view["submitted_at"] - start,
        trains=view["trains"],
        maximize=view["maximize"],
        weight=view["weight"],
        target_loss=view["target_loss"],
        owner=view["owner"],
    )


def _events(view: Mapping[str, Any], curve: Mapping[str, Any], start: float) -> list[Event]:
    columns = (curve[name] for name in ("iteration", "at", "loss", "cpu_seconds", "wall_seconds"))
    events: list[Event] = [
        LossObserved(
            job_id=view["id"],
            at=at - start,
            observation=Observation(
                iteration=iteration,
                loss=math.nan if loss is None else loss,
                cpu_seconds=cpu or 0.0,
                wall_seconds=wall or 0.0,
            ),
        )
        for iteration, at, loss, cpu, wall in zip(*columns, strict=True)
    ]
    if view["ended_at"] is not None:
        state, reason = JobState(view["state"]), view["reason"]
        events.append(JobEnded(job_id=view["id"], at=view["ended_at"] - start, state=state, reason=reason))
    return events


#: The columns of a decision that hold one value per job: each with its name in the API and its type.
_COLUMNS: Mapping[str, tuple[str, type]] = {
    "cores": ("cores", np.float64),
    "loss": ("loss", np.float64),
    "gain": ("gain", np.float64),
    "marginal": ("next_step", np.float64),
    "expected": ("expected", np.float64),
    "expected_low": ("expected_low", np.float64),
    "expected_high": ("expected_high", np.float64),
    "diverged": ("diverged", np.bool_),
}


def _decision(found: Mapping[str, Any], chosen: set[str], start: float) -> Decision:
    """Return the decision about the chosen jobs."""
    rows = [row for row in found["jobs"] if row["id"] in chosen]
    columns: dict[str, Any] = {
        name: np.array([np.nan if row[field] is None else row[field] for row in rows]).astype(kind)
        for name, (field, kind) in _COLUMNS.items()
    }
    return Decision(
        epoch=found["epoch"],
        time=found["time"] - start,
        capacity=found["capacity"],
        unit=found["step"],
        ids=tuple(row["id"] for row in rows),
        seconds=found["seconds"],
        **columns,
    )
