"""What a service did, fetched and told as a run: jobs, losses and decisions; time counts from the first arrival."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Kind, Observation
from slaq.ports import History

if TYPE_CHECKING:
    from slaq.client import Client

#: Decisions asked for at a time.
PAGE = 100


class Chronicle(History):
    """Some jobs of a service as they went."""

    def __init__(
        self, views: Sequence[Mapping[str, Any]], curves: Mapping[str, list[Any]], decisions: list[Any]
    ) -> None:
        start = min((view["submitted_at"] for view in views), default=0.0)
        chosen = {view["id"] for view in views}
        self._specs = [_spec(view, start) for view in views]
        self._events = {view["id"]: _events(view, curves[view["id"]], start) for view in views}
        told = (_decision(found, chosen, start) for found in decisions)
        # A service decides on while nothing of this is there; that is no part of the story.
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
) -> Chronicle:
    """Return how these jobs went, as far as the service still keeps it."""
    curves = {}
    for place, view in enumerate(views):
        curves[view["id"]] = list(client.observations(view["id"]))
        progress(0.5 * place / len(views))
    decisions = []
    for found, done in _decisions(client, views):
        decisions.append(found)
        progress(0.5 + 0.5 * done)
    return Chronicle(views, curves, decisions)


def _decisions(
    client: "Client", views: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[dict[str, Any], float]]:
    """Yield the decisions from the first submission to the last end, and the fraction that is done."""
    cluster = client.cluster()
    start = min((view["submitted_at"] for view in views), default=cluster["now"])
    ends = [view["ended_at"] or cluster["now"] for view in views]
    end = max(ends, default=start)
    # The first decision in question: some epochs are short, and some are missing, so it has to be looked for.
    since = bisect_left(range(cluster["epoch"]), start, key=lambda epoch: _time_after(client, epoch)) - 1
    while page := client.decisions(since=since, limit=PAGE):
        for found in page:
            if found["time"] > end:
                return
            if found["time"] >= start:
                yield found, (found["time"] - start) / max(end - start, 1e-9)
        since = page[-1]["epoch"]


def _time_after(client: "Client", epoch: int) -> float:
    """Return when the first decision from that epoch on was made; infinity where there is none."""
    found = client.decisions(since=epoch - 1, limit=1)
    return float(found[0]["time"]) if found else math.inf


def _spec(view: Mapping[str, Any], start: float) -> JobSpec:
    return JobSpec(
        id=view["id"],
        arrival=view["submitted_at"] - start,
        kind=Kind.ML if view["trains"] else Kind.OTHER,
        weight=view["weight"],
        target_loss=view["target_loss"],
        owner=view["owner"],
    )


def _events(view: Mapping[str, Any], curve: Sequence[Mapping[str, Any]], start: float) -> list[Event]:
    events: list[Event] = [
        LossObserved(
            job_id=view["id"],
            at=one["at"] - start,
            observation=Observation(
                iteration=one["iteration"],
                loss=math.nan if one["loss"] is None else one["loss"],
                cpu_seconds=one["cpu_seconds"] or 0.0,
                wall_seconds=one["wall_seconds"] or 0.0,
            ),
        )
        for one in curve
    ]
    if view["ended_at"] is not None:
        state, reason = JobState(view["state"]), view["reason"]
        events.append(JobEnded(job_id=view["id"], at=view["ended_at"] - start, state=state, reason=reason))
    return events


#: What the scheduler writes down of each job; the rest of a decision is about all of them.
_COLUMNS = {
    "units": np.int64,
    "loss": np.float64,
    "gain": np.float64,
    "marginal": np.float64,
    "expected": np.float64,
    "expected_low": np.float64,
    "expected_high": np.float64,
    "diverged": np.bool_,
}


def _decision(found: Mapping[str, Any], chosen: set[str], start: float) -> Decision:
    """Return the decision about the chosen jobs."""
    rows = [row for row in found["jobs"] if row["id"] in chosen]
    columns: dict[str, Any] = {
        name: np.array([np.nan if row[name] is None else row[name] for row in rows]).astype(kind)
        for name, kind in _COLUMNS.items()
    }
    return Decision(
        epoch=found["epoch"],
        time=found["time"] - start,
        capacity=found["capacity"],
        ids=tuple(row["id"] for row in rows),
        seconds=found["seconds"],
        **columns,
    )
