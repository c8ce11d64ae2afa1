"""A cluster that runs: its jobs, and the thread in which its scheduler decides; what every cluster rests on."""

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
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from typing_extensions import override

from slaq.core.decision import Decision
from slaq.core.errors import ClusterClosedError, DuplicateJobError
from slaq.core.events import CurveBegan, JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.engines.journal import Ending, Listener
from slaq.handle import Job
from slaq.ports import Clock, Engine, History, Store
from slaq.scheduler import Scheduler

#: The part of an epoch that passes at least between two decisions, however many jobs come and go.
SHORTEST_EPOCH = 0.1

_log = logging.getLogger(__name__)


class LiveEngine(Engine, Protocol):
    """An engine whose jobs can be ended early as completed, and that can be closed."""

    def finish(self, job_id: str, reason: str) -> None:
        """End a job as completed: it has done what was asked."""
        ...

    def close(self) -> None:
        """End every job and leave nothing behind."""
        ...


class LiveStore(Store, History, Protocol):
    """A store that takes jobs while the scheduler runs."""

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        ...


class Live(Protocol):
    """A scheduler at work, and what it is made of."""

    @property
    def scheduler(self) -> Scheduler:
        """The epoch loop."""
        ...

    @property
    def engine(self) -> LiveEngine:
        """What runs the jobs."""
        ...

    @property
    def store(self) -> LiveStore:
        """What keeps them."""
        ...

    @property
    def clock(self) -> Clock:
        """What times them."""
        ...


class RunningCluster(Listener, ABC):
    """Runs jobs, and moves capacity to those that improve most.

    As a context manager it waits for its jobs at the end of the block, and cancels them if the block raises.
    A cluster that is never shut down ends, jobs and all, with the process that made it.
    """

    def __init__(self, epoch_seconds: float) -> None:
        self._epoch_seconds = epoch_seconds
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._inbox: deque[JobSpec] = deque()
        self._woken = threading.Event()
        self._closing = False
        self._broken = ""

    def _home(self, directory: str | os.PathLike[str] | None) -> Path:
        """Return where the jobs' files go: what was asked for, or a folder that vanishes with the cluster."""
        if directory is None:
            directory = tempfile.mkdtemp(prefix="slaq-")
            # Its jobs hold this object: logs can be read for as long as any of them is there.
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        return Path(directory).absolute()

    def _run(self, live: Live) -> None:
        """Begin to decide; called once, by what composes the cluster."""
        self._scheduling = live
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
    def capacity(self) -> int:
        """The units there are in all."""
        return self._scheduling.engine.capacity()

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
        """Decide anew soon, rather than when the epoch is over."""
        self._woken.set()

    # Told by the engine, in its thread.

    @override
    def observed(self, event: LossObserved, metrics: Mapping[str, float]) -> None:
        job = self._jobs[event.job_id]
        was_well = not job.diverged
        job._observe(event.observation, metrics)
        if was_well and job.diverged:
            _log.warning(
                "loss is not finite", extra={"job": job.id, "iteration": event.observation.iteration}
            )

    @override
    def learning_rate_changed(self, event: LearningRateChanged) -> None:
        self._jobs[event.job_id]._bend()

    @override
    def curve_began(self, event: CurveBegan) -> None:
        self._jobs[event.job_id]._begin_curve()

    @override
    def ended(self, event: JobEnded, ending: Ending) -> None:
        self._jobs[event.job_id]._end(ending)
        self.wake()

    # The scheduler's thread.

    def _schedule(self) -> None:
        """Run epochs for as long as there are jobs; a job that comes or goes begins a new one early."""
        live = self._scheduling
        try:
            while not (self._closing and not self._inbox and all(job.done() for job in self.jobs())):
                self._woken.clear()
                decision = self._run_epoch(live)
                if decision is not None:
                    time.sleep(SHORTEST_EPOCH * self._epoch_seconds)
                    self._woken.wait((1 - SHORTEST_EPOCH) * self._epoch_seconds)
                elif not self._inbox and not self._closing:
                    self._woken.wait()
        except BaseException as error:
            self._broken = f"the scheduler failed ({error!r}); this is a defect of slaq"
            raise
        finally:
            self._closing = True
            live.engine.close()
            live.store.append(live.engine.poll())
            while self._inbox:
                lost = Ending(state=JobState.FAILED, reason=self._broken or "the cluster was shut down")
                self._jobs[self._inbox.popleft().id]._end(lost)

    def _run_epoch(self, live: Live) -> Decision | None:
        while self._inbox:
            spec = self._inbox.popleft()
            live.store.submit(spec)
            self._jobs[spec.id]._begin()
        decision = live.scheduler.run_epoch()
        live.scheduler.epoch += 1
        if decision is not None:
            table = zip(decision.ids, decision.units.tolist(), decision.loss.tolist(), strict=True)
            for job_id, units, loss in table:
                job = self._jobs[job_id]
                if job._decide(units, 1.0 - loss):
                    live.engine.finish(job_id, f"it has done {1 - loss:.1%} of its forecast reduction")
                if job._cancelling:
                    live.engine.stop(job_id)
        return decision

    def _register(self, name: str, number: bool, stop_at: float | None, target: float | None) -> Job:
        """Make a handle, under a name no other job has."""
        with self._lock:
            if self._closing:
                raise ClusterClosedError
            job_id, count = (f"{name}-1" if number else name), 1
            while number and job_id in self._jobs:
                count += 1
                job_id = f"{name}-{count}"
            if job_id in self._jobs:
                raise DuplicateJobError(job_id)
            job = self._jobs[job_id] = Job(self, job_id, stop_at, target)
        return job

    def _queue(self, handle: Job, spec: JobSpec, prepare: Callable[[], None]) -> Job:
        """Have the engine prepare for the job and hand it to the scheduler; one that is refused never was."""
        try:
            prepare()
        except BaseException:
            del self._jobs[handle.id]
            raise
        self._inbox.append(replace(spec, arrival=self._scheduling.clock.now()))
        self.wake()
        return handle


def name_of(program: Callable[..., Any]) -> str:
    """Return what to call a job whose owner gave it no name."""
    name = getattr(program, "__name__", type(program).__name__)
    return re.sub(r"\W+", "", name) or "job"


def _close_at_exit(engine: "weakref.ref[Any]", process: int) -> None:
    """End a cluster that its owner forgot; a fork of that process does not own it."""
    live = engine()
    if live is not None and os.getpid() == process:
        live.close()
