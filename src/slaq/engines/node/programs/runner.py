"""The runner of program jobs: one thread, the dispatcher, hears all their processes and hands out free cores."""

import errno
import logging
import math
import os
import selectors
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from typing_extensions import override

from slaq.core.job import JobState
from slaq.engines.files import job_directory, open_log
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.node.inbox import Inbox
from slaq.engines.node.programs.core_arbiter import CoreArbiter
from slaq.engines.node.programs.driver_handle import Turn
from slaq.engines.node.programs.fork_client import ForkClient
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.programs.program_run import NO_LOG, ProgramRun
from slaq.engines.node.programs.running_jobs import RunningJobs
from slaq.engines.node.programs.shared_data import Segment, Segments
from slaq.engines.node.programs.worker_pool import WorkerPool
from slaq.engines.node.runner import Runner
from slaq.engines.node.share_file import ShareFile
from slaq.engines.node.site import Site
from slaq.engines.processes import how_it_ended

#: Seconds between two looks at limits and at drivers that hold a core.
TICK = 0.05

#: Fork servers that may be lost within so many seconds while no job goes on; then the jobs fail.
MOST_LOSSES, LOSSES_WITHIN = 5, 60.0
#: Seconds until the next try after a fork server could not be started.
AGAIN = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Losses:
    """The fork servers that were lost since a job last went on."""

    #: When each of them was lost.
    at: list[float] = field(default_factory=list)
    #: The count of progress at the last loss.
    _progress: int = -1

    def count(self, now: float, progress: int) -> None:
        """Count a lost fork server; a changed `progress` means that a job has made progress since the last one."""
        recent = [at for at in self.at if now - at < LOSSES_WITHIN]
        self.at = [*(recent if progress == self._progress else ()), now]
        self._progress = progress

    @property
    def too_many(self) -> bool:
        """Whether so many were lost without progress in between that another would be lost too."""
        return len(self.at) >= MOST_LOSSES

    @property
    def next_try(self) -> float:
        """When a fork server that could not be started is tried again."""
        return self.at[-1] + AGAIN if self.at else 0.0


class ProgramRunner(Runner[ProgramJob]):
    """Runs program jobs: a driver each, and their tasks on as many workers as there are cores.

    All state belongs to the dispatcher's thread; other threads only leave orders for it.
    """

    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._journal = journal
        self._segments = Segments()
        self._prepared: dict[str, tuple[ProgramJob, Segment]] = {}
        self._count = 0
        self._next_tick = 0.0
        #: Cores that jobs of other kinds occupy now: as many workers stay idle.
        self._taken = 0
        self._selector = selectors.DefaultSelector()
        self._inbox = Inbox(self._selector)
        self._closed = False
        #: Why the dispatcher has ended, where that was not asked for.
        self._broken = ""
        site.directory.mkdir(parents=True, exist_ok=True)
        self._log_path = site.directory / "engine.log"
        self._losses = Losses()
        self._forks = ForkClient(
            self._selector,
            log=self._log_path,
            preload=site.preload,
            temporary=site.directory if site.temporary else None,
            died=self._fork_server_died,
        )
        self._forks.start()
        self._workers = WorkerPool(self._forks, site.cores, time.monotonic)
        self._jobs = RunningJobs(self._forks, self._workers, self._segments, journal, site.grace_seconds)
        self._arbiter = CoreArbiter(self._jobs.runs, site.capacity, site.epoch_seconds)
        self._thread = threading.Thread(target=self._dispatch, name="slaq-dispatcher", daemon=True)
        self._thread.start()

    @override
    def prepare(self, job_id: str, work: ProgramJob) -> ShareFile:
        directory = job_directory(self._site.directory, job_id)
        directory.mkdir(parents=True, exist_ok=True)
        self._prepared[job_id] = (work, self._segments.take(work.data))
        return ShareFile(directory)

    @override
    def start(self, job_id: str) -> None:
        job, segment = self._prepared.pop(job_id)
        directory = job_directory(self._site.directory, job_id)
        log = NO_LOG
        try:
            log = open_log(directory, job.checkpoint)
        except OSError as error:
            # Without a descriptor the job waits for one.
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                self._segments.leave(segment)
                self._fail(job_id, f"its directory cannot be written: {error}")
                return
        self._count += 1
        run = ProgramRun(
            number=self._count, job_id=job_id, job=job, segment=segment, directory=directory, log=log
        )
        if not self._inbox.leave(partial(self._start, run)):
            # Its data went with all that was prepared.
            if log != NO_LOG:
                os.close(log)
            self._fail(job_id, self._broken or SHUT_DOWN)

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        self._inbox.leave(partial(self._jobs.end, job_id, state, reason))

    @override
    def kill(self, job_id: str) -> None:
        self._inbox.leave(partial(self._jobs.kill, job_id))

    @override
    def grant(self, cores: Mapping[str, float], room: float) -> None:
        self._inbox.leave(partial(self._grant, dict(cores), room))

    def leave_cores(self, taken: int) -> None:
        """Leave so many cores to jobs of other kinds from now on; may be called from any thread."""
        self._inbox.leave(partial(setattr, self, "_taken", taken))

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.ring()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def _fail(self, job_id: str, reason: str) -> None:
        self._journal.ended(job_id, Ending(state=JobState.FAILED, reason=reason))

    # The loop.

    def _dispatch(self) -> None:
        runs, kept_until = self._jobs.runs, math.inf
        try:
            while not self._closed:
                due = min(self._next_tick, kept_until)
                wait = max(due - time.monotonic(), 0.0) if runs else None
                for key, events in self._selector.select(wait):
                    key.data(events)
                if runs and time.monotonic() >= self._next_tick:
                    self._tick()
                kept_until = self._fill()
        except BaseException as error:
            self._broken = f"the dispatcher failed ({error!r}); this is a defect of slaq"
            raise
        finally:
            self._shut()

    def _shut(self) -> None:
        """End everything, also jobs whose start is still queued."""
        self._inbox.finish()
        state = JobState.FAILED if self._broken else JobState.CANCELLED
        self._jobs.drop(state, self._broken or SHUT_DOWN)
        self._forks.close()
        for _, segment in self._prepared.values():
            self._segments.leave(segment)
        self._selector.close()
        self._inbox.close()

    def _fill(self) -> float:
        """Give free cores to the jobs with the longest leads; return until when a core is kept free, if one is."""
        runs = self._jobs.runs
        if not runs:
            return math.inf
        now = time.monotonic()
        holders = sum(run.driver.holds_core for run in runs.values()) + self._taken
        while True:
            # A driver that holds a core takes the place of a worker.
            free = self._workers.idle > holders
            spare = None if free else self._workers.spare()
            if not free and spare is None:
                return math.inf
            # Of few tasks none is given ahead: each goes to who is idle first.
            run, kept_until = self._arbiter.choose(now, least=0 if free else self._workers.size)
            if run is None:
                return kept_until
            if run.driver.turn is Turn.WAITS:
                run.driver.resume(holds_core=True)
                holders += 1
                continue
            try:
                self._workers.assign(run, spare)
            except OSError as error:
                # The next tick tries again.
                _log.warning("task not started", extra={"job": run.job_id, "reason": str(error)})
                return math.inf
            except Exception as error:
                self._jobs.give_up(run, error)

    def _tick(self) -> None:
        """Handle everything that depends on time alone."""
        now = time.monotonic()
        self._next_tick = now + TICK
        if not self._forks.alive and now >= self._losses.next_try:
            self._start_forks()
        self._workers.look(now, self._site.grace_seconds)
        self._arbiter.fill(now)
        self._jobs.look(now)
        self._arbiter.settle()

    def _grant(self, cores: dict[str, float], room: float) -> None:
        self._arbiter.grant(cores, room, time.monotonic())

    def _start(self, run: ProgramRun) -> None:
        if not self._forks.alive and not self._jobs.runs:
            # It was given up with the jobs that there were.
            self._losses = Losses()
            self._start_forks()
        self._jobs.start(run)

    # The fork server.

    def _fork_server_died(self, status: int) -> None:
        """Go on with a new fork server: every program is started again from its last checkpoint."""
        self._jobs.lose_drivers()
        self._workers.dissolve()
        self._lost(how_it_ended(status))
        if not self._losses.too_many:
            self._start_forks()

    def _start_forks(self) -> None:
        try:
            self._forks.start()
        except OSError as error:
            self._lost(f"it could not be started: {error}")
            return
        now = time.monotonic()
        self._workers.hire()
        self._jobs.look(now)

    def _lost(self, how: str) -> None:
        """Count a loss of the fork server; after too many without progress no job can go on."""
        self._losses.count(time.monotonic(), self._jobs.progress)
        _log.warning(
            "fork server lost", extra={"how": how, "losses": len(self._losses.at), "log": str(self._log_path)}
        )
        if self._losses.too_many:
            reason = (
                f"the process that starts all others was lost {MOST_LOSSES} times within {LOSSES_WITHIN:g} seconds "
                f"while no job went on ({how}); see {self._log_path}, and submit the job again"
            )
            self._jobs.drop(JobState.FAILED, reason)
