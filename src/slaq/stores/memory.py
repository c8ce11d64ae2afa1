"""A store that lives and dies with its process: for simulations, tests and embedded use."""

import heapq
from collections.abc import Iterable, Sequence

from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.events import CapacityChanged, Event, JobEnded
from slaq.core.job import JobSpec
from slaq.ports import History, Store


class MemoryStore(Store, History):
    """Keeps everything in plain lists; nothing is written to disk."""

    def __init__(self, specs: Iterable[JobSpec] = ()) -> None:
        self._specs: dict[str, JobSpec] = {}
        self._events: dict[str, list[Event]] = {}
        self._cluster_events: list[CapacityChanged] = []
        self._decisions: list[Decision] = []
        self._checkpoints: dict[str, bytes] = {}
        #: Jobs that have ended.
        self.ended = 0
        #: A heap of (arrival, place in the order of submission, id).
        self._queue: list[tuple[float, int, str]] = []
        for spec in specs:
            self.submit(spec)

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        if spec.id in self._specs:
            raise DuplicateJobError(spec.id)
        heapq.heappush(self._queue, (spec.arrival, len(self._specs), spec.id))
        self._specs[spec.id] = spec
        self._events[spec.id] = []

    @override
    def due(self, now: float) -> Sequence[JobSpec]:
        due = []
        while self._queue and self._queue[0][0] <= now:
            due.append(self._specs[heapq.heappop(self._queue)[2]])
        return due

    @override
    def pending(self) -> bool:
        return bool(self._queue)

    @override
    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            if not isinstance(event, CapacityChanged) and event.job_id not in self._events:
                raise UnknownJobError(event.job_id)
        for event in events:
            if isinstance(event, CapacityChanged):
                self._cluster_events.append(event)
            else:
                self._events[event.job_id].append(event)
                self.ended += isinstance(event, JobEnded)

    @override
    def record(self, decision: Decision, allocation: Allocation) -> None:
        self._decisions.append(decision)

    @override
    def checkpoint(self, job_id: str) -> bytes | None:
        return self._checkpoints.get(job_id)

    def keep_checkpoint(self, job_id: str, checkpoint: bytes) -> None:
        """Keep what a job is to go on from when it starts."""
        self._checkpoints[job_id] = checkpoint

    @override
    def jobs(self) -> Sequence[JobSpec]:
        return tuple(self._specs.values())

    @override
    def events(self, job_id: str) -> Sequence[Event]:
        if job_id not in self._events:
            raise UnknownJobError(job_id)
        return tuple(self._events[job_id])

    @override
    def decisions(self) -> Sequence[Decision]:
        return tuple(self._decisions)

    def cluster_events(self) -> Sequence[CapacityChanged]:
        """Return what happened to the cluster rather than to one job, in order."""
        return tuple(self._cluster_events)
