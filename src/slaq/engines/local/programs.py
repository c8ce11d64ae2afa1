"""The dispatcher: one thread that passes tasks to workers and results to drivers, and keeps the accounts."""

import contextlib
import json
import logging
import math
import os
import pickle
import selectors
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.job import JobSpec, JobState, Observation
from slaq.engines.files import LOG, job_directory, open_log
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, Runner
from slaq.engines.local import checkpoints, maps, turns
from slaq.engines.local.claims import Claims
from slaq.engines.local.crew import Crew, death
from slaq.engines.local.inbox import Inbox
from slaq.engines.local.nursery import Hooks, Nursery
from slaq.engines.local.orders import Orders, ProgramJob
from slaq.engines.local.runs import Run, Turn
from slaq.engines.local.shared import Segment, Segments
from slaq.engines.local.wire import WAITS, HangUpError, Head, Kind, Message

#: Seconds between two looks at limits and at drivers that hold a core.
TICK = 0.05
#: Lines of a log that a reason quotes.
TAIL = 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where and how programs run."""

    cores: int
    units_per_core: int
    epoch_seconds: float
    directory: Path
    #: Modules loaded before anything is forked, so that all share their memory.
    preload: Sequence[str] = ()
    #: Whether the directory is to vanish with the process that made it, however that ends.
    temporary: bool = False
    #: Seconds a program has to end by itself once it was told to.
    grace_seconds: float = 5.0


class Programs(Runner[ProgramJob]):
    """Runs program jobs: a driver each, and their tasks on as many workers as there are cores.

    All state belongs to the dispatcher's thread; other threads only leave orders for it.
    """

    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._journal = journal
        self._segments = Segments()
        self._prepared: dict[str, tuple[ProgramJob, Segment]] = {}
        self._runs: dict[str, Run] = {}
        self._count = 0
        self._broken = ""
        self._next_tick = 0.0
        self._selector = selectors.DefaultSelector()
        self._inbox = Inbox(self._selector)
        self._closed = False
        site.directory.mkdir(parents=True, exist_ok=True)
        with (site.directory / "engine.log").open("ab") as log:
            self._nursery = Nursery(
                self._selector,
                log=log,
                preload=site.preload,
                temporary=site.directory if site.temporary else None,
                died=self._zygote_died,
            )
        self._crew = Crew(self._nursery, site.cores, time.monotonic)
        self._claims = Claims(self._runs, site.cores, site.units_per_core, site.epoch_seconds)
        self._thread = threading.Thread(target=self._dispatch, name="slaq-dispatcher", daemon=True)
        self._thread.start()

    @override
    def prepare(self, job_id: str, job: ProgramJob) -> None:
        if job_id in self._prepared or job_id in self._runs:
            raise DuplicateJobError(job_id)
        self._prepared[job_id] = (job, self._segments.take(job.data))

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        try:
            job, segment = self._prepared.pop(spec.id)
        except KeyError:
            raise UnknownJobError(spec.id) from None
        directory = self.directory(spec.id)
        try:
            log = open_log(directory, checkpoint)
        except OSError as error:
            self._segments.leave(segment)
            reason = f"its directory cannot be written: {error}"
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))
            return
        self._count += 1
        run = Run(
            number=self._count,
            job_id=spec.id,
            job=job,
            segment=segment,
            directory=directory,
            log=log,
            reported_at=time.monotonic(),
        )
        if not self._inbox.leave(partial(self._start, run)):
            reason = self._broken or SHUT_DOWN
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))

    @override
    def stop(self, job_id: str) -> None:
        self._inbox.leave(partial(self._end_by_id, job_id, JobState.CANCELLED, "stopped on request"))

    @override
    def finish(self, job_id: str, reason: str) -> None:
        self._inbox.leave(partial(self._end_by_id, job_id, JobState.COMPLETED, reason))

    @override
    def grant(self, units: Mapping[str, int]) -> None:
        self._inbox.leave(partial(self._grant, dict(units)))

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.ring()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def directory(self, job_id: str) -> Path:
        """Return where a job's files are."""
        return job_directory(self._site.directory, job_id)

    # The loop.

    def _dispatch(self) -> None:
        kept_until = math.inf
        try:
            while not self._closed:
                due = min(self._next_tick, kept_until)
                wait = max(due - time.monotonic(), 0.0) if self._runs else None
                for key, events in self._selector.select(wait):
                    key.data(events)
                if self._runs and time.monotonic() >= self._next_tick:
                    self._tick()
                kept_until = self._fill()
        except BaseException as error:
            self._broken = f"the dispatcher failed ({error!r}); this is a defect of slaq"
            raise
        finally:
            self._shut()

    def _shut(self) -> None:
        """End everything, jobs whose start is still to be ordered included."""
        self._inbox.finish()
        state = JobState.FAILED if self._broken else JobState.CANCELLED
        for run in list(self._runs.values()):
            self._conclude(run, state, self._broken or SHUT_DOWN)
        self._nursery.close()
        for _, segment in self._prepared.values():
            self._segments.leave(segment)
        self._selector.close()
        self._inbox.close()

    def _fill(self) -> float:
        """Give every free core to who has the best claim to it; return until when at most one is kept free."""
        if not self._runs:
            return math.inf
        now = time.monotonic()
        seated = sum(run.seated for run in self._runs.values())
        while True:
            # A driver that holds a core takes the place of a worker.
            free = self._crew.idle > seated
            spare = None if free else self._crew.spare()
            if not free and spare is None:
                return math.inf
            # Of few tasks none is given ahead: each goes to who is idle first.
            run, kept_until = self._claims.choose(now, least=0 if free else self._crew.size)
            if run is None:
                return kept_until
            if run.turn is Turn.WAITS:
                turns.let_go(run, seated=True)
                seated += 1
            else:
                self._crew.assign(run, spare)

    def _tick(self) -> None:
        """Look at all that time alone can change."""
        now = time.monotonic()
        self._next_tick = now + TICK
        self._crew.look(now, self._site.grace_seconds)
        self._claims.fill(now)
        for run in list(self._runs.values()):
            if run.turn is Turn.RUNS:
                turns.look(run, now)
            budget = run.job.time_budget
            if budget is not None and run.began_at is not None and now - run.began_at > budget:
                self._end(run, JobState.COMPLETED, f"its {budget:g} seconds are over")
            if now > run.deadline and run.driver is not None:
                run.deadline = float("inf")
                self._nursery.kill(run.driver)
        self._claims.settle()

    # Jobs.

    def _start(self, run: Run) -> None:
        self._runs[run.job_id] = run
        if self._broken:
            self._conclude(run, JobState.FAILED, self._broken)
        else:
            self._launch(run)

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

    def _grant(self, units: dict[str, int]) -> None:
        self._claims.grant(units, time.monotonic())

    def _end_by_id(self, job_id: str, state: JobState, reason: str) -> None:
        if job_id in self._runs:
            self._end(self._runs[job_id], state, reason)

    def _end(self, run: Run, state: JobState, reason: str) -> None:
        """Tell a program to end; it is killed if it does not. A cancellation overrides a completion."""
        if run.ending is state or run.ending is JobState.CANCELLED:
            return
        run.ending, run.reason = state, reason
        run.deadline = min(run.deadline, time.monotonic() + self._site.grace_seconds)
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
        del self._runs[run.job_id]
        run.ended_at = time.monotonic()
        run.queue.clear()
        run.bucket.cores = 0.0
        self._crew.detach(run)
        os.close(run.log)
        self._segments.leave(run.segment)
        if run.driver is not None:
            self._nursery.kill(run.driver)
        self._journal.ended(run.job_id, Ending(state=state, reason=reason, result=result, error=error))

    # Drivers.

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

    def _zygote_died(self) -> None:
        self._broken = (
            f"the process that starts all others died; see {self._site.directory / 'engine.log'}, "
            "and make a new cluster"
        )
        self._crew.dissolve()
        for run in list(self._runs.values()):
            self._conclude(run, JobState.FAILED, self._broken)


def _tail(directory: Path) -> str:
    """Return the last lines of a job's log."""
    with contextlib.suppress(OSError):
        lines = (directory / LOG).read_text(errors="replace").splitlines()[-TAIL:]
        return "\n".join(lines) or "(nothing was printed)"
    return "(it cannot be read)"


def _last_line(directory: Path) -> str:
    """Return the last line that was printed: that of the traceback, when a program has raised."""
    return _tail(directory).splitlines()[-1]
