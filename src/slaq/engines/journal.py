"""What runners tell the engine: events in one order, and how each job ended."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from slaq.core.events import CapacityChanged, CurveBegan, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.ports import Clock

#: Why a job ended that the end of its engine ended.
SHUT_DOWN = "the cluster was shut down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended, and what it left: packed if it ran in another process, as it is if it ran in this one."""

    state: JobState
    reason: str = ""
    #: What a program returned; what it last kept where it was ended before that.
    result: memoryview | None = None
    #: What it raised: the exception, or None where that cannot be sent, and its traceback.
    error: memoryview | None = None
    #: The same of a program that ran in this process.
    value: Any = None
    raised: BaseException | None = None


class Listener(Protocol):
    """Is told of events as they happen, by the thread they happen in: it must be quick, and never raise."""

    def observed(self, event: LossObserved, metrics: Mapping[str, float]) -> None:
        """Take note of a loss and what was reported with it."""
        ...

    def learning_rate_changed(self, event: LearningRateChanged) -> None:
        """Take note that a job's curve bends here."""
        ...

    def curve_began(self, event: CurveBegan) -> None:
        """Take note that a job's next loss is the first of another curve."""
        ...

    def ended(self, event: JobEnded, ending: Ending) -> None:
        """Take note of a job's end."""
        ...


#: What a runner has to know of a job to run it.
Work_contra = TypeVar("Work_contra", contravariant=True)


class Runner(Protocol[Work_contra]):
    """Runs one kind of jobs, and tells the journal what becomes of them.

    The laws are those of an engine, for the jobs of this kind.
    """

    def prepare(self, job_id: str, job: Work_contra) -> None:
        """Take what a job does, so that it can be started by its id; what cannot run is refused."""
        ...

    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        """Begin a job, from its checkpoint if there is one."""
        ...

    def stop(self, job_id: str) -> None:
        """End a job as cancelled; one that has ended or is unknown is left alone."""
        ...

    def finish(self, job_id: str, reason: str) -> None:
        """End a job as completed, for that reason: it has done what was asked."""
        ...

    def grant(self, units: Mapping[str, int]) -> None:
        """Resize every job of this kind at once; one that is not named holds nothing from now on."""
        ...

    def close(self) -> None:
        """End every job and leave nothing behind."""
        ...


class Journal:
    """Collects what happens in all threads, stamped with the scheduler's clock."""

    def __init__(self, clock: Clock, listener: Listener | None = None) -> None:
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()
        self._events: list[Event] = []

    def take(self) -> Sequence[Event]:
        """Return what has happened since the last call."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def observed(
        self,
        job_id: str,
        observation: Observation,
        metrics: Mapping[str, float],
        reach: int | None = None,
    ) -> None:
        """Note a loss."""
        with self._lock:
            event = LossObserved(
                job_id=job_id,
                at=self._clock.now(),
                observation=observation,
                metrics=metrics,
                reach=reach,
            )
            self._events.append(event)
        if self._listener is not None:
            self._listener.observed(event, metrics)

    def learning_rate_changed(self, job_id: str, learning_rate: float) -> None:
        """Note an announced learning rate."""
        with self._lock:
            event = LearningRateChanged(job_id=job_id, at=self._clock.now(), learning_rate=learning_rate)
            self._events.append(event)
        if self._listener is not None:
            self._listener.learning_rate_changed(event)

    def curve_began(self, job_id: str) -> None:
        """Note that a job trains another model from here on."""
        with self._lock:
            event = CurveBegan(job_id=job_id, at=self._clock.now())
            self._events.append(event)
        if self._listener is not None:
            self._listener.curve_began(event)

    def capacity_changed(self, capacity: int) -> None:
        """Note that units were gained or lost."""
        with self._lock:
            self._events.append(CapacityChanged(at=self._clock.now(), capacity=capacity))

    def ended(self, job_id: str, ending: Ending) -> None:
        """Note the end of a job."""
        with self._lock:
            event = JobEnded(job_id=job_id, at=self._clock.now(), state=ending.state, reason=ending.reason)
            self._events.append(event)
        if self._listener is not None:
            self._listener.ended(event, ending)
