"""What has happened to the jobs of an engine, in one order, and how each of them ended."""

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slaq.core.demand import Demand
from slaq.core.events import (
    CapacityChanged,
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    Event,
    JobDelayed,
    JobEnded,
    JobEnding,
    JobLost,
    JobRetried,
    LearningRateChanged,
    LossObserved,
    TrainingChanged,
)
from slaq.core.job import JobState, Observation
from slaq.core.progress import is_number
from slaq.ports import Clock

_log = logging.getLogger(__name__)

#: The reason given for jobs that end because their engine was closed.
SHUT_DOWN = "the cluster was shut down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job ended, and its result."""

    state: JobState
    reason: str = ""
    #: What its program returned, or its last checkpoint where it was ended early: `Packed` where the program ran
    #: in another process, else the value itself.
    result: Any = None
    #: What its program raised: `Packed` by `pack_error` where it ran in another process, else the exception.
    error: Any = None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One event; the end of a job comes with its result."""

    event: Event
    ending: Ending | None = None


class Listener(Protocol):
    """Called for every entry, in the thread where it occurs; must return quickly.

    What it raises is logged: the thread serves other jobs too.
    """

    def happened(self, event: Event, ending: Ending | None) -> None:
        """Handle an event; `ending` comes with a `JobEnded`."""
        ...


class Journal:
    """Collects what happens in all threads, stamped with the scheduler's clock."""

    def __init__(self, clock: Clock, listener: Listener | None = None) -> None:
        self._clock = clock
        self._listener = listener
        self._lock = threading.Lock()
        self._entries: list[JournalEntry] = []
        #: Of jobs that have not ended and reported losses: the last one, and the last that was a number.
        self._losses: dict[str, tuple[float, float | None]] = {}

    def take(self) -> Sequence[JournalEntry]:
        """Return what has happened since the last call."""
        with self._lock:
            entries, self._entries = self._entries, []
        return entries

    def enter(self, entries: Iterable[JournalEntry]) -> None:
        """Take over the entries of another journal; they happen here when they arrive."""
        for entry in entries:
            self._add(entry.event, entry.ending)

    def observed(
        self,
        job_id: str,
        observation: Observation,
        metrics: Mapping[str, float],
        offset: int | None = None,
    ) -> None:
        """Record a loss."""
        with self._lock:
            # Made with its time: there are more losses than all else together, and a copy takes as long as they do.
            event = LossObserved(
                job_id=job_id, at=self._clock.now(), observation=observation, metrics=metrics, offset=offset
            )
            self._follow(job_id, observation.loss)
            self._entries.append(JournalEntry(event))
        self._tell(event, None)

    def learning_rate_changed(self, job_id: str, learning_rate: float) -> None:
        """Note an announced learning rate."""
        self._add(LearningRateChanged(job_id=job_id, at=0.0, learning_rate=learning_rate))

    def curve_began(self, job_id: str) -> None:
        """Note that a job trains another model from here on."""
        self._add(CurveBegan(job_id=job_id, at=0.0))

    def demand_changed(self, job_id: str, demand: Demand) -> None:
        """Record the demand that a running job reports."""
        self._add(DemandChanged(job_id=job_id, at=0.0, demand=demand))

    def end_foreseen(self, job_id: str, iterations: int) -> None:
        """Record how many iterations a running job says it will make in all."""
        self._add(EndForeseen(job_id=job_id, at=0.0, iterations=iterations))

    def training_changed(self, job_id: str, trains: bool) -> None:
        """Note that a job reports no loss, or does again."""
        self._add(TrainingChanged(job_id=job_id, at=0.0, trains=trains))

    def capacity_changed(self, capacity: float) -> None:
        """Note that cores were gained or lost."""
        self._add(CapacityChanged(at=0.0, capacity=capacity))

    def delayed(self, job_id: str, reason: str) -> None:
        """Note that a started job cannot run yet, and why; without a reason, that it runs now."""
        self._add(JobDelayed(job_id=job_id, at=0.0, reason=reason))

    def ending(self, job_id: str, reason: str, grace: float) -> None:
        """Note that a job was told to end, and the seconds it has to do so."""
        self._add(JobEnding(job_id=job_id, at=0.0, reason=reason, grace=grace))

    def used(self, job_id: str, cpu_seconds: float) -> None:
        """Note the CPU seconds that a job has used in all, whether or not it reports losses."""
        self._add(CpuUsed(job_id=job_id, at=0.0, cpu_seconds=cpu_seconds))

    def lost(self, job_id: str, reason: str) -> None:
        """Note that a job stopped running through no fault of its own."""
        self._add(JobLost(job_id=job_id, at=0.0, reason=reason))

    def retried(self, job_id: str, reason: str) -> None:
        """Note that a job failed, and how, and is started again."""
        self._add(JobRetried(job_id=job_id, at=0.0, reason=reason))

    def ended(self, job_id: str, ending: Ending) -> None:
        """Note the end of a job."""
        self._add(JobEnded(job_id=job_id, at=0.0, state=ending.state, reason=ending.reason), ending)

    def _add(self, event: Event, ending: Ending | None = None) -> None:
        with self._lock:
            # Stamped here, so that the order of the entries is the order of their times.
            event = replace(event, at=self._clock.now())
            if isinstance(event, LossObserved):
                self._follow(event.job_id, event.observation.loss)
            elif isinstance(event, CurveBegan):
                self._losses.pop(event.job_id, None)
            elif isinstance(event, JobEnded):
                event, ending = self._judged(event, ending)
            self._entries.append(JournalEntry(event, ending))
        self._tell(event, ending)

    def _tell(self, event: Event, ending: Ending | None) -> None:
        if self._listener is not None:
            try:
                self._listener.happened(event, ending)
            except Exception:
                _log.exception("listener failed", extra={"event": type(event).__name__})

    def _follow(self, job_id: str, loss: float) -> None:
        _, number = self._losses.get(job_id, (loss, None))
        self._losses[job_id] = loss, loss if is_number(loss) else number

    def _judged(self, end: JobEnded, ending: Ending | None) -> tuple[JobEnded, Ending | None]:
        """Return an end as diverged where a job completed with a last loss that is no number, whatever ran it."""
        last, number = self._losses.pop(end.job_id, (0.0, None))
        if end.state is not JobState.COMPLETED or is_number(last):
            return end, ending
        before = (
            "no loss before was a number" if number is None else f"the last number before it was {number:g}"
        )
        state, reason = JobState.DIVERGED, f"its last loss is {last:g}; {before}"
        told = None if ending is None else replace(ending, state=state, reason=reason)
        return replace(end, state=state, reason=reason), told
