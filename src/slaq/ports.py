"""The interfaces between the epoch loop and the world: Clock, Engine, LiveEngine, Store, History."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.events import Event
from slaq.core.job import JobSpec


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> float:
        """Return seconds since an arbitrary start; never runs backwards."""
        ...

    def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
        """Return once `now()` is at least `moment`, or once woken and at least `earliest`.

        A call of `wake` since the last `sleep_until` counts.
        """
        ...

    def wake(self) -> None:
        """Let the present or the next `sleep_until` return early; may be called from any thread."""
        ...


class Engine(Protocol):
    """Starts, resizes and stops jobs on hardware.

    A job runs only between its `start` and its end. Every job that was started ends once, in one
    `JobEnded`, and reports nothing after it. Observations of a job come in the order of its iterations.
    A job that the engine loses through no fault of the job is told in a `JobLost`: nothing of it runs then, and
    `start` lets it go on.
    """

    def capacity(self) -> float:
        """Return the cores that can be handed out now."""
        ...

    def start(self, spec: JobSpec) -> None:
        """Begin a job; it holds nothing until granted some cores. A job that cannot begin ends as failed."""
        ...

    def stop(self, job_id: str) -> None:
        """End a job as cancelled; a job that has ended or is unknown is left alone."""
        ...

    def grant(self, cores: Mapping[str, float]) -> None:
        """Resize every job at once, to so many cores by id; one that is not named holds nothing from now on."""
        ...

    def poll(self) -> Sequence[Event]:
        """Return what has happened since the last call, in the order it happened."""
        ...


class LiveEngine(Engine, Protocol):
    """An engine of a cluster to which jobs are submitted while it runs."""

    def prepare(self, job_id: str, work: Any, /) -> None:
        """Take the work of a job, so that the job can be started by its id; raises if it cannot run."""
        ...

    def finish(self, job_id: str, reason: str) -> None:
        """End a job early as completed."""
        ...

    def kill(self, job_id: str) -> None:
        """End a job at once that was told to end, whatever time it has left; any other is left alone."""
        ...

    def close(self) -> None:
        """End every job and all processes; events up to then can still be polled."""
        ...


class Store(Protocol):
    """What survives a restart; the only channel between a running scheduler and everyone else."""

    def queued(self) -> Iterable[JobSpec]:
        """Return the jobs that wait to be started, by ascending arrival; changes nothing."""
        ...

    def started(self, job_id: str, now: float) -> None:
        """Record that a queued job starts; `queued` no longer returns it."""
        ...

    def append(self, events: Sequence[Event]) -> None:
        """Keep the events, all or none. `PASSING` events are no part of the history, and need not be kept."""
        ...

    def record(self, decision: Decision, grant: Grant) -> None:
        """Keep the decision, and the grant that came of it."""
        ...


class History(Protocol):
    """The reading side of a store."""

    def jobs(self) -> Sequence[JobSpec]:
        """Return every job ever submitted, in the order of submission."""
        ...

    def events(self, job_id: str) -> Sequence[Event]:
        """Return all that happened to one job, in order, except `PASSING` events."""
        ...

    def decisions(self) -> Sequence[Decision]:
        """Return every decision, in order."""
        ...
