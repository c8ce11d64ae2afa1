"""The engine and the store of a replay: jobs that go on from where they are, and what becomes of them."""

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.futures import Future

#: Shares of the whole reduction whose times are kept.
SHARES = (0.9, 0.95)
# A share counts as made within this of it: futures are sums of rounded parts.
_TOLERANCE = 1e-9


class ReplayedEngine(SimulatedEngine):
    """A simulated engine whose jobs may be in the middle of their curves."""

    def go_on(self, spec: JobSpec) -> None:
        """Begin a job whose first loss here is the last one it has reported before."""
        self.start(spec, None)
        self._events = [event for event in self._events if getattr(event, "job_id", None) != spec.id]


class Tally(Store):
    """A store that keeps what a replay is asked for, and forgets the rest."""

    def __init__(self, futures: Mapping[str, Future], queued: Sequence[JobSpec]) -> None:
        self._futures = futures
        waiting = {spec.id for spec in queued}
        self._queue = sorted(
            (spec for spec in queued if spec.id in futures and futures[spec.id].job.spec is spec),
            key=lambda spec: spec.arrival,
        )
        self._best = {job_id: future.best for job_id, future in futures.items()}
        self._under_way = {job_id for job_id in futures if job_id not in waiting}
        self._losses: list[float] = []
        #: Unit seconds held, the units held now, and since when.
        self._held: dict[str, tuple[float, int, float]] = {}
        #: When each of SHARES was made, when targets were reached and jobs ended: seconds on the clock, by job.
        self.reached: tuple[dict[str, float], ...] = tuple({} for _ in SHARES)
        self.at_target: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        for job_id, future in futures.items():
            self._note(job_id, future.best, -np.inf)

    @property
    def mean_loss(self) -> float:
        """The mean over decisions of the mean normalised loss of the jobs under way; 0 without any."""
        return float(np.mean(self._losses)) if self._losses else 0.0

    def normalised(self, job_id: str) -> float:
        """Return how far the job's best loss so far is from its end: 1 at the start, 0 there; 0 without losses."""
        future = self._futures[job_id]
        extent = future.first - future.end
        if not extent > 0:
            return 0.0
        return min(max((self._best[job_id] - future.end) / extent, 0.0), 1.0)

    def unit_seconds(self, job_id: str, until: float) -> float:
        """Return what the job has held in all."""
        held, units, since = self._held.get(job_id, (0.0, 0, until))
        return held + units * max(until - since, 0.0)

    @override
    def due(self, now: float) -> Sequence[JobSpec]:
        due = [spec for spec in self._queue if spec.arrival <= now]
        self._queue = self._queue[len(due) :]
        self._under_way.update(spec.id for spec in due)
        return due

    @override
    def pending(self) -> bool:
        return bool(self._queue)

    @override
    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, LossObserved):
                self._note(event.job_id, event.observation.loss, event.at)
            elif isinstance(event, JobEnded):
                self.ended[event.job_id] = event.at
                self._hold(event.job_id, 0, event.at)

    @override
    def record(self, decision: Decision, allocation: Allocation) -> None:
        losses = [self.normalised(job_id) for job_id in self._under_way if self._futures[job_id].competes]
        if losses:
            self._losses.append(float(np.mean(losses)))
        given = dict(zip(decision.ids, decision.units.tolist(), strict=True))
        for job_id in given.keys() | self._held.keys():
            self._hold(job_id, given.get(job_id, 0), decision.time)

    @override
    def checkpoint(self, job_id: str) -> bytes | None:
        return None

    def _note(self, job_id: str, loss: float, at: float) -> None:
        future = self._futures[job_id]
        # Written so that NaN is no progress.
        self._best[job_id] = min(self._best[job_id], loss)
        best, extent = self._best[job_id], future.first - future.end
        for share, reached in zip(SHARES, self.reached, strict=True):
            if extent > 0 and future.first - best >= (share - _TOLERANCE) * extent:
                reached.setdefault(job_id, at)
        if best <= future.goal + _TOLERANCE * abs(extent):
            self.at_target.setdefault(job_id, at)

    def _hold(self, job_id: str, units: int, now: float) -> None:
        held, before, since = self._held.get(job_id, (0.0, 0, now))
        self._held[job_id] = (held + before * max(now - since, 0.0), units, now)
