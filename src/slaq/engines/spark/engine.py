"""The engine of one Spark application: a driver thread and a fair-scheduler pool for each job."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, SparkSessionError, UnknownJobError
from slaq.core.events import Event
from slaq.core.job import JobSpec, JobState
from slaq.engines.files import job_directory, open_log
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.spark.application import PREFIX, Application
from slaq.engines.spark.cache import PartitionCache
from slaq.engines.spark.context import SparkJobContext
from slaq.engines.spark.ending import STOPPED, ending_of, press
from slaq.engines.spark.foreign_pools import ForeignPools
from slaq.engines.spark.log_appender import LogAppender
from slaq.engines.spark.loss_tracker import LossTracker
from slaq.engines.spark.losses import TELLING
from slaq.engines.spark.pool_steering import PoolSteering
from slaq.engines.spark.pools import SparkPool
from slaq.engines.spark.runs import SparkJob, SparkRun
from slaq.engines.spark.shares import Shares
from slaq.engines.spark.stepwise import stepping
from slaq.engines.spark.task_niceness import TaskNiceness
from slaq.engines.spark.usage import Usage
from slaq.jobs.share import Share, tell_share
from slaq.ports import Engine

#: Seconds between two looks at the pools, and at least this many for each job.
TICK, TICK_PER_JOB, TICK_ALONE = 0.05, 0.005, 0.2
#: Seconds between two checks of whether the application still runs, and of its threads.
LOOK_AROUND = 0.5
#: The local property that names the job of a thread; the threads that it starts inherit it.
PROPERTY = "slaq.job"
#: Decimal places of the capacity in slots.
SLOT_DIGITS = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSite:
    """Where and how jobs run on Spark."""

    epoch_seconds: float
    directory: Path
    shares: Shares = Shares.TOKENS
    #: Seconds a job has to end by itself once it was told to.
    grace_seconds: float = 5.0


class SparkEngine(Engine):
    """Many jobs in one Spark application.

    Each job has a thread, in which its work runs, and a pool, whose share follows what the job was granted.
    A job waits where it reports a loss or begins a map while it holds nothing; there nothing of it is under way.
    """

    def __init__(self, application: Application, site: SparkSite, journal: Journal) -> None:
        self._application = application
        self._site = site
        self._journal = journal
        self._prepared: dict[str, SparkJob] = {}
        self._runs: dict[str, SparkRun] = {}
        self._lock = threading.RLock()
        self._usage = Usage(application)
        self._cache = PartitionCache(application.context)
        self._foreign = ForeignPools(application, site.epoch_seconds)
        #: The slots there are, and how many of them can be handed out; 0 until that is known.
        self._slots = 1
        self._capacity = 0.0
        self._looked_around = 0.0
        pid = application.process_of_tasks()
        self._niceness = None if pid is None else TaskNiceness(pid)
        self._steering = PoolSteering(application, site.shares, site.epoch_seconds)
        self._closed = threading.Event()
        self._broken = ""
        tracker = LossTracker(self._run_here)
        #: Functions that restore the application.
        self._undo: list[Callable[[], None]] = [
            # Data is cached everywhere soon, so that waiting for the best place only idles slots.
            application.set_conf("spark.locality.wait", "0s"),
            application.listen(LogAppender(tracker.line), TELLING),
            stepping(tracker.stepper),
            tell_share(self._share_here),
        ]
        site.directory.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._watch, name="slaq-spark", daemon=True)
        self._thread.start()

    def prepare(self, job_id: str, job: SparkJob) -> None:
        """Take what a job does, so that it can be started by its id."""
        if self._broken or self._application.stopped():
            raise SparkSessionError(self._broken or STOPPED, "make a new session, and a new cluster on it")
        if job_id in self._prepared or job_id in self._runs:
            raise DuplicateJobError(job_id)
        self._prepared[job_id] = job

    @override
    def capacity(self) -> float:
        """Return the slots there are now, less the fair share of other work; a slot counts as a core."""
        if not self._broken and not self._closed.is_set():
            with contextlib.suppress(Exception):
                # Before the first executor there is none, and only running something starts one.
                self._slots = max(self._application.slots(), 1)
                due = self._foreign.due(self._slots, len(self._active()))
                slots = max(round(self._slots - due, SLOT_DIGITS), 10.0**-SLOT_DIGITS)
                if slots != self._capacity:
                    self._capacity = slots
                    self._journal.capacity_changed(slots)
        return self._capacity or 1.0

    @override
    def start(self, spec: JobSpec) -> None:
        try:
            job = self._prepared.pop(spec.id)
        except KeyError:
            raise UnknownJobError(spec.id) from None
        directory = job_directory(self._site.directory, spec.id)
        # Unique, because Spark cancels all later jobs of a group that was cancelled.
        group = f"{PREFIX}{uuid4().hex[:8]}:{spec.id}"
        try:
            os.close(open_log(directory, None))
            pool = self._application.make_pool(group)
        except Exception as error:
            reason = self._broken or f"it could not be started: {error}"
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))
            return
        now = time.monotonic()
        run = SparkRun(
            job_id=spec.id,
            job=job,
            directory=directory,
            pool=SparkPool(name=group, handle=pool),
            started_at=now,
            reported_at=now,
            journal=self._journal,
            read_usage=self._read_usage,
        )
        with self._lock:
            self._runs[spec.id] = run
        run.thread = threading.Thread(target=self._drive, args=(run,), name=f"slaq-{spec.id}", daemon=True)
        run.thread.start()

    @override
    def stop(self, job_id: str) -> None:
        self._end_by_id(job_id, JobState.CANCELLED, "stopped on request")

    def finish(self, job_id: str, reason: str) -> None:
        """End a job as completed: it has done what was asked."""
        self._end_by_id(job_id, JobState.COMPLETED, reason)

    def kill(self, job_id: str) -> None:
        """Give up a job at once that was told to end: its thread may go on until it looks at its context."""
        for run in self._active():
            if run.job_id == job_id and run.ending is not None:
                run.ending_at -= 3 * self._site.grace_seconds

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        now = time.monotonic()
        for run in self._active():
            with run.changed:
                run.slots = cores.get(run.job_id, 0.0)
                run.pool.bucket.grant(run.slots, now, self._site.epoch_seconds)
                run.changed.notify_all()
        self._steering.steer([*(run.pool for run in self._active()), *self._foreign.pools])

    @override
    def poll(self) -> Sequence[Event]:
        self._read_usage()
        self._look_for_silence(time.monotonic())
        return [entry.event for entry in self._journal.take()]

    def close(self) -> None:
        """End every job, and restore the application."""
        if self._closed.is_set():
            return
        for run in self._active():
            run.end(JobState.CANCELLED, SHUT_DOWN)
        deadline = time.monotonic() + 3 * self._site.grace_seconds
        for run in self._active():
            if run.thread is not None and run.thread is not threading.current_thread():
                run.thread.join(max(deadline - time.monotonic(), 0.0))
        self._closed.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for run in self._active():
            self._conclude(run, Ending(state=JobState.CANCELLED, reason=run.reason))
        for undo in self._undo:
            # Fails where the application has ended.
            with contextlib.suppress(Exception):
                undo()
        self._foreign.leave()

    def directory(self, job_id: str) -> Path:
        """Return where a job's files are."""
        return job_directory(self._site.directory, job_id)

    def _look_for_silence(self, now: float) -> None:
        """Emit TrainingChanged for jobs that report no loss any more, and for those that do again."""
        for run in self._active():
            was, run.silent = run.silent, run.is_silent(now)
            if was == run.silent or not run.job.trains:
                continue
            self._journal.training_changed(run.job_id, trains=not run.silent)
            # A job that fits an estimator which tells its loss is only slow to begin.
            if run.silent and not (run.begun and run.tells):
                self._tell_silence(run)

    # A job's thread.

    def _drive(self, run: SparkRun) -> None:
        """Run a job's work, and report how it ended."""
        ending = Ending(state=JobState.FAILED, reason="its thread was lost")
        try:
            context = self._application.context
            context.setJobGroup(run.pool.name, run.job_id, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", run.pool.name)
            context.setLocalProperty(PROPERTY, run.job_id)
            run.pass_gate()
            run.began_at = time.monotonic()
            value = run.job.work(self._application.spark, SparkJobContext(run, self._cache))
            ending = Ending(state=run.ending or JobState.COMPLETED, reason=run.reason, result=value)
        except BaseException as error:
            ending = ending_of(run, error, stopped=self._application.stopped())
        finally:
            self._conclude(run, ending)

    def _conclude(self, run: SparkRun, ending: Ending) -> None:
        """Report a job's end, once, and remove its pool and its data."""
        with self._lock:
            if run.ended:
                return
            run.ended = True
            self._runs.pop(run.job_id, None)
        with contextlib.suppress(Exception):
            self._cache.leave(run.job_id, run.job.data, run.job.partitions)
            self._application.remove_pool(run.pool.handle)
        self._journal.used(run.job_id, run.cpu_by(time.monotonic()))
        self._journal.ended(run.job_id, ending)

    def _share_here(self) -> Share | None:
        """Return what the job of this thread holds, for `slaq.share()`."""
        with contextlib.suppress(Exception):
            run = self._run_here()
            return None if run is None else Share(cores=run.slots, workers=run.slots)
        return None

    def _run_here(self) -> SparkRun | None:
        """Return the job that this thread works for, if any."""
        # A job's own thread, or a thread that it has started.
        thread = threading.current_thread()
        for run in self._active():
            if run.thread is thread:
                return run
        job_id = self._application.context.getLocalProperty(PROPERTY)
        with self._lock:
            return self._runs.get(job_id) if job_id else None

    def _tell_silence(self, run: SparkRun) -> None:
        told = run.iteration >= 0
        text = (
            f"tells no loss{' any more' if told else ''}, so it holds its fair share as other work does; "
            "report one with ctx.report to have it compete"
        )
        _log.warning("job %s %s", run.job_id, text, extra={"job": run.job_id})
        run.note(f"slaq: it {text}\n")

    # Ends.

    def _end_by_id(self, job_id: str, state: JobState, reason: str) -> None:
        with self._lock:
            run = self._runs.get(job_id)
        if run is not None:
            run.end(state, reason)

    # The engine's thread.

    def _watch(self) -> None:
        try:
            while not self._closed.wait(self._pause()):
                if not self._runs:
                    continue
                try:
                    self._tick(time.monotonic())
                except Exception:
                    if not self._application.stopped():
                        raise
                    self._lose(STOPPED)
        except BaseException as error:
            self._lose(f"the Spark engine failed ({error!r}); this is a defect of slaq")
            raise

    def _pause(self) -> float:
        """Return how long to wait for the next tick; a job alone needs no exact shares."""
        runs = self._active()
        alone = len(runs) == 1 and runs[0].ending is None
        return TICK_ALONE if alone else max(TICK, TICK_PER_JOB * len(runs))

    def _tick(self, now: float) -> None:
        """Handle what depends on time alone."""
        self._steering.look(self._active(), self._foreign.pools, self._slots, now)
        for run in self._active():
            if run.began_at is not None and (over := run.job.goal.overdue(now - run.began_at)):
                run.end(JobState.COMPLETED, over)
            if run.ending is not None and press(run, self._application, self._site.grace_seconds, now):
                _log.warning("job did not end and was given up", extra={"job": run.job_id})
                self._conclude(run, Ending(state=run.ending, reason=run.reason))
        if now - self._looked_around > LOOK_AROUND:
            self._looked_around = now
            if self._niceness is not None:
                self._niceness.look()
            if self._application.stopped():
                self._lose(STOPPED)

    def _read_usage(self) -> None:
        """Read the CPU seconds that every job's tasks have used."""
        runs = self._active()
        if not runs or self._broken:
            return
        with contextlib.suppress(Exception), self._lock:
            self._usage.read()
            now = time.monotonic()
            for run in runs:
                run.cpu_read = self._usage.cpu_seconds.get(run.pool.name, 0.0)
                run.slots_read = run.pool.slots_by(now)

    def _lose(self, reason: str) -> None:
        """Fail every job, because the application is gone."""
        self._broken = reason
        for run in self._active():
            run.end(JobState.FAILED, reason)
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason))

    def _active(self) -> list[SparkRun]:
        with self._lock:
            return list(self._runs.values())
