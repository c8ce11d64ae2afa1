"""The program jobs that run now: their drivers, what these say, and how each job ends."""

import contextlib
import json
import logging
import os
import pickle
import time
from functools import partial
from pathlib import Path

from slaq.core.job import JobState, Observation
from slaq.engines.files import LOG
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.local import checkpoints, maps, turns
from slaq.engines.local.crew import Crew, death
from slaq.engines.local.nursery import Hooks, Nursery
from slaq.engines.local.orders import Orders
from slaq.engines.local.runs import Run, Turn
from slaq.engines.local.shared import Segments
from slaq.engines.local.wire import WAITS, HangUpError, Head, Kind, Message

#: Lines of a log that a reason quotes.
TAIL = 20

_log = logging.getLogger(__name__)


class Jobs:
    """Has a driver for each job, started again where it dies, and tells the journal what becomes of the job.

    A program that was told to end is killed where it has not ended after the grace.
    """

    def __init__(
        self, nursery: Nursery, crew: Crew, segments: Segments, journal: Journal, grace_seconds: float
    ) -> None:
        self._nursery = nursery
        self._crew = crew
        self._segments = segments
        self._journal = journal
        self._grace_seconds = grace_seconds
        #: By the job's id.
        self.runs: dict[str, Run] = {}
        #: Why no job can run any more, where that is so.
        self.broken = ""

    def start(self, run: Run) -> None:
        """Take a job on."""
        self.runs[run.job_id] = run
        if self.broken:
            self._conclude(run, JobState.FAILED, self.broken)
        else:
            self._launch(run)

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """Tell a program to end, if it runs."""
        if job_id in self.runs:
            self._end(self.runs[job_id], state, reason)

    def look(self, now: float) -> None:
        """Look at all that time alone can change."""
        for run in list(self.runs.values()):
            if run.turn is Turn.RUNS:
                turns.look(run, now)
            budget = run.job.time_budget
            if budget is not None and run.began_at is not None and now - run.began_at > budget:
                self._end(run, JobState.COMPLETED, f"its {budget:g} seconds are over")
            if now > run.deadline and run.driver is not None:
                run.deadline = float("inf")
                self._nursery.kill(run.driver)

    def drop(self) -> None:
        """Let every job be over at once: failed where something of slaq broke, else cancelled."""
        state = JobState.FAILED if self.broken else JobState.CANCELLED
        for run in list(self.runs.values()):
            self._conclude(run, state, self.broken or SHUT_DOWN)

    def _launch(self, run: Run) -> None:
        """Have a driver forked and tell it its orders."""
        job = run.job
        orders = Orders(
            program=job.program,
            shape=job.data.shape(job.partitions),
            directory=str(run.directory),
            max_iterations=job.max_iterations,
            target=job.target,
            stop_at=job.stop_at,
            memory_limit=job.memory_limit,
        )
        hooks = Hooks(
            forked=partial(self._driver_forked, run),
            ready=partial(self._driver_ready, run),
            exited=partial(self._driver_exited, run),
        )
        run.driver = self._nursery.fork(hooks, is_driver=True)
        run.driver.peer.send(Head(Kind.BEGIN), [pickle.dumps(orders)], (run.log,))
        run.driver_cpu = run.turn_began = 0.0
        run.map = 0
        run.queue.clear()
        run.missing.clear()

    def _end(self, run: Run, state: JobState, reason: str) -> None:
        """Tell a program to end; it is killed if it does not. A cancellation overrides a completion."""
        if run.ending is state or run.ending is JobState.CANCELLED:
            return
        run.ending, run.reason = state, reason
        run.deadline = min(run.deadline, time.monotonic() + self._grace_seconds)
        run.queue.clear()
        if run.driver is not None:
            run.driver.peer.send(Head(Kind.END), [reason.encode()])

    def _conclude(
        self,
        run: Run,
        state: JobState,
        reason: str = "",
        *,
        result: memoryview | None = None,
        error: memoryview | None = None,
    ) -> None:
        """Let a job be over, and forget it."""
        del self.runs[run.job_id]
        run.ended_at = time.monotonic()
        run.queue.clear()
        run.bucket.cores = 0.0
        self._crew.detach(run)
        os.close(run.log)
        self._segments.leave(run.segment)
        if run.driver is not None:
            self._nursery.kill(run.driver)
        self._journal.ended(run.job_id, Ending(state=state, reason=reason, result=result, error=error))

    # What the nursery tells of drivers.

    def _driver_forked(self, run: Run) -> None:
        if run.ended_at is None:
            run.turn = Turn.WAITS

    def _driver_ready(self, run: Run) -> None:
        assert run.driver is not None
        peer = run.driver.peer
        try:
            message = peer.receive()
        except HangUpError:
            # How it died is told by the zygote.
            peer.close()
            self._nursery.kill(run.driver)
            return
        if message is not None and run.ended_at is None:
            self._driver_says(run, message)

    def _driver_says(self, run: Run, message: Message) -> None:
        head, payload = message
        run.pay_driver(head.x)
        if head.kind == Kind.MAP:
            turns.rest(run)
            maps.begin(run, head.b, payload)
        elif head.kind == Kind.REPORT:
            self._report(run, head, payload)
            if head.flag == WAITS:
                turns.rest(run)
                run.turn = Turn.WAITS
        elif head.kind == Kind.ANNOUNCE:
            self._journal.learning_rate_changed(run.job_id, head.y)
        elif head.kind == Kind.RETURNED:
            state = run.ending or JobState.COMPLETED
            self._conclude(run, state, run.reason, result=payload)
        elif head.kind == Kind.RAISED:
            last = _last_line(run.directory)
            self._conclude(run, JobState.FAILED, f"its program raised {last}", error=payload)
        elif head.kind == Kind.LEFT:
            run.reason = run.reason or str(payload, "utf-8")
            self._leave(run)

    def _report(self, run: Run, head: Head, payload: memoryview) -> None:
        now = time.monotonic()
        # A driver that was started again goes through some iterations a second time.
        if head.c > run.iteration:
            run.iteration = head.c
            observation = Observation(
                iteration=head.c, loss=head.y, cpu_seconds=run.cpu, wall_seconds=now - run.reported_at
            )
            metrics = json.loads(bytes(payload)) if payload else {}
            self._journal.observed(run.job_id, observation, metrics)
        run.cpu, run.reported_at = 0.0, now

    def _leave(self, run: Run) -> None:
        """Conclude a job whose program ended as it was told to, or was killed for not doing so."""
        state = run.ending or JobState.COMPLETED
        result = None
        if state is JobState.COMPLETED:
            with contextlib.suppress(OSError, ValueError):
                result = checkpoints.read(run.directory / checkpoints.FILE).state
        self._conclude(run, state, run.reason, result=result)

    def _driver_exited(self, run: Run, status: int) -> None:
        assert run.driver is not None
        driver = run.driver
        with contextlib.suppress(HangUpError, OSError):
            while run.ended_at is None and (message := driver.peer.receive()) is not None:
                self._driver_says(run, message)
        driver.peer.close()
        run.driver = None
        run.turn, run.seated = Turn.ABSENT, False
        if run.ended_at is not None:
            return
        if run.ending is not None:
            self._leave(run)
        elif run.restarts < run.job.max_restarts:
            run.restarts += 1
            _log.warning(
                "driver restarted", extra={"job": run.job_id, "died": death(status), "restart": run.restarts}
            )
            self._launch(run)
        else:
            again = f" after {run.restarts} restarts" if run.restarts else ""
            reason = f"its driver {death(status)}{again}; the end of its log: {_tail(run.directory)}"
            self._conclude(run, JobState.FAILED, reason)


def _tail(directory: Path) -> str:
    """Return the last lines of a job's log."""
    with contextlib.suppress(OSError):
        lines = (directory / LOG).read_text(errors="replace").splitlines()[-TAIL:]
        return "\n".join(lines) or "(nothing was printed)"
    return "(it cannot be read)"


def _last_line(directory: Path) -> str:
    """Return the last line that was printed: that of the traceback, when a program has raised."""
    return _tail(directory).splitlines()[-1]
