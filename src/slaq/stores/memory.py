"""A store in memory, for simulations, tests and embedded use."""

import threading
from bisect import insort
from collections.abc import Iterable, Sequence

from typing_extensions import override

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.events import PASSING, CapacityChanged, Event, JobEnded
from slaq.core.job import JobSpec
from slaq.ports import History, Store


class MemoryStore(Store, History):
    """Keeps everything in lists; nothing is written to disk."""

    def __init__(self, specs: Iterable[JobSpec] = ()) -> None:
        self._specs: dict[str, JobSpec] = {}
        self._events: dict[str, list[Event]] = {}
        self._cluster_events: list[CapacityChanged] = []
        self._decisions: list[Decision] = []
        #: Number of jobs that have ended.
        self.ended = 0
        #: (arrival, order of submission, id), ascending; jobs may be submitted from any thread.
        self._queue: list[tuple[float, int, str]] = []
        self._lock = threading.Lock()
        for spec in specs:
            self.submit(spec)

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        with self._lock:
            if spec.id in self._specs:
                raise DuplicateJobError(spec.id)
            self._specs[spec.id] = spec
            self._events[spec.id] = []
            insort(self._queue, (spec.arrival, len(self._specs), spec.id))

    def withdraw(self, job_id: str) -> bool:
        """Remove a job from the queue; return whether the job was queued."""
        with self._lock:
            waiting = [entry for entry in self._queue if entry[2] == job_id]
            for entry in waiting:
                self._queue.remove(entry)
        return bool(waiting)

    @override
    def queued(self) -> Iterable[JobSpec]:
        place = 0
        while place < len(self._queue):
            yield self._specs[self._queue[place][2]]
            place += 1

    @override
    def started(self, job_id: str, now: float) -> None:
        with self._lock:
            place = next((place for place, entry in enumerate(self._queue) if entry[2] == job_id), None)
            if place is not None:
                del self._queue[place]

    @override
    def append(self, events: Sequence[Event]) -> None:
        for event in events:
            if not isinstance(event, CapacityChanged) and event.job_id not in self._events:
                raise UnknownJobError(event.job_id)
        for event in events:
            if isinstance(event, CapacityChanged):
                self._cluster_events.append(event)
            elif not isinstance(event, PASSING):
                self._events[event.job_id].append(event)
                if isinstance(event, JobEnded):
                    self.ended += 1
                    self.withdraw(event.job_id)

    @override
    def record(self, decision: Decision, grant: Grant) -> None:
        self._decisions.append(decision)

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
        """Return the events that belong to no job, in order."""
        return tuple(self._cluster_events)
