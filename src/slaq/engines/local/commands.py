"""Runs command jobs: gives each one's process tree its share of the cores, and tells what becomes of it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.job import JobSpec, JobState
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, Runner
from slaq.engines.limits import Goal, why_enough
from slaq.engines.local.wire import pack
from slaq.engines.processes.commands import Commands, checked
from slaq.engines.processes.records import (
    CommandExited,
    CommandSpec,
    LearningRateSeen,
    LossSeen,
    LossSourceFailed,
    Record,
)

#: Seconds between two looks at what the commands have done.
TICK = 0.1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandJob:
    """A command and what ends it."""

    command: CommandSpec
    goal: Goal = field(default_factory=Goal)
    time_budget: float | None = None
    max_restarts: int = 0
    #: Where it goes on from what was reported before: the number of the last loss, the first loss ever.
    last_iteration: int = -1
    first_loss: float | None = None
    #: Seconds it has run before.
    spent_seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Run:
    """One command job while it runs."""

    job: CommandJob
    started_at: float
    first_loss: float | None = None
    iteration: int = -1
    restarts: int = 0
    cores: float = 0.0
    #: How it is to end, once it was told to.
    ending: JobState | None = None
    reason: str = ""


@dataclass(slots=True)
class CommandRunner(Runner[CommandJob]):
    """Owns the commands in a thread of its own; other threads only leave orders for it."""

    journal: Journal
    units_per_core: int
    #: How CPU shares are enforced: one of `shares.WAYS`, or None for the best that works here.
    throttle: str | None = None
    #: Marks the processes; a fresh one unless given.
    token: str | None = None
    _commands: Commands = field(init=False)
    _prepared: dict[str, CommandJob] = field(init=False, default_factory=dict)
    _runs: dict[str, _Run] = field(init=False, default_factory=dict)
    _orders: deque[Callable[[], None]] = field(init=False, default_factory=deque)
    _rung: threading.Event = field(init=False, default_factory=threading.Event)
    _closed: bool = field(init=False, default=False)
    _thread: threading.Thread | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # Checks the name of the throttle; nothing runs before the first command.
        self._commands = Commands(throttle=self.throttle, token=self.token)

    @property
    def way(self) -> str | None:
        """How CPU shares are enforced; None before the first command."""
        return self._commands.throttle

    @override
    def prepare(self, job_id: str, job: CommandJob) -> None:
        checked(job.command)
        if job_id in self._prepared or job_id in self._runs:
            raise DuplicateJobError(job_id)
        self._prepared[job_id] = job

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        if spec.id not in self._prepared:
            raise UnknownJobError(spec.id)
        job = self._prepared.pop(spec.id)
        if self._thread is None:
            self._thread = threading.Thread(target=self._care, name="slaq-commands", daemon=True)
            self._thread.start()
        self._order(partial(self._start, spec.id, job))

    @override
    def stop(self, job_id: str) -> None:
        self._order(partial(self._end, job_id, JobState.CANCELLED, "stopped on request"))

    @override
    def finish(self, job_id: str, reason: str) -> None:
        self._order(partial(self._end, job_id, JobState.COMPLETED, reason))

    @override
    def grant(self, units: Mapping[str, int]) -> None:
        if self._thread is not None:
            self._order(partial(self._share, dict(units)))

    @override
    def close(self) -> None:
        self._closed = True
        self._rung.set()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._rung.set()

    # The thread.

    def _care(self) -> None:
        try:
            while not self._closed:
                self._rung.wait(TICK if self._runs else None)
                self._rung.clear()
                while self._orders:
                    self._orders.popleft()()
                if self._runs:
                    self._look()
        finally:
            self._commands.close()
            for record in self._commands.poll():
                self._take(record)
            for job_id in list(self._runs):
                self._conclude(job_id, JobState.CANCELLED, SHUT_DOWN)

    def _look(self) -> None:
        for record in self._commands.poll():
            self._take(record)
        now = time.monotonic()
        for job_id, run in list(self._runs.items()):
            budget = run.job.time_budget
            if budget is not None and now - run.started_at > budget:
                self._end(job_id, JobState.COMPLETED, f"its {budget:g} seconds are over")

    def _start(self, job_id: str, job: CommandJob) -> None:
        self._runs[job_id] = _Run(
            job=job,
            started_at=time.monotonic() - job.spent_seconds,
            iteration=job.last_iteration,
            first_loss=job.first_loss,
        )
        self._launch(job_id)

    def _launch(self, job_id: str) -> None:
        run = self._runs[job_id]
        try:
            self._commands.start(job_id, replace(run.job.command, first_iteration=run.iteration + 1))
            self._commands.set_share(job_id, run.cores)
        except Exception as error:  # whatever it is, it is this job's end and no other's
            self._conclude(job_id, JobState.FAILED, str(error))

    def _share(self, units: Mapping[str, int]) -> None:
        for job_id, run in self._runs.items():
            run.cores = units.get(job_id, 0) / self.units_per_core
            # One that was told to end needs some of a core to do so.
            if run.ending is None:
                self._commands.set_share(job_id, run.cores)

    def _end(self, job_id: str, state: JobState, reason: str) -> None:
        run = self._runs.get(job_id)
        if run is not None and run.ending is None:
            run.ending, run.reason = state, reason
            self._commands.stop(job_id)

    def _conclude(self, job_id: str, state: JobState, reason: str = "") -> None:
        del self._runs[job_id]
        result = memoryview(b"".join(pack(0))) if state is JobState.COMPLETED else None
        self.journal.ended(job_id, Ending(state=state, reason=reason, result=result))

    def _take(self, record: Record) -> None:
        run = self._runs.get(record.job_id)
        if run is None:
            return
        if isinstance(record, LossSeen):
            self._observe(record, run)
        elif isinstance(record, LearningRateSeen):
            self.journal.learning_rate_changed(record.job_id, record.learning_rate)
        elif isinstance(record, LossSourceFailed):
            _log.warning("losses lost", extra={"job": record.job_id, "reason": record.reason})
        elif isinstance(record, CommandExited):
            self._exited(record, run)

    def _observe(self, record: LossSeen, run: _Run) -> None:
        seen = record.observation
        if seen.iteration <= run.iteration:
            return
        run.iteration = seen.iteration
        self.journal.observed(record.job_id, seen, record.metrics)
        if run.first_loss is None:
            run.first_loss = seen.loss
        if reason := why_enough(run.job.goal, seen.iteration, run.first_loss, seen.loss):
            self._end(record.job_id, JobState.COMPLETED, reason)

    def _exited(self, record: CommandExited, run: _Run) -> None:
        if run.ending is not None:
            self._conclude(record.job_id, run.ending, run.reason)
        elif record.stopped:
            # Only the end of the engine stops a command that was not told to end.
            self._conclude(record.job_id, JobState.CANCELLED, SHUT_DOWN)
        elif not record.reason:
            self._conclude(record.job_id, JobState.COMPLETED)
        elif run.restarts < run.job.max_restarts and not record.fault:
            run.restarts += 1
            _log.warning(
                "command restarted",
                extra={"job": record.job_id, "died": record.reason, "restart": run.restarts},
            )
            self._launch(record.job_id)
        else:
            again = f" after {run.restarts} restarts" if run.restarts else ""
            reason = f"{record.reason}{again}; the end of its log: {record.tail or '(nothing was printed)'}"
            self._conclude(record.job_id, JobState.FAILED, reason)
