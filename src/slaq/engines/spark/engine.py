"""The engine of one Spark application: a driver thread and a fair-scheduler pool for each job."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.errors import DuplicateJobError, SparkSessionError, UnknownJobError
from slaq.core.events import Event
from slaq.core.job import JobSpec, JobState
from slaq.engines.files import job_directory, open_log
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.limits import why_enough
from slaq.engines.spark.application import PREFIX, Application
from slaq.engines.spark.cache import PartitionCache
from slaq.engines.spark.context import Desk, SparkJobContext
from slaq.engines.spark.ending import STOPPED, ending_of, press
from slaq.engines.spark.hearing import Hearing, Jobs
from slaq.engines.spark.lanes import Lane
from slaq.engines.spark.listening import Ear
from slaq.engines.spark.losses import TELLING
from slaq.engines.spark.neighbours import Neighbours
from slaq.engines.spark.pacing import Pace
from slaq.engines.spark.priority import Courtesy
from slaq.engines.spark.roster import Nature
from slaq.engines.spark.runs import Run, SparkJob
from slaq.engines.spark.shares import Shares
from slaq.engines.spark.stepwise import stepping
from slaq.engines.spark.usage import Usage
from slaq.jobs.context import Cancelled
from slaq.ports import Engine

#: Seconds between two looks at the pools, and at least this many for each job.
TICK, TICK_PER_JOB, TICK_ALONE = 0.05, 0.005, 0.2
#: Seconds between two looks whether the application is still there, and which threads it has.
LOOK_AROUND = 0.5
#: Names a job in the local properties of its threads, which threads it starts inherit.
PROPERTY = "slaq.job"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSite:
    """Where and how jobs run on Spark."""

    units_per_slot: int
    epoch_seconds: float
    directory: Path
    shares: Shares = Shares.TOKENS
    #: Seconds a job has to end by itself once it was told to.
    grace_seconds: float = 5.0


class SparkEngine(Engine, Desk, Jobs, Nature):
    """Many jobs in one Spark application.

    Each job has a thread, in which its work runs, and a pool, whose share follows what the job was granted.
    A job waits where it reports a loss or begins a map while it holds nothing; there nothing of it is under way.
    """

    def __init__(self, application: Application, site: SparkSite, journal: Journal) -> None:
        self._application = application
        self._site = site
        self._journal = journal
        self._prepared: dict[str, SparkJob] = {}
        self._runs: dict[str, Run] = {}
        self._lock = threading.RLock()
        self._usage = Usage(application)
        self._cache = PartitionCache(application.context)
        self._neighbours = Neighbours(application, site.epoch_seconds)
        #: All that tasks can run on, and the units of those that are ours to hand out.
        self._slots = 1
        self._capacity = -1
        self._looked_around = 0.0
        pid = application.process_of_tasks()
        self._courtesy = None if pid is None else Courtesy(pid)
        self._pace = Pace(application, site.shares, site.epoch_seconds)
        self._closed = threading.Event()
        self._broken = ""
        hearing = Hearing(self)
        #: How to leave the application as it was found.
        self._undo: list[Callable[[], None]] = [
            # With the data cached everywhere in a moment, waiting for the best place only idles slots.
            application.set_conf("spark.locality.wait", "0s"),
            application.listen(Ear(hearing.line), TELLING),
            stepping(hearing.stepper),
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
    def capacity(self) -> int:
        """Return the units of the slots there are now, less what work that is not ours is due."""
        if not self._broken and not self._closed.is_set():
            with contextlib.suppress(Exception):
                # With none, such as before the first executor comes, one is asked for by running something.
                self._slots = max(self._application.slots(), 1)
                due = self._neighbours.due(self._slots, len(self._active()))
                units = max(round((self._slots - due) * self._site.units_per_slot), 1)
                if units != self._capacity:
                    self._capacity = units
                    self._journal.capacity_changed(units)
        return max(self._capacity, 1)

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        try:
            job = self._prepared.pop(spec.id)
        except KeyError:
            raise UnknownJobError(spec.id) from None
        directory = job_directory(self._site.directory, spec.id)
        # Never used twice: Spark cancels whatever comes under the name of a group that was ended.
        group = f"{PREFIX}{uuid4().hex[:8]}:{spec.id}"
        try:
            os.close(open_log(directory, checkpoint))
            pool = self._application.make_pool(group)
        except Exception as error:
            reason = self._broken or f"it could not be started: {error}"
            self._journal.ended(spec.id, Ending(state=JobState.FAILED, reason=reason))
            return
        now = time.monotonic()
        run = Run(
            job_id=spec.id,
            job=job,
            directory=directory,
            lane=Lane(name=group, pool=pool),
            started_at=now,
            reported_at=now,
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

    @override
    def grant(self, allocation: Allocation) -> None:
        granted = allocation.as_dict()
        now = time.monotonic()
        for run in self._active():
            with run.changed:
                run.units = granted.get(run.job_id, 0)
                slots = run.units / self._site.units_per_slot
                run.lane.bucket.grant(slots, now, self._site.epoch_seconds)
                run.changed.notify_all()
        self._pace.steer([*(run.lane for run in self._active()), *self._neighbours.lanes])

    @override
    def poll(self) -> Sequence[Event]:
        self._read_usage()
        return self._journal.take()

    def close(self) -> None:
        """End every job, and leave the application as it was found."""
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
            # In an application that has ended there is nothing to put back.
            with contextlib.suppress(Exception):
                undo()
        self._neighbours.leave()

    def directory(self, job_id: str) -> Path:
        """Return where a job's files are."""
        return job_directory(self._site.directory, job_id)

    @override
    def stretches(self) -> Mapping[str, float]:
        return {run.job_id: run.stretch for run in self._active()}

    @override
    def silent(self) -> frozenset[str]:
        now = time.monotonic()
        quiet = []
        for run in self._active():
            was, run.silent = run.silent, run.is_silent(now)
            if run.silent:
                quiet.append(run.job_id)
                # One that has begun to fit what tells a loss is only slow to begin.
                if not was and not (run.begun and run.tells):
                    self._tell_silence(run)
        return frozenset(quiet)

    # A job's thread.

    def _drive(self, run: Run) -> None:
        """Run a job's work, and tell how it ended."""
        ending = Ending(state=JobState.FAILED, reason="its thread was lost")
        try:
            context = self._application.context
            context.setJobGroup(run.lane.name, run.job_id, interruptOnCancel=True)
            context.setLocalProperty("spark.scheduler.pool", run.lane.name)
            context.setLocalProperty(PROPERTY, run.job_id)
            self.pass_gate(run)
            run.began_at = time.monotonic()
            value = run.job.work(self._application.spark, SparkJobContext(self, run))
            ending = Ending(state=run.ending or JobState.COMPLETED, reason=run.reason, value=value)
        except BaseException as error:
            ending = ending_of(run, error, stopped=self._application.stopped())
        finally:
            self._conclude(run, ending)

    def _conclude(self, run: Run, ending: Ending) -> None:
        """Tell a job's end, once, and take it out of the application."""
        with self._lock:
            if run.ended:
                return
            run.ended = True
            self._runs.pop(run.job_id, None)
        with contextlib.suppress(Exception):
            self._cache.leave(run.job_id, run.job.data, run.job.partitions)
            self._application.remove_pool(run.lane.pool)
        self._journal.ended(run.job_id, ending)

    # What a job's thread asks for.

    @override
    def pass_gate(self, run: Run) -> None:
        with run.changed:
            run.changed.wait_for(lambda: (run.units > 0 and not run.held) or run.ending is not None)
        if run.ending is not None:
            raise Cancelled(run.reason)

    @override
    def report(self, run: Run, loss: float, metrics: dict[str, float]) -> None:
        self._observe(run, loss, metrics)
        if reason := why_enough(run.job, run.iteration, run.first_loss, loss):
            # At its next call of the context, so that it can still keep what this loss is of.
            run.end(JobState.COMPLETED, reason)
        else:
            self.pass_gate(run)

    @override
    def announce(self, run: Run, learning_rate: float) -> None:
        self._journal.learning_rate_changed(run.job_id, learning_rate)

    @override
    def partitions(self, run: Run) -> Any:
        return self._cache.take(run.job_id, run.job.data, run.job.partitions)

    @override
    def workers(self, run: Run) -> float:
        return run.units / self._site.units_per_slot

    @override
    def run_here(self) -> Run | None:
        # A job's own thread, or one that such a thread has started.
        thread = threading.current_thread()
        for run in self._active():
            if run.thread is thread:
                return run
        job_id = self._application.context.getLocalProperty(PROPERTY)
        with self._lock:
            return self._runs.get(job_id) if job_id else None

    @override
    def observe(self, run: Run, loss: float) -> None:
        self._observe(run, loss, {})
        reason = why_enough(run.job, run.iteration, run.first_loss, loss)
        if reason and run.ending is None:
            run.end(JobState.COMPLETED, reason)

    @override
    def begin_curve(self, run: Run) -> None:
        self._journal.curve_began(run.job_id)

    def _observe(self, run: Run, loss: float, metrics: Mapping[str, float]) -> None:
        now = time.monotonic()
        if run.iteration < 0:
            self._read_usage()
        observation = run.observe(loss, now)
        if observation is not None:
            self._journal.observed(run.job_id, observation, metrics)

    def _tell_silence(self, run: Run) -> None:
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
        """Return how long to wait for the next look: one job alone shares with nobody."""
        runs = self._active()
        alone = len(runs) == 1 and runs[0].ending is None
        return TICK_ALONE if alone else max(TICK, TICK_PER_JOB * len(runs))

    def _tick(self, now: float) -> None:
        """Look at all that time alone changes."""
        self._pace.look(self._active(), self._neighbours.lanes, self._slots, now)
        for run in self._active():
            budget = run.job.time_budget
            if budget is not None and run.began_at is not None and now - run.began_at > budget:
                run.end(JobState.COMPLETED, f"its {budget:g} seconds are over")
            if run.ending is not None and press(run, self._application, self._site.grace_seconds, now):
                _log.warning("job did not end and was given up", extra={"job": run.job_id})
                self._conclude(run, Ending(state=run.ending, reason=run.reason))
        if now - self._looked_around > LOOK_AROUND:
            self._looked_around = now
            if self._courtesy is not None:
                self._courtesy.look()
            if self._application.stopped():
                self._lose(STOPPED)

    def _read_usage(self) -> None:
        """Learn what CPU every job's tasks have used."""
        runs = self._active()
        if not runs or self._broken:
            return
        with contextlib.suppress(Exception), self._lock:
            self._usage.read()
            now = time.monotonic()
            for run in runs:
                run.cpu_read = self._usage.cpu_seconds.get(run.lane.name, 0.0)
                run.slots_read = run.lane.slots_by(now)

    def _lose(self, reason: str) -> None:
        """Fail every job: there is nothing left to run them on."""
        self._broken = reason
        for run in self._active():
            run.end(JobState.FAILED, reason)
            self._conclude(run, Ending(state=JobState.FAILED, reason=reason))

    def _active(self) -> list[Run]:
        with self._lock:
            return list(self._runs.values())
