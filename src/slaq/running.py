"""The base of all embedded clusters: jobs and the scheduler thread."""

import atexit
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from slaq.bootstrap import Live
from slaq.core.decision import Decision
from slaq.core.errors import ClusterClosedError, DuplicateJobError, JobOptionError, UnknownJobError
from slaq.core.events import (
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    Event,
    JobDelayed,
    JobEnded,
    LearningRateChanged,
    LossObserved,
)
from slaq.core.job import JobSpec, JobState
from slaq.engines.journal import Ending, Listener
from slaq.handle import Job
from slaq.jobs.option_types import shown
from slaq.jobs.options import JobOptions, check_search
from slaq.jobs.specs import spec_of
from slaq.ports import History, LiveEngine

_log = logging.getLogger(__name__)


class RunningCluster(Listener, ABC):
    """Runs jobs, and moves capacity to those that improve most.

    As a context manager it waits for its jobs at the end of the block, and cancels them if the block raises.
    A cluster that is never shut down ends, jobs and all, with the process that made it.
    """

    def __init__(self, epoch_seconds: float) -> None:
        self._epoch_seconds = epoch_seconds
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._broken = ""

    def _home(self, directory: str | os.PathLike[str] | None) -> Path:
        """Return the folder of the jobs' files: the given one, or one that is deleted with the cluster."""
        if directory is None:
            directory = tempfile.mkdtemp(prefix="slaq-")
            # Its jobs hold this object: logs can be read for as long as any of them is there.
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return Path(directory).absolute()

    def _run(self, live: Live[LiveEngine]) -> None:
        """Start the scheduler's thread."""
        self._scheduling = live
        live.scheduler.admission.ended = lambda job_id: self._jobs[job_id].state
        atexit.register(_close_at_exit, weakref.ref(live.engine), os.getpid())
        self._thread = threading.Thread(target=self._schedule, name="slaq-scheduler", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel=kind is not None)

    @property
    def capacity(self) -> float:
        """The cores there are in all; once the cluster has ended, those of its last decision."""
        ended = not self._thread.is_alive() and self.history.decisions()
        return ended[-1].capacity if ended else self._scheduling.engine.capacity()

    @property
    def history(self) -> History:
        """All that has happened and been decided, for reports."""
        return self._scheduling.store

    def jobs(self) -> list[Job]:
        """Return every job submitted so far, in that order."""
        return list(self._jobs.values())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every job has ended; return whether all have."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self.jobs():
            if not job.wait(timeout=None if deadline is None else max(deadline - time.monotonic(), 0.0)):
                return False
        return True

    def shutdown(self, wait: bool = True, *, cancel: bool = False) -> None:
        """Take no more jobs, and end when all have ended, which is at once if they are cancelled.

        Without `wait` it returns at once, and the cluster ends by itself.
        """
        self._closing = True
        if cancel:
            for job in self.jobs():
                job.cancel()
        self.wake()
        if wait:
            self._thread.join()

    @abstractmethod
    def directory_of(self, job_id: str) -> Path:
        """Return where a job's files are."""

    def wake(self) -> None:
        """Make the next decision soon, before the epoch is over."""
        self._scheduling.clock.wake()

    # Called by the engine, in its threads.

    @override
    def happened(self, event: Event, ending: Ending | None) -> None:
        if isinstance(event, LossObserved):
            self._observed(event)
        elif isinstance(event, LearningRateChanged):
            self._jobs[event.job_id]._bend()
        elif isinstance(event, CurveBegan):
            self._jobs[event.job_id]._begin_curve()
        elif isinstance(event, DemandChanged):
            self._jobs[event.job_id]._say(event.demand)
        elif isinstance(event, EndForeseen):
            self._jobs[event.job_id]._foresee(event.iterations)
        elif isinstance(event, CpuUsed):
            self._jobs[event.job_id]._use(event.cpu_seconds)
        elif isinstance(event, JobDelayed):
            self._jobs[event.job_id]._delay(event.sentence)
        elif isinstance(event, JobEnded) and ending is not None:
            beaten = self._scheduling.scheduler.beaten.get(event.job_id)
            if beaten is not None and ending.state is JobState.CANCELLED:
                ending = replace(ending, state=JobState.BEATEN, reason=beaten)
            self._jobs[event.job_id]._end(ending)
            self.wake()

    def _observed(self, event: LossObserved) -> None:
        job = self._jobs[event.job_id]
        was_well = not job.diverged
        job._observe(event.observation, event.metrics)
        if was_well and job.diverged:
            _log.warning(
                "loss is not finite", extra={"job": job.id, "iteration": event.observation.iteration}
            )

    # The scheduler's thread.

    def _schedule(self) -> None:
        """Run epochs until the cluster is closed and every job has ended."""
        live = self._scheduling
        try:
            for decision in live.scheduler.epochs(self._over):
                self._take(decision)
        except BaseException as error:
            self._broken = f"the scheduler failed ({error!r}); this is a defect of slaq"
            raise
        finally:
            self._closing = True
            try:
                live.engine.close()
                live.store.append(live.engine.poll())
            finally:
                self._end_queued(JobState.FAILED, self._broken or "the cluster was shut down", self.jobs())

    def _over(self) -> bool:
        return self._closing and all(job.done() for job in self.jobs())

    def _take(self, decision: Decision | None) -> None:
        """Pass a decision on to the jobs, and end those that reached `stop_at` or were cancelled."""
        engine = self._scheduling.engine
        for job_id, reason in self._scheduling.scheduler.held().items():
            self._jobs[job_id]._wait(reason)
        for job_id, reason in self._scheduling.scheduler.review.refused.items():
            self._jobs[job_id]._end(Ending(state=JobState.CANCELLED, reason=reason))
        rows = () if decision is None else zip(decision.ids, decision.cores, decision.made, strict=True)
        for job_id, cores, made in rows:
            if self._jobs[job_id]._decide(float(cores), float(made)):
                engine.finish(job_id, f"it has done {made:.1%} of its forecast reduction")
        cancelling = [job for job in self.jobs() if job._cancelling and not job.done()]
        self._end_queued(JobState.CANCELLED, "", cancelling)
        for job in cancelling:
            engine.stop(job.id)
            if job._killing:
                engine.kill(job.id)

    def _end_queued(self, state: JobState, reason: str, jobs: list[Job]) -> None:
        """End those of the jobs that have not been started."""
        for job in jobs:
            if self._scheduling.store.withdraw(job.id):
                job._end(Ending(state=state, reason=reason))

    def _submit(
        self,
        asked: JobOptions,
        usual_name: str,
        prepare: Callable[[JobSpec], None],
        ceiling: float | None = None,
    ) -> Job:
        """Prepare the engine for a job with these options and queue the job; a refused job leaves nothing behind.

        `ceiling` is how many cores the job could use at most; None for no such limit.
        """
        handle = self._register(asked, usual_name)
        clock = self._scheduling.clock
        spec = spec_of(asked, handle.id, now=clock.now(), ceiling=ceiling)
        try:
            prepare(spec)
        except BaseException:
            del self._jobs[handle.id]
            raise
        # Preparing may take a while: time counts from when the job can start.
        self._scheduling.store.submit(replace(spec, arrival=clock.now() + asked["arrival"]))
        self.wake()
        return handle

    def _register(self, asked: JobOptions, usual_name: str) -> Job:
        """Make a handle, under the name that its owner gave or under a numbered one."""
        with self._lock:
            if self._closing:
                raise ClusterClosedError
            for awaited in (*asked["after"], *asked["after_any"]):
                if awaited not in self._jobs:
                    raise UnknownJobError(awaited)
            check_search(asked, (job.asked for job in self._jobs.values() if not job.done()))
            numbered = (f"{usual_name}-{number}" for number in count(1))
            job_id = asked["name"] or next(name for name in numbered if name not in self._jobs)
            if job_id in self._jobs:
                raise DuplicateJobError(job_id)
            job = self._jobs[job_id] = Job(self, job_id, asked)
        return job


def check_program(program: object) -> None:
    """Raise JobOptionError for what is no training program."""
    if not callable(program):
        raise JobOptionError(
            "program", shown(program), "a function or an algorithm that takes a context, as in train(ctx)"
        )


def name_of(program: Callable[..., Any]) -> str:
    """Return the default name of a job."""
    name = getattr(program, "__name__", type(program).__name__)
    return re.sub(r"\W+", "", name) or "job"


def _close_at_exit(engine: "weakref.ref[Any]", process: int) -> None:
    """Close a cluster that was never shut down; not in forks."""
    live = engine()
    if live is not None and os.getpid() == process:
        live.close()
