"""What the engine keeps of each job: what it does, where it stands, what it has used and reported."""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slaq.core.job import JobState, Observation
from slaq.engines.files import LOG
from slaq.engines.spark.lanes import Lane
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
    #: End the job, as completed, once it has reported that many iterations, or after that many seconds.
    max_iterations: int | None = None
    time_budget: float | None = None
    #: The loss the owner is content with, and the share of the way to it after which the job is ended.
    target: float | None = None
    stop_at: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A job from its start to its end; `changed` guards what several threads touch."""

    job_id: str
    job: SparkJob
    directory: Path
    #: Its pool; of the same name is its group of Spark jobs.
    lane: Lane
    started_at: float
    thread: threading.Thread | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)
    #: Units granted; it waits at its next iteration while it holds none.
    units: int = 0
    #: Whether it is to wait at the end of its iteration although it holds some.
    held: bool = False
    #: When its work began to run.
    began_at: float | None = None
    #: CPU seconds at the last reading, the slot seconds then, and the CPU of tasks in Python beside them.
    cpu_read: float = 0.0
    slots_read: float = 0.0
    cpu_python: float = 0.0
    #: CPU seconds of its own thread that are in there.
    cpu_thread: float = 0.0
    cpu_told: float = 0.0
    # What it has reported.
    iteration: int = -1
    first_loss: float = float("nan")
    reported_at: float = 0.0
    #: The fit that is followed: its thread, when it last told a loss, how long an iteration of it takes.
    followed: threading.Thread | None = None
    heard_at: float = 0.0
    interval: float = 0.0
    #: Threads whose fit has begun and told no loss yet, and whether the one that runs now tells any.
    begun: set[threading.Thread] = field(default_factory=set)
    tells: bool = True
    #: Whether it competes no longer because it told no loss; and whether its owner knows.
    silent: bool = False
    # Its end: asked for, in which state, why and when; and whether it has come.
    ending: JobState | None = None
    reason: str = ""
    ending_at: float = float("inf")
    interrupted: bool = False
    #: Whether it ends by itself once it is told to, between two of its iterations; a fit of MLlib cannot.
    ends_itself: bool = True
    #: When its Spark jobs were last cancelled.
    cancelled_at: float = float("-inf")
    ended: bool = False

    def cpu_by(self, now: float) -> float:
        """Return the CPU seconds used up to now; since the last reading, as many to a slot second as before."""
        since = max(self.lane.slots_by(now) - self.slots_read, 0.0)
        return self.cpu_read + self.cpu_python + since / self.stretch

    @property
    def stretch(self) -> float:
        """How many seconds a task holds a slot for one second of CPU: above 1 where slots outnumber cores."""
        cpu = self.cpu_read + self.cpu_python
        return max(self.slots_read / cpu, 1.0) if cpu > 0 and self.slots_read > 0 else 1.0

    def observe(self, loss: float, now: float) -> Observation | None:
        """Take in a loss that this thread tells, and what it took; None where the job has ended."""
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
            observation = Observation(
                iteration=self.iteration,
                loss=loss,
                cpu_seconds=max(cpu - self.cpu_told, 0.0),
                wall_seconds=max(now - self.reported_at, 0.0),
            )
            self.cpu_told = max(cpu, self.cpu_told)
            self.lane.end_iteration(now)
            if self.heard_at:
                self.interval += 0.2 * (now - self.heard_at - self.interval)
            self.reported_at = self.heard_at = now
            self.followed = threading.current_thread()
            self.tells = True
            return observation

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
        """Return whether a loss told in this thread is the job's: one fit is followed at a time."""
        if self.followed is None or self.followed is thread or not self.followed.is_alive():
            return True
        return now - self.heard_at > max(LAPSE, LAPSE_ITERATIONS * self.interval)

    def is_silent(self, now: float) -> bool:
        """Return whether it tells no loss, so that nothing can be forecast of it."""
        if self.began_at is None or (self.followed is not None and self.tells):
            return False
        used = self.lane.slots_by(now) - self.lane.slots_told
        patience = PATIENCE if self.begun or used < SILENCE else SILENCE
        return not self.tells or now - max(self.began_at, self.heard_at) > patience
