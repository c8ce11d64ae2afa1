"""The engine and the store of a replay, which continues jobs from their present state."""

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.projections import Projection

#: The shares of the whole reduction whose times are recorded.
SHARES = (0.9, 0.95)
# A share counts as reached within this tolerance, because projections have rounding errors.
_TOLERANCE = 1e-9


class ReplayedEngine(SimulatedEngine):
    """A simulated engine whose jobs may start in the middle of their curves."""

    def go_on(self, spec: JobSpec) -> None:
        """Start a job whose first loss here is the last one that it reported."""
        self.start(spec)
        self._events = [event for event in self._events if getattr(event, "job_id", None) != spec.id]


class Tally(Store):
    """A store that keeps only the results of a replay."""

    def __init__(self, projections: Mapping[str, Projection], queued: Sequence[JobSpec]) -> None:
        self._projections = projections
        waiting = {spec.id for spec in queued}
        projected = [
            spec for spec in queued if spec.id in projections and projections[spec.id].job.spec is spec
        ]
        self._queue = {spec.id: spec for spec in sorted(projected, key=lambda spec: spec.arrival)}
        self._best = {job_id: projection.best for job_id, projection in projections.items()}
        self._under_way = {job_id for job_id in projections if job_id not in waiting}
        self._losses: list[float] = []
        #: Core seconds held, the cores held now, and since when.
        self._held: dict[str, tuple[float, float, float]] = {}
        #: By job, in seconds on the clock: when each of SHARES and the target were reached, and when the job ended.
        self.reached: tuple[dict[str, float], ...] = tuple({} for _ in SHARES)
        self.at_target: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        for job_id, projection in projections.items():
            self._note(job_id, projection.best, -np.inf)

    @property
    def mean_loss(self) -> float:
        """The mean over decisions of the mean normalised loss of the started jobs; 0 if there are none."""
        return float(np.mean(self._losses)) if self._losses else 0.0

    def normalised(self, job_id: str) -> float:
        """Return the normalised best loss of the job: 1 at the start, 0 at its end; 0 without losses."""
        projection = self._projections[job_id]
        extent = projection.first - projection.end
        if not extent > 0:
            return 0.0
        return min(max((self._best[job_id] - projection.end) / extent, 0.0), 1.0)

    def core_seconds(self, job_id: str, until: float) -> float:
        """Return the core seconds that the job has held in all."""
        held, cores, since = self._held.get(job_id, (0.0, 0.0, until))
        return held + cores * max(until - since, 0.0)

    @override
    def queued(self) -> Sequence[JobSpec]:
        return tuple(self._queue.values())

    @override
    def started(self, job_id: str, now: float) -> None:
        del self._queue[job_id]
        self._under_way.add(job_id)

    @override
    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, LossObserved):
                self._note(event.job_id, event.observation.loss, event.at)
            elif isinstance(event, JobEnded):
                self.ended[event.job_id] = event.at
                self._hold(event.job_id, 0.0, event.at)

    @override
    def record(self, decision: Decision, grant: Grant) -> None:
        losses = [self.normalised(job_id) for job_id in self._under_way if self._projections[job_id].competes]
        if losses:
            self._losses.append(float(np.mean(losses)))
        given = grant.as_dict()
        for job_id in given.keys() | self._held.keys():
            self._hold(job_id, given.get(job_id, 0.0), decision.time)

    def _note(self, job_id: str, loss: float, at: float) -> None:
        projection = self._projections[job_id]
        # The comparison is written so that NaN counts as no progress.
        self._best[job_id] = min(self._best[job_id], loss)
        best, extent = self._best[job_id], projection.first - projection.end
        for share, reached in zip(SHARES, self.reached, strict=True):
            if extent > 0 and projection.first - best >= (share - _TOLERANCE) * extent:
                reached.setdefault(job_id, at)
        if best <= projection.goal + _TOLERANCE * abs(extent):
            self.at_target.setdefault(job_id, at)

    def _hold(self, job_id: str, cores: float, now: float) -> None:
        held, before, since = self._held.get(job_id, (0.0, 0.0, now))
        self._held[job_id] = (held + before * max(now - since, 0.0), cores, now)
