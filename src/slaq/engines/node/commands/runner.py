"""Runs command jobs: gives each one's process tree its share of the cores, and tells what becomes of it."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from typing_extensions import override

from slaq.core.events import CpuUsed, JobDelayed, LossObserved, LossSourceChanged, ThreadsChosen
from slaq.core.job import JobState
from slaq.core.progress import is_number
from slaq.engines.goals import Goal
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, JournalEntry
from slaq.engines.node.commands.checks import checked
from slaq.engines.node.commands.experience import Experience, script_of
from slaq.engines.node.commands.records import (
    CommandExited,
    CommandSpec,
    LossSourceFailed,
    Record,
    SeatsTaken,
)
from slaq.engines.node.commands.supervisor_client import GRACE, SupervisorClient
from slaq.engines.node.inbox import Inbox
from slaq.engines.node.runner import Runner
from slaq.engines.node.share_file import ShareFile
from slaq.jobs import variables

#: Seconds between two looks at time budgets.
TICK = 0.25
#: Seconds until jobs whose supervisor was lost may go on: at first, and at most when that happens again and again.
FIRST_DELAY, LONGEST_DELAY = 0.1, 60.0
#: Seconds after which the loss of a supervisor is forgotten.
FORGET_SECONDS = 120.0
#: Seconds without a look at the commands after which their thread counts as stuck.
STUCK_SECONDS = 180.0

#: The file that keeps how much more threads have helped; no job can have its name.
EXPERIENCE = ".threads.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandJob:
    """A command and what ends it."""

    command: CommandSpec
    goal: Goal = field(default_factory=Goal)
    retry: int = 0
    #: Where it goes on from what was reported before: the number of the last loss, the first loss ever.
    last_iteration: int = -1
    first_loss: float | None = None
    #: Seconds it has run before.
    spent_seconds: float = 0.0
    #: CPU seconds it has used before.
    spent_cpu: float = 0.0


@dataclass(slots=True, kw_only=True)
class _CommandRun:
    """One command job while it runs."""

    job: CommandJob
    started_at: float
    first_loss: float | None
    iteration: int
    #: CPU seconds of all its attempts: before the present one, and in all as last told.
    spent_cpu: float = 0.0
    told_cpu: float = 0.0
    restarts: int = 0
    cores: float = 0.0
    #: How it is to end, once it was told to.
    ending: JobState | None = None
    reason: str = ""
    #: Why losses of its present attempt could not be read.
    unread: str = ""
    #: Of its present attempt: its threads, whether it has told a loss, and the iterations that it made from then on
    #: in so many seconds of running.
    threads: int = 0
    heard: bool = False
    timed_iterations: int = 0
    timed_seconds: float = 0.0


@dataclass(slots=True)
class _Losses:
    """Recent losses of the supervisor process: each one shortly after another doubles the wait before a restart."""

    lost_at: float = -math.inf
    delay: float = FIRST_DELAY

    def next_delay(self, now: float) -> float:
        """Count a loss; return the seconds that its jobs wait before they may go on."""
        if now - self.lost_at > FORGET_SECONDS:
            self.delay = FIRST_DELAY
        elif now - self.lost_at > self.delay:
            self.delay = min(2 * self.delay, LONGEST_DELAY)
        self.lost_at = now
        return self.delay


@dataclass(frozen=True, slots=True, kw_only=True)
class _LostRun:
    """One command job that was lost, until the scheduler is told."""

    job: CommandJob
    reason: str
    due: float


class CommandRunner(Runner[CommandJob]):
    """Owns the commands in a thread of its own; other threads only queue calls for it.

    The loss of the supervisor is no job's fault: its jobs are told as lost, and can be started again.
    """

    def __init__(
        self,
        journal: Journal,
        throttle: str | None = None,
        token: str | None = None,
        directory: Path | None = None,
        grace: float = GRACE,
    ) -> None:
        """Take the way to let trees run and rest, the secret of marks, where to keep what is learned; the grace."""
        self._journal = journal
        #: Called in the thread of commands with the cores that commands occupy, whenever these change.
        self.seats_taken: Callable[[int], object] = lambda seats: None
        self._experience = Experience(None if directory is None else directory / EXPERIENCE)
        # Checks the name of the throttle; nothing runs before the first command.
        self._commands = SupervisorClient(throttle=throttle, grace=grace, token=token)
        self._inbox = Inbox(self._commands.selector)
        self._prepared: dict[str, CommandJob] = {}
        self._runs: dict[str, _CommandRun] = {}
        self._lost: dict[str, _LostRun] = {}
        self._losses = _Losses()
        self._trouble = ""
        self._looked_at = time.monotonic()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def way(self) -> str | None:
        """How CPU shares are enforced; None before the first command."""
        return self._commands.throttle

    @property
    def name(self) -> str:
        """What its thread is called in metrics."""
        return "commands"

    @property
    def alive(self) -> bool:
        """Whether the thread runs, or no command has needed it yet."""
        return self._thread is None or self._thread.is_alive()

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with it, in a sentence."""
        if not self.alive and not self._closed:
            return ("the thread for commands has stopped; the log says why; restart the service",)
        # Without a command the thread waits until there is one.
        if self._runs and (still := time.monotonic() - self._looked_at) > STUCK_SECONDS and not self._closed:
            return (f"nobody has looked after commands for {still:.0f} seconds; restart the service",)
        return (self._trouble,) if self._trouble else ()

    @override
    def prepare(self, job_id: str, work: CommandJob) -> ShareFile:
        command = work.command
        checked(command)
        self._prepared[job_id] = work
        return ShareFile(command.directory, None if command.run_as is None else command.run_as.gid)

    @override
    def start(self, job_id: str) -> None:
        job = self._prepared.pop(job_id)
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._care, name="slaq-commands", daemon=True)
            self._thread.start()
        if not self._inbox.leave(partial(self._start, job_id, job)):
            self._journal.ended(job_id, Ending(state=JobState.CANCELLED, reason=SHUT_DOWN))

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        self._inbox.leave(partial(self._end, job_id, state, reason))

    @override
    def kill(self, job_id: str) -> None:
        self._inbox.leave(partial(self._commands.kill, job_id))

    @override
    def grant(self, cores: Mapping[str, float], room: float) -> None:
        if self._thread is not None:
            self._inbox.leave(partial(self._grant, dict(cores), room))

    @override
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.ring()
            if self._thread is None:
                self._shut()
            elif threading.current_thread() is not self._thread:
                self._thread.join()

    # The thread.

    def _care(self) -> None:
        try:
            while not self._closed:
                self._looked_at = time.monotonic()
                try:
                    for record in self._commands.poll(TICK if self._runs or self._lost else None):
                        self._take_safely(record)
                    self._look()
                    self._trouble = ""
                except Exception:
                    # The thread serves all commands: it goes on, and tells that something is wrong.
                    self._trouble = "commands are not looked after as they should be; the log says why"
                    _log.exception("commands not looked after")
                    time.sleep(TICK)
        finally:
            self._shut()

    def _shut(self) -> None:
        """End everything, also jobs whose start is still queued."""
        self._inbox.finish()
        self._commands.close()
        for record in self._commands.poll():
            self._take_safely(record)
        for job_id in [*self._runs, *self._lost]:
            self._conclude(job_id, JobState.CANCELLED, SHUT_DOWN)
        self._commands.selector.close()
        self._inbox.close()

    def _look(self) -> None:
        now = time.monotonic()
        for job_id, run in list(self._runs.items()):
            if over := run.job.goal.overdue(now - run.started_at):
                self._end(job_id, JobState.COMPLETED, over)
        for job_id in [job_id for job_id, lost in self._lost.items() if now >= lost.due]:
            lost = self._lost.pop(job_id)
            self._prepared[job_id] = lost.job
            self._journal.lost(job_id, lost.reason)

    def _start(self, job_id: str, job: CommandJob) -> None:
        self._runs[job_id] = _CommandRun(
            job=job,
            started_at=time.monotonic() - job.spent_seconds,
            iteration=job.last_iteration,
            first_loss=job.first_loss,
            spent_cpu=job.spent_cpu,
            told_cpu=job.spent_cpu,
        )
        self._launch(job_id)

    def _launch(self, job_id: str) -> None:
        run = self._runs[job_id]
        try:
            run.threads, run.heard, run.timed_iterations, run.timed_seconds = 0, False, 0, 0.0
            useful = self._experience.useful(script_of(run.job.command))
            self._commands.start(job_id, replace(_next_start(run), useful_threads=useful))
            self._commands.set_share(job_id, run.cores)
        except Exception as error:  # whatever it is, it is this job's end and no other's
            self._conclude(job_id, JobState.FAILED, str(error))

    def _grant(self, cores: Mapping[str, float], room: float) -> None:
        for job_id, run in self._runs.items():
            run.cores = cores.get(job_id, 0.0)
        self._commands.grant(cores, room)

    def _end(self, job_id: str, state: JobState, reason: str) -> None:
        if job_id in self._lost:
            self._conclude(job_id, state, reason)
        run = self._runs.get(job_id)
        if run is not None and run.ending is None:
            run.ending, run.reason = state, reason
            asked = run.job.command.grace
            grace = self._commands.grace if asked is None else asked
            self._commands.stop(job_id)
            self._journal.ending(job_id, reason, grace)

    def _conclude(self, job_id: str, state: JobState, reason: str = "") -> None:
        self._runs.pop(job_id, None)
        self._lost.pop(job_id, None)
        # What a command that did as asked returns is its exit status.
        result = 0 if state is JobState.COMPLETED else None
        self._journal.ended(job_id, Ending(state=state, reason=reason, result=result))

    def _take_safely(self, record: Record) -> None:
        """Handle a record; an error ends the job of that record and no other."""
        try:
            self._take(record)
        except Exception:
            _log.exception("record not understood", extra={"job": record.job_id})
            self._end(record.job_id, JobState.FAILED, "a defect of slaq; see the log")

    def _take(self, record: Record) -> None:
        if isinstance(record, SeatsTaken):
            self.seats_taken(record.seats)
            return
        run = self._runs.get(record.job_id)
        if run is None:
            return
        if isinstance(record, LossObserved):
            self._observe(record, run)
        elif isinstance(record, LossSourceFailed):
            _log.warning("losses cannot be read", extra={"job": record.job_id, "reason": record.reason})
            run.unread = record.reason
        elif isinstance(record, LossSourceChanged):
            if record.trouble:
                _log.warning("no losses", extra={"job": record.job_id, "reason": record.trouble})
            if run.job.command.loss_pattern is not None or run.job.command.loss_file is not None:
                run.unread = record.trouble
            self._journal.enter([JournalEntry(record)])
        elif isinstance(record, JobDelayed):
            # Without a reason it runs again.
            level = logging.WARNING if record.reason else logging.DEBUG
            _log.log(level, "command delayed", extra={"job": record.job_id, "reason": record.reason or None})
            self._journal.enter([JournalEntry(record)])
        elif isinstance(record, CpuUsed):
            self._use(record, run)
        elif isinstance(record, ThreadsChosen):
            run.threads = record.threads
            self._journal.enter([JournalEntry(record)])
        elif isinstance(record, CommandExited):
            self._use(CpuUsed(job_id=record.job_id, at=0.0, cpu_seconds=record.cpu_seconds), run)
            # For a command that was lost, the CPU time reported so far counts.
            run.spent_cpu = run.told_cpu
            self._exited(record, run)
        else:
            self._journal.enter([JournalEntry(record)])

    def _observe(self, event: LossObserved, run: _CommandRun) -> None:
        seen = event.observation
        if seen.iteration <= run.iteration:
            return
        # The time until the first loss is that of the start.
        if run.heard and seen.run_seconds is not None:
            run.timed_iterations += seen.iteration - run.iteration
            run.timed_seconds += seen.run_seconds
        run.heard, run.iteration = True, seen.iteration
        self._journal.enter([JournalEntry(event)])
        if reason := run.job.goal.astray(seen.loss):
            self._end(event.job_id, JobState.DIVERGED, reason)
        if not is_number(seen.loss):
            return
        if run.first_loss is None:
            run.first_loss = seen.loss
        if reason := run.job.goal.reached(seen.iteration, run.first_loss, seen.loss):
            self._end(event.job_id, JobState.COMPLETED, reason)

    def _lose(self, job_id: str, run: _CommandRun, reason: str) -> None:
        """Keep a job that was lost until it may go on."""
        del self._runs[job_id]
        now = time.monotonic()
        _log.warning("job lost", extra={"job": job_id, "reason": reason})
        job = replace(
            run.job,
            command=replace(run.job.command, again=True),
            last_iteration=run.iteration,
            first_loss=run.first_loss,
            spent_seconds=now - run.started_at,
            spent_cpu=run.told_cpu,
        )
        self._lost[job_id] = _LostRun(job=job, reason=reason, due=now + self._losses.next_delay(now))

    def _use(self, event: CpuUsed, run: _CommandRun) -> None:
        """Report the job's CPU time, given that of its present attempt."""
        used = max(run.spent_cpu + event.cpu_seconds, run.told_cpu)
        if used > run.told_cpu or event.parallel:
            run.told_cpu = used
            self._journal.enter([JournalEntry(replace(event, cpu_seconds=used))])

    def _exited(self, record: CommandExited, run: _CommandRun) -> None:
        if run.threads:
            script = script_of(run.job.command)
            self._experience.note(script, run.threads, run.timed_iterations, run.timed_seconds)
        if run.ending is not None:
            self._conclude(record.job_id, run.ending, run.reason)
        elif record.stopped and self._closed:
            self._conclude(record.job_id, JobState.CANCELLED, SHUT_DOWN)
        elif record.lost or record.stopped:
            # A supervisor that finds itself cut off from the node stops what it runs.
            self._lose(record.job_id, run, record.fault or "what runs commands had to end")
        elif not record.reason:
            self._conclude(record.job_id, JobState.COMPLETED, run.unread)
        elif run.restarts < run.job.retry and not record.fault:
            run.restarts += 1
            run.unread = ""
            _log.warning(
                "command restarted",
                extra={"job": record.job_id, "died": record.reason, "restart": run.restarts},
            )
            self._journal.retried(record.job_id, record.reason)
            self._launch(record.job_id)
        else:
            again = f" after {run.restarts} restarts" if run.restarts else ""
            reason = f"{record.reason}{again}; the end of its log: {record.tail or '(nothing was printed)'}"
            self._conclude(record.job_id, JobState.FAILED, reason)


def _next_start(run: _CommandRun) -> CommandSpec:
    """Return the command as its next start needs it: a start after a failure is told that it is one."""
    command, following = run.job.command, run.iteration + 1
    env = dict(command.env)
    if run.restarts and variables.ATTEMPT in env:
        env[variables.ATTEMPT] = str(int(env[variables.ATTEMPT]) + run.restarts)
        env[variables.ITERATION] = str(following)
    again = command.again or run.restarts > 0
    return replace(command, env=env, first_iteration=following, again=again)
