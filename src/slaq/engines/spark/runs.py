"""The state of one job on Spark: its work, its usage, its reports and its end."""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slaq.core.job import JobState, Observation
from slaq.engines.files import LOG
from slaq.engines.goals import Goal
from slaq.engines.journal import Journal
from slaq.engines.spark.pools import SparkPool
from slaq.jobs.context import Cancelled
from slaq.jobs.data import Dataset

#: Seconds, and slot seconds, without a loss after which a job counts as other work, until one comes; more seconds
#: where it has had few slots, or fits an estimator that is known to tell its loss: what comes before the first
#: iteration may take long.
SILENCE, PATIENCE = 5.0, 60.0
#: Seconds, and usual iterations, without a loss after which another fit of the same job may be followed.
LAPSE, LAPSE_ITERATIONS = 1.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """What a job does on Spark, and the limits of its life."""

    #: Called with the session and the job's context; what it returns is the job's result.
    work: Callable[[Any, Any], Any]
    #: What its context maps over.
    data: Dataset
    partitions: int = 1
    #: Whether it competes by its loss.
    trains: bool = True
    goal: Goal = field(default_factory=Goal)


@dataclass(slots=True, kw_only=True, eq=False)
class SparkRun:
    """A job from its start to its end; `changed` guards what several threads touch."""

    job_id: str
    job: SparkJob
    directory: Path
    #: Its pool; of the same name is its group of Spark jobs.
    pool: SparkPool
    started_at: float
    journal: Journal
    #: Brings `cpu_read` of all jobs up to date.
    read_usage: Callable[[], None]
    thread: threading.Thread | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    #: Slots granted; the job waits at its next iteration while it holds none.
    slots: float = 0.0
    #: Whether it has to wait at the end of its iteration although it holds slots.
    held: bool = False
    #: When its work began to run.
    began_at: float | None = None
    #: CPU seconds at the last reading, the slot seconds then, and the CPU of tasks in Python beside them.
    cpu_read: float = 0.0
    slots_read: float = 0.0
    cpu_python: float = 0.0
    #: CPU seconds of its own thread that are counted in these.
    cpu_thread: float = 0.0
    cpu_told: float = 0.0
    # What it has reported.
    iteration: int = -1
    first_loss: float = float("nan")
    #: How many iterations it last said it will make in all.
    total: int | None = None
    reported_at: float = 0.0
    #: The fit that is followed: its thread, when it last told a loss, how long an iteration of it takes.
    followed: threading.Thread | None = None
    heard_at: float = 0.0
    interval: float = 0.0
    #: Threads whose fit has begun and told no loss yet, and whether the one that runs now tells any.
    begun: set[threading.Thread] = field(default_factory=set)
    tells: bool = True
    #: Whether it counts as other work because it reports no loss.
    silent: bool = False
    # Its end: asked for, in which state, why and when; and whether it has come.
    ending: JobState | None = None
    reason: str = ""
    ending_at: float = float("inf")
    interrupted: bool = False
    #: Whether the job stops on request between iterations; an MLlib fit cannot.
    ends_itself: bool = True
    #: When its Spark jobs were last cancelled.
    cancelled_at: float = float("-inf")
    ended: bool = False

    def cpu_by(self, now: float) -> float:
        """Return the CPU seconds used up to now, extrapolated from the last reading by slot seconds."""
        since = max(self.pool.slots_by(now) - self.slots_read, 0.0)
        return self.cpu_read + self.cpu_python + since / self.stretch

    @property
    def stretch(self) -> float:
        """Seconds that a task holds a slot per CPU second; above 1 where slots outnumber cores."""
        cpu = self.cpu_read + self.cpu_python
        return max(self.slots_read / cpu, 1.0) if cpu > 0 and self.slots_read > 0 else 1.0

    def observe(self, loss: float, now: float) -> Observation | None:
        """Return a loss of this thread with its cost; None where the job has ended."""
        with self.changed:
            if self.ended:
                return None
            self.iteration += 1
            if not math.isfinite(self.first_loss):
                self.first_loss = loss
            if self.thread is threading.current_thread():
                used = time.thread_time()
                self.cpu_python += used - self.cpu_thread
                self.cpu_thread = used
            cpu = self.cpu_by(now)
            # In slot seconds: that is what a job holds, and what an iteration costs where slots outnumber cores.
            observation = Observation(
                iteration=self.iteration,
                loss=loss,
                cpu_seconds=max(cpu - self.cpu_told, 0.0) * self.stretch,
                wall_seconds=max(now - self.reported_at, 0.0),
            )
            self.cpu_told = max(cpu, self.cpu_told)
            self.pool.end_iteration(now)
            if self.heard_at:
                self.interval += 0.2 * (now - self.heard_at - self.interval)
            self.reported_at = self.heard_at = now
            self.followed = threading.current_thread()
            self.tells = True
            return observation

    def pass_gate(self) -> None:
        """Wait until the job holds slots and is not held back; raises `Cancelled` if it is to end."""
        with self.changed:
            self.changed.wait_for(lambda: (self.slots > 0 and not self.held) or self.ending is not None)
        if self.ending is not None:
            raise Cancelled(self.reason)

    def skip_to(self, iteration: int) -> bool:
        """Let the next loss be of that iteration; return False where its loss was told before."""
        later = iteration > self.iteration
        if later:
            self.iteration = iteration - 1
        return later

    def foresee(self, total: int) -> None:
        """Tell how many iterations there will be in all."""
        if total and total != self.total:
            self.total = total
            self.journal.end_foreseen(self.job_id, total)

    def report(self, loss: float, metrics: Mapping[str, float]) -> None:
        """Record a loss that a program reports; returns once the job may continue."""
        self.take_loss(loss, metrics)
        # A job that is to end goes on to its next call, so that it can still checkpoint the model of this loss.
        if self.ending is None:
            self.pass_gate()

    def take_loss(self, loss: float, metrics: Mapping[str, float] | None = None) -> None:
        """Tell a loss, and end the job as completed if that is enough."""
        if self.iteration < 0:
            self.read_usage()
        observation = self.observe(loss, time.monotonic())
        if observation is None:
            return
        self.journal.observed(self.job_id, observation, metrics or {})
        if self.ending is not None:
            return
        if astray := self.job.goal.astray(loss):
            self.end(JobState.DIVERGED, astray)
        elif reason := self.job.goal.reached(self.iteration, self.first_loss, loss):
            self.end(JobState.COMPLETED, reason)

    def end(self, state: JobState, reason: str) -> None:
        """Tell the job to end; a cancellation overrides a completion."""
        with self.changed:
            if self.ending is state or self.ending is JobState.CANCELLED:
                return
            self.ending, self.reason = state, reason
            self.ending_at = time.monotonic()
            self.changed.notify_all()

    def note(self, text: str) -> None:
        """Write into the job's log."""
        with contextlib.suppress(OSError), (self.directory / LOG).open("a") as log:
            log.write(text)

    def follows(self, thread: threading.Thread, now: float) -> bool:
        """Return whether a loss of this thread belongs to the job's curve: one fit is followed at a time."""
        if self.followed is None or self.followed is thread or not self.followed.is_alive():
            return True
        return now - self.heard_at > max(LAPSE, LAPSE_ITERATIONS * self.interval)

    def is_silent(self, now: float) -> bool:
        """Return whether the job reports no loss, so that nothing can be forecast."""
        if self.began_at is None or (self.followed is not None and self.tells):
            return False
        used = self.pool.slots_by(now) - self.pool.slots_told
        patience = PATIENCE if self.begun or used < SILENCE else SILENCE
        return not self.tells or now - max(self.began_at, self.heard_at) > patience
