"""A handle to a job of the service: the one that the embedded cluster gives, and a little more."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from slaq.client.reading import job_view, observation
from slaq.core.errors import ConflictError, JobFailedError
from slaq.core.job import JobState, Observation
from slaq.service.records import JobView

if TYPE_CHECKING:
    from slaq.client.client import Client
    from slaq.core.forecast import Forecast

#: Seconds between looks at a job that is waited for: the first, and the longest.
FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0


class Job:
    """One job of the service, in the manner of `concurrent.futures.Future`.

    What it tells is asked of the service each time, until the job has ended.
    """

    def __init__(self, client: "Client", view: JobView) -> None:
        #: What the service knows it by.
        self.id = view.id
        self._client = client
        self._view = view
        self._observations: list[Observation] = []
        self._metrics: list[Mapping[str, float]] = []
        self._complete = False

    @override
    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self._view.state}, {self._view.iteration + 1} losses>"

    @property
    def view(self) -> JobView:
        """All that the service shows of it, as it is now."""
        if not self._view.state.ended:
            self._view = job_view(self._client.show_job(self.id))
        return self._view

    @property
    def name(self) -> str:
        """The name it was given; the same as its id."""
        return self.id

    @property
    def state(self) -> JobState:
        """Where it stands in its life."""
        return self.view.state

    @property
    def reason(self) -> str:
        """Why it ended, or why it waits; one sentence."""
        return self.view.reason

    @property
    def directory(self) -> Path:
        """Where its files are, on the service's machine."""
        return Path(self._view.directory)

    @property
    def observations(self) -> list[Observation]:
        """What it has reported so far."""
        self._read()
        return list(self._observations)

    @property
    def losses(self) -> list[float]:
        """Its losses so far; the first is the one before the first iteration."""
        return [seen.loss for seen in self.observations]

    @property
    def metrics(self) -> list[Mapping[str, float]]:
        """What it has reported beside each loss."""
        self._read()
        return list(self._metrics)

    @property
    def diverged(self) -> bool:
        """Whether its last loss was not a finite number; it then holds the least share there is."""
        return self.view.diverged

    @property
    def units(self) -> int:
        """The units it holds now."""
        return self.view.units

    @property
    def reduction(self) -> float:
        """The share of its whole fall, from the first loss to its target or to the forecast end, done so far."""
        return self.view.reduction

    def forecast(self, horizons: int | Sequence[int]) -> "Forecast":
        """Predict its losses that many iterations ahead."""
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
        """Return what it has printed."""
        return b"".join(self._client.read_log(self.id)).decode(errors="replace")

    def why(self) -> dict[str, Any]:
        """Return the last decision about it, in numbers."""
        return self._client.why(self.id)

    def done(self) -> bool:
        """Return whether it has ended, in whatever way."""
        return self.view.state.ended

    def running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self.view.state is JobState.RUNNING

    def cancelled(self) -> bool:
        """Return whether it was ended before it had done what was asked."""
        return self.view.state is JobState.CANCELLED

    def cancel(self) -> bool:
        """Ask for its end; return False if it has ended already."""
        if self.done():
            return False
        try:
            self._view = job_view(self._client.cancel(self.id))
        except ConflictError:
            return False
        return True

    def pause(self) -> None:
        """Give it nothing until it is resumed; it keeps all it has."""
        self._view = job_view(self._client.pause(self.id))

    def resume(self) -> None:
        """Let it go on."""
        self._view = job_view(self._client.resume(self.id))

    def result(self, timeout: float | None = None) -> Any:
        """Return 0, the exit status of a job that completed, waiting for it.

        Raises `JobFailedError` if it failed, `CancelledError` if it was cancelled. What a program returned
        stays in its directory: the service never reads what programs wrote.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return 0

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return why it failed, waiting for its end; None if it completed."""
        if not self.wait(timeout=timeout):
            raise TimeoutError(f"job {self.id!r} has not ended within {timeout} seconds")
        if self._view.state is JobState.CANCELLED:
            raise CancelledError
        if self._view.state is JobState.COMPLETED:
            return None
        return JobFailedError(self.id, self._view.reason)

    def wait(self, reduction: float | None = None, timeout: float | None = None) -> bool:
        """Wait for its end or, if given, for that share of its whole reduction; return whether it has come."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while True:
            view = self.view
            if reduction is not None and view.reduction >= reduction:
                return True
            if view.state.ended:
                return reduction is None
            left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, LONGEST_LOOK)

    def add_done_callback(self, callback: Callable[["Job"], object]) -> None:
        """Call callback(job) once it has ended, in a thread of its own; at once if it has ended already."""
        self._client.watch(self, callback)

    def __iter__(self) -> Iterator[Observation]:
        """Yield its observations from the first, as they come, until it has ended."""
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
        """Fetch what it reported since the last look."""
        if self._complete:
            return
        ended = self.view.state.ended
        if self._observations and self._view.iteration < self._observations[-1].iteration:
            # It was run again from the beginning.
            self._observations, self._metrics = [], []
        after = self._observations[-1].iteration if self._observations else -1
        for found in self._client.observations(self.id, after=after):
            self._observations.append(observation(found))
            self._metrics.append(found["metrics"])
        self._complete = ended
