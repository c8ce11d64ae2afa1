"""The interfaces between the epoch loop and the world: Clock, Engine, Store, History."""

from collections.abc import Sequence
from typing import Protocol

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.events import Event
from slaq.core.job import JobSpec


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> float:
        """Return seconds since an arbitrary start; never runs backwards."""
        ...

    def sleep_until(self, moment: float) -> None:
        """Return once `now()` is at least `moment`; at once when that has passed."""
        ...


class Engine(Protocol):
    """Starts, resizes and stops jobs on hardware.

    A job runs only between its `start` and its end. Every job that was started ends once, in one
    `JobEnded`, and reports nothing after it. Observations of a job come in the order of its iterations.
    """

    def capacity(self) -> int:
        """Return the units that can be handed out now."""
        ...

    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        """Begin a job, from its checkpoint if there is one; it holds no units until granted some."""
        ...

    def stop(self, job_id: str) -> None:
        """End a job as cancelled; a job that has ended or is unknown is left alone."""
        ...

    def grant(self, allocation: Allocation) -> None:
        """Resize every job at once; one that is not named holds nothing from now on."""
        ...

    def poll(self) -> Sequence[Event]:
        """Return what has happened since the last call, in the order it happened."""
        ...


class Store(Protocol):
    """What survives a restart; the only channel between a running scheduler and everyone else."""

    def due(self, now: float) -> Sequence[JobSpec]:
        """Return the queued jobs whose arrival has come, earliest first; each is returned once."""
        ...

    def pending(self) -> bool:
        """Return whether any job is still queued."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Keep the events, all or none."""
        ...

    def record(self, decision: Decision, allocation: Allocation) -> None:
        """Keep the decision, and the allocation that came of it."""
        ...

    def checkpoint(self, job_id: str) -> bytes | None:
        """Return the job's last checkpoint, or None."""
        ...


class History(Protocol):
    """The reading side of a store."""

    def jobs(self) -> Sequence[JobSpec]:
        """Return every job ever submitted, in the order of submission."""
        ...

    def events(self, job_id: str) -> Sequence[Event]:
        """Return all that happened to one job, in order."""
        ...

    def decisions(self) -> Sequence[Decision]:
        """Return every decision, in order."""
        ...
