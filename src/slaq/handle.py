"""The handle of a submitted job, similar to a Future, the same on every engine."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from slaq.core.admission import NOT_REVIEWED
from slaq.core.demand import Demand
from slaq.core.errors import JobDivergedError, JobFailedError
from slaq.core.forecast import Forecast, forecast
from slaq.core.job import JobState, Observation
from slaq.core.progress import LossRange, is_number, reached
from slaq.core.stopping import Aim, StopAt, reduction_made, still_to_come
from slaq.engines.files import LOG
from slaq.engines.journal import Ending
from slaq.engines.packing import Packed, unpack, unpack_error
from slaq.jobs.options import JobOptions

_log = logging.getLogger(__name__)


class JobHost(Protocol):
    """The cluster a job belongs to, as its handle sees it."""

    def directory_of(self, job_id: str) -> Path:
        """Return the folder of a job's files."""
        ...

    def wake(self) -> None:
        """Make the scheduler decide soon, before the epoch is over."""
        ...


class Job:
    """One submitted job, in the manner of `concurrent.futures.Future`.

    Its `directory` holds `log.txt`, the output of its program and tasks, and `checkpoint`, its last saved state.
    """

    def __init__(self, cluster: JobHost, job_id: str, asked: JobOptions) -> None:
        #: The name by which the cluster knows the job.
        self.id = job_id
        #: The options that it was submitted with.
        self.asked = asked
        self._cluster = cluster
        self._stop_at, self._target = asked["stop_at"], asked["target_loss"]
        self._limit = asked["max_iterations"]
        self._maximize = asked["maximize"]
        self._changed = threading.Condition()
        self._state = JobState.QUEUED
        self._reason = NOT_REVIEWED
        #: Why the started job does not run yet.
        self._delayed = ""
        self._ending: Ending | None = None
        self._observations: list[Observation] = []
        self._metrics: list[Mapping[str, float]] = []
        self._announced: list[int] = []
        #: The index of the first loss of the model that the job trains now.
        self._curve = 0
        #: CPU seconds, and those of its losses.
        self._cpu = self._cpu_observed = 0.0
        self._cores = 0.0
        self._reduction = 0.0
        # With a target loss the engine checks this itself.
        self._enough = StopAt(self._stop_at) if self._stop_at is not None and self._target is None else None
        self._demand: Demand | None = None
        self._foreseen: int | None = None
        self._cancelling = self._killing = False
        self._callbacks: list[Callable[[Job], object]] = []
        self._final: float | None = None

    @override
    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self._state}, {len(self._observations)} losses>"

    @property
    def name(self) -> str:
        """The name of the job; the same as its id."""
        return self.id

    @property
    def state(self) -> JobState:
        """The state of the job: queued, running, or how it ended."""
        return self._state

    @property
    def reason(self) -> str:
        """Why the job ended, or why it does not run, in words that go on from its name; empty while it runs."""
        return self._reason or self._delayed

    @property
    def directory(self) -> Path:
        """The folder of the job's files."""
        return self._cluster.directory_of(self.id)

    @property
    def observations(self) -> list[Observation]:
        """The observations that the job has reported so far."""
        return list(self._observations)

    @property
    def losses(self) -> list[float]:
        """The job's losses so far; the first one is the loss before the first iteration."""
        return [observation.loss for observation in self._observations]

    @property
    def best_loss(self) -> float | None:
        """The best loss of the model that the job trains now; None before its first loss that is a number."""
        seen = LossRange(maximize=self._maximize)
        for loss in self.losses[self._curve :]:
            seen.add(loss)
        return seen.best

    @property
    def metrics(self) -> list[Mapping[str, float]]:
        """The metrics that the job has reported beside each loss."""
        return list(self._metrics)

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not a finite number; the job then holds only its guarantee."""
        return bool(self._observations) and not is_number(self._observations[-1].loss)

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds it has used, as far as they are known."""
        return self._cpu

    @property
    def cores(self) -> float:
        """The cores that the job holds now; may be a fraction."""
        return 0.0 if self.done() else self._cores

    @property
    def demand(self) -> Demand | None:
        """The demand that the job last reported by `ctx.can_use` or `slaq.can_use`; None if it reported none."""
        return self._demand

    @property
    def total(self) -> int | None:
        """How many iterations the job makes in all, as it reported or `max_iterations` says; None if unknown."""
        known = [end for end in (self._foreseen, self._limit) if end is not None]
        return min(known, default=None)

    @property
    def reduction(self) -> float:
        """The share done of the way from the first loss to the end: the target loss, or where the curve is forecast
        to end. The end of a job that completed without a target, and was not ended by `stop_at`, is its best loss.
        """
        if not self.done():
            return self._reduction
        if self._final is None:
            losses = self.losses[self._curve :]
            iterations = [observation.iteration for observation in self._observations[self._curve :]]
            aim = Aim(
                target=self._target,
                # A job that completed by itself has no reason.
                stopped_at=self._stop_at if self._reason else None,
                maximize=self._maximize,
                announced=self._bends(),
                left=still_to_come(iterations, losses, self._foreseen, self._limit),
            )
            self._final = reduction_made(losses, aim, self._state)
        return self._final

    def forecast(self, horizons: int | Sequence[int]) -> Forecast:
        """Predict the job's losses that many iterations ahead."""
        return forecast(
            self.losses[self._curve :], horizons, announced=self._bends(), maximize=self._maximize
        )

    def _bends(self) -> list[int]:
        """Return the places in the present curve at which a new learning rate was announced."""
        return [place - self._curve for place in self._announced if place >= self._curve]

    def log(self) -> str:
        """Return what the job's program and tasks have printed."""
        try:
            return (self.directory / LOG).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def done(self) -> bool:
        """Return whether the job has ended: completed, diverged, failed, beaten or cancelled."""
        return self._ending is not None

    def running(self) -> bool:
        """Return whether the job was started and has not ended."""
        return self._state is JobState.RUNNING

    def cancelled(self) -> bool:
        """Return whether the job was cancelled."""
        return self._state is JobState.CANCELLED

    def cancel(self, *, now: bool = False) -> bool:
        """Cancel the job; return False if it has ended already.

        It is told to end, and killed once its grace is over; with `now` it is killed at once.
        """
        if self.done():
            return False
        self._cancelling, self._killing = True, self._killing or now
        self._cluster.wake()
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end and return what its program returned.

        If the job was ended by `stop_at`, `max_iterations` or `time_budget`, this is what the program returned
        after it caught `Cancelled`, or else the state that it last gave to `checkpoint`, or None. Raises what the
        program raised, `JobFailedError` if the program was lost, `JobDivergedError` if its last loss was no number,
        `CancelledError` if the job was cancelled, or ended as beaten in its search.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._ending is not None
        result = self._ending.result
        return unpack(result.payload) if isinstance(result, Packed) else result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the job's end and return what its program raised; None if the job completed."""
        ending = self._await_end(timeout)
        if ending.state in (JobState.CANCELLED, JobState.BEATEN):
            raise CancelledError
        if ending.state is JobState.COMPLETED:
            return None
        if ending.state is JobState.DIVERGED:
            return JobDivergedError(self.id, ending.reason)
        if isinstance(ending.error, BaseException):
            return ending.error
        if ending.error is None:
            return JobFailedError(self.id, ending.reason)
        error, text = unpack_error(ending.error.payload)
        return JobFailedError(self.id, text) if error is None else error

    def wait(self, reduction: float | None = None, timeout: float | None = None) -> bool:
        """Wait for the job's end or, if given, for that share of its reduction; return whether that has come.

        A job that has completed will not improve any further: for it the answer is True.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.done() or (reduction is not None and reached(reduction, self._reduction)),
                timeout,
            )
        if self._state is JobState.COMPLETED or reduction is None:
            # A completed job will not improve any further.
            return self.done()
        return bool(reached(reduction, self.reduction))

    def add_done_callback(self, callback: Callable[["Job"], object]) -> None:
        """Call callback(job) in a thread of its own once the job has ended; at once if it has ended already."""
        with self._changed:
            if not self.done():
                self._callbacks.append(callback)
                return
        self._call_back([callback])

    def __iter__(self) -> Iterator[Observation]:
        """Yield the job's observations from the first one on, as they come, until the job has ended."""
        place = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.done() or len(self._observations) > place)  # noqa: B023
                news = self._observations[place:]
            if not news:
                return
            yield from news
            place += len(news)

    def _await_end(self, timeout: float | None) -> Ending:
        with self._changed:
            if not self._changed.wait_for(self.done, timeout):
                raise TimeoutError(f"job {self.id!r} has not ended within {timeout} seconds")
        assert self._ending is not None
        return self._ending

    # The cluster calls what follows.

    def _observe(self, observation: Observation, metrics: Mapping[str, float]) -> None:
        with self._changed:
            self._observations.append(observation)
            self._metrics.append(metrics)
            self._cpu_observed += observation.cpu_seconds
            self._cpu = max(self._cpu, self._cpu_observed)
            self._changed.notify_all()

    def _use(self, cpu_seconds: float) -> None:
        self._cpu = max(self._cpu, cpu_seconds)

    def _bend(self) -> None:
        self._announced.append(len(self._observations))

    def _say(self, demand: Demand) -> None:
        self._demand = demand

    def _foresee(self, iterations: int) -> None:
        self._foreseen = iterations

    def _begin_curve(self) -> None:
        self._foreseen = None
        self._curve = len(self._observations)

    def _wait(self, reason: str) -> None:
        """Show why the job has not started."""
        with self._changed:
            if self._state is JobState.QUEUED:
                self._reason = reason

    def _delay(self, reason: str) -> None:
        """Show why the started job does not run; an empty reason if it runs."""
        self._delayed = reason

    def _decide(self, cores: float, reduction: float) -> bool:
        """Apply a decision; return whether the job has reached `stop_at`."""
        with self._changed:
            if self._state is JobState.QUEUED:
                self._state, self._reason = JobState.RUNNING, ""
            self._cores, self._reduction = cores, reduction
            self._changed.notify_all()
        if self._enough is None:
            return False
        return self._enough.found(len(self._observations) - self._curve, reduction)

    def _end(self, ending: Ending) -> None:
        with self._changed:
            self._state, self._reason, self._ending = ending.state, ending.reason, ending
            self._delayed = ""
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        if callbacks:
            self._call_back(callbacks)

    def _call_back(self, callbacks: Sequence[Callable[["Job"], object]]) -> None:
        def call() -> None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception:
                    _log.exception("callback failed", extra={"job": self.id})

        threading.Thread(target=call, name=f"slaq-callbacks-{self.id}", daemon=True).start()
