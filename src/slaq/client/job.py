"""A handle to a job of a service, with everything that the handle of an embedded cluster has."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slaq.client.reading import job_view, observation
from slaq.core.demand import Demand
from slaq.core.errors import ConflictError, JobDivergedError, JobFailedError
from slaq.core.job import JobState, Observation
from slaq.core.progress import reached
from slaq.jobs.demands import read_demand
from slaq.jobs.grid import Kept
from slaq.service.records import JobView

if TYPE_CHECKING:
    from slaq.client.client import Client
    from slaq.core.forecast import Forecast

#: Seconds between two requests while waiting for a job: at first, and at most.
FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0


class ServiceJob:
    """One job of the service, in the manner of `concurrent.futures.Future`.

    Every property asks the service, until the job has ended.
    """

    def __init__(self, client: "Client", view: JobView) -> None:
        #: The job's id in the service.
        self.id = view.id
        self._client = client
        self._view = view
        self._observations: list[Observation] = []
        self._metrics: list[Mapping[str, float]] = []
        self._complete = False

    @override
    def __repr__(self) -> str:
        return f"<ServiceJob {self.id!r} {self._view.state}, {self._view.iteration + 1} losses>"

    @property
    def view(self) -> JobView:
        """The job as the service shows it now."""
        if not self._view.state.ended:
            self._view = job_view(self._client.show_job(self.id))
        return self._view

    @property
    def name(self) -> str:
        """The job's name, which is its id."""
        return self.id

    @property
    def state(self) -> JobState:
        """Whether the job is queued, running, paused, completed, diverged, failed or cancelled."""
        return self.view.state

    @property
    def reason(self) -> str:
        """Why the job ended, or why it is not started, in one sentence."""
        return self.view.reason

    @property
    def group(self) -> str | None:
        """The group that the job belongs to; None for no group."""
        return self._view.group

    @property
    def parameters(self) -> Mapping[str, Kept]:
        """What tells the job from others of its group."""
        return self._view.parameters

    @property
    def directory(self) -> Path:
        """The folder of the job's files on the service's machine."""
        return Path(self._view.directory)

    @property
    def observations(self) -> list[Observation]:
        """The observations that the job has reported so far."""
        self._read()
        return list(self._observations)

    @property
    def cpu_seconds(self) -> float:
        """The CPU seconds that the job has used, as far as they are known."""
        return self.view.cpu_seconds

    @property
    def losses(self) -> list[float]:
        """The job's losses so far; the first one is the loss before the first iteration."""
        return [seen.loss for seen in self.observations]

    @property
    def best_loss(self) -> float | None:
        """The best loss of the job so far; None before its first loss that is a number."""
        return self.view.best_loss

    @property
    def metrics(self) -> list[Mapping[str, float]]:
        """The metrics that the job has reported beside each loss."""
        self._read()
        return list(self._metrics)

    @property
    def diverged(self) -> bool:
        """Whether the last loss was not a finite number; the job then holds only its guarantee."""
        return self.view.diverged

    @property
    def cores(self) -> float:
        """The cores that the job holds now; may be a fraction."""
        return self.view.cores

    @property
    def demand(self) -> Demand | None:
        """The demand that the job last reported by `ctx.can_use` or `slaq.can_use`; None if it reported none."""
        return read_demand(self.view.can_use)

    @property
    def total(self) -> int | None:
        """How many iterations the job makes in all, as it reported or `max_iterations` says; None if unknown."""
        return self.view.total

    @property
    def reduction(self) -> float:
        """The share done of the way from the first loss to the end: the target loss, or where the curve is forecast
        to end. The end of a job that completed without a target, and was not ended by `stop_at`, is its best loss.
        """
        return self.view.reduction

    def forecast(self, horizons: int | Sequence[int]) -> "Forecast":
        """Predict the job's losses that many iterations ahead."""
        import numpy as np

        from slaq.core.forecast import Forecast

        found = self._client.forecast(self.id, horizons)
        return Forecast(
            horizons=np.array(found["horizons"], dtype=np.int64),
            mean=np.array(found["mean"], dtype=float),
            low=np.array(found["low"], dtype=float),
            high=np.array(found["high"], dtype=float),
            ignored=tuple(found.get("ignored", ())),
            restarts=tuple(found.get("restarts", ())),
        )

    def log(self) -> str:
        """Return what the job has printed."""
        return b"".join(self._client.read_log(self.id)).decode(errors="replace")

    def why(self) -> dict[str, Any]:
        """Return the explanation of the last decision about the job."""
        return self._client.why(self.id)

    def done(self) -> bool:
        """Return whether the job has ended, in whatever way."""
        return self.view.state.ended

    def running(self) -> bool:
        """Return whether the job was started and has not ended."""
        return self.view.state is JobState.RUNNING

    def cancelled(self) -> bool:
        """Return whether the job was cancelled."""
        return self.view.state is JobState.CANCELLED

    def cancel(self, *, now: bool = False) -> bool:
        """Cancel the job; return False if it has ended already.

        It is told to end, and killed once its `grace` is over; with `now` it is killed at once.
        """
        if self.done():
            return False
        try:
            self._view = job_view(self._client.cancel(self.id, now=now))
        except ConflictError:
            return False
        return True

    def pause(self) -> None:
        """Take all cores from the job until it is resumed; the job keeps its memory and its curve."""
        self._view = job_view(self._client.pause(self.id))

    def resume(self) -> None:
        """Let the job compete for cores again."""
        self._view = job_view(self._client.resume(self.id))

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the job's end; return 0, the exit status of a job that completed.

        Raises `JobFailedError` if it failed, `JobDivergedError` if its last loss was no number, `CancelledError`
        if it was cancelled, or ended as beaten in its search. What a program returned stays in its
        directory: the service never reads what programs wrote.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return 0

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the job's end; return why it failed, or None if it completed."""
        if not self.wait(timeout=timeout):
            raise TimeoutError(f"job {self.id!r} has not ended within {timeout} seconds")
        if self._view.state in (JobState.CANCELLED, JobState.BEATEN):
            raise CancelledError
        if self._view.state is JobState.COMPLETED:
            return None
        kind = JobDivergedError if self._view.state is JobState.DIVERGED else JobFailedError
        return kind(self.id, self._view.reason)

    def wait(self, reduction: float | None = None, timeout: float | None = None) -> bool:
        """Wait for the job's end or, if given, for that share of its reduction; return whether that has come.

        A job that has completed will not improve any further: for it the answer is True.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            view = self.view
            if reduction is not None and reached(reduction, view.reduction):
                return True
            if view.state.ended:
                # A completed job will not improve any further.
                return reduction is None or view.state is JobState.COMPLETED
            left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, LONGEST_LOOK)

    def add_done_callback(self, callback: Callable[["ServiceJob"], object]) -> None:
        """Call callback(job) in a thread of its own once the job has ended; at once if it has ended already."""
        self._client.watch(self, callback)

    def __iter__(self) -> Iterator[Observation]:
        """Yield observations from the first one on, as they come, until the job has ended."""
        place, pause = 0, FIRST_LOOK
        while True:
            ended = self.done()
            news = self.observations[place:]
            yield from news
            place += len(news)
            if ended:
                return
            pause = FIRST_LOOK if news else min(1.5 * pause, LONGEST_LOOK)
            time.sleep(pause)

    def _read(self) -> None:
        """Fetch the observations reported since the last call."""
        if self._complete:
            return
        ended = self.view.state.ended
        if self._observations and self._view.iteration < self._observations[-1].iteration:
            # The job was restarted from the beginning.
            self._observations, self._metrics = [], []
        after = self._observations[-1].iteration if self._observations else -1
        for found in self._client.observations(self.id, after=after):
            self._observations.append(observation(found))
            self._metrics.append(found["metrics"])
        self._complete = ended
