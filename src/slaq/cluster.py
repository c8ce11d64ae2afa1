"""What a user of the embedded cluster holds: the cluster itself, and a handle to each job."""

import atexit
import logging
import math
import os
import re
import shutil
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cloudpickle
import numpy as np
from typing_extensions import override

from slaq.bootstrap import Live, go_live
from slaq.core.decision import Decision
from slaq.core.errors import ClusterClosedError, DuplicateJobError, JobFailedError, JobOptionError
from slaq.core.events import JobEnded, LearningRateChanged, LossObserved
from slaq.core.forecast import Forecast, forecast
from slaq.core.gain import HORIZONS
from slaq.core.job import JobSpec, JobState, Kind, Observation
from slaq.core.quality import reduction as reduction_of
from slaq.engines.local.commands import CommandJob
from slaq.engines.local.engine import cores_here, usual_units_per_core
from slaq.engines.local.goals import Goal
from slaq.engines.local.journal import Ending, Listener, Runner, Work_contra
from slaq.engines.local.orders import ProgramJob
from slaq.engines.local.programs import LOG, Site
from slaq.engines.local.tracebacks import unpack_error
from slaq.engines.local.wire import unpack
from slaq.engines.processes.records import CommandSpec
from slaq.jobs.context import Program
from slaq.jobs.data import Dataset
from slaq.ports import History

#: Partitions per core that a job's data is cut into unless told otherwise: short tasks share cores finely.
PARTITIONS_PER_CORE = 4
#: Losses that must be known before a job is ended for having come near its forecast asymptote.
SETTLED = 10
#: The part of an epoch that passes at least between two decisions, however many jobs come and go.
SHORTEST_EPOCH = 0.1

_log = logging.getLogger(__name__)


class Job:
    """One submitted job, in the manner of `concurrent.futures.Future`.

    Its `directory` holds `log.txt`, what its program and tasks printed, and `checkpoint`, what it last kept.
    """

    def __init__(self, cluster: "Cluster", job_id: str, stop_at: float | None, target: float | None) -> None:
        #: What the cluster knows it by.
        self.id = job_id
        self._cluster = cluster
        self._stop_at = stop_at
        self._target = target
        self._changed = threading.Condition()
        self._state = JobState.QUEUED
        self._reason = ""
        self._ending: Ending | None = None
        self._observations: list[Observation] = []
        self._metrics: list[Mapping[str, float]] = []
        self._announced: list[int] = []
        self._units = 0
        self._reduction = 0.0
        #: Decisions in a row that found it good enough.
        self._enough = 0
        self._cancelling = False
        self._callbacks: list[Callable[[Job], object]] = []
        self._final: float | None = None

    @override
    def __repr__(self) -> str:
        return f"<Job {self.id!r} {self._state}, {len(self._observations)} losses>"

    @property
    def name(self) -> str:
        """The name it was given; the same as its id."""
        return self.id

    @property
    def state(self) -> JobState:
        """Where it stands in its life."""
        return self._state

    @property
    def reason(self) -> str:
        """Why it ended, where that was not because its program returned; one sentence."""
        return self._reason

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._cluster.directory_of(self.id)

    @property
    def observations(self) -> list[Observation]:
        """What it has reported so far."""
        return list(self._observations)

    @property
    def losses(self) -> list[float]:
        """Its losses so far; the first is the one before the first iteration."""
        return [observation.loss for observation in self._observations]

    @property
    def metrics(self) -> list[Mapping[str, float]]:
        """What it has reported beside each loss."""
        return list(self._metrics)

    @property
    def diverged(self) -> bool:
        """Whether its last loss was not a finite number; it then holds the least share there is."""
        return bool(self._observations) and not math.isfinite(self._observations[-1].loss)

    @property
    def units(self) -> int:
        """The units it holds now; `Cluster.units_per_core` make a core."""
        return 0 if self.done() else self._units

    @property
    def reduction(self) -> float:
        """The share of its whole fall, from the first loss to its target or to the forecast end, done so far."""
        if not self.done():
            return self._reduction
        if self._final is None:
            self._final = self._measured_reduction()
        return self._final

    def forecast(self, horizons: int | Sequence[int]) -> Forecast:
        """Predict its losses that many iterations ahead."""
        return forecast(self.losses, horizons, announced=self._announced)

    def log(self) -> str:
        """Return what its program and its tasks have printed."""
        try:
            return (self.directory / LOG).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def done(self) -> bool:
        """Return whether it has ended, in whatever way."""
        return self._ending is not None

    def running(self) -> bool:
        """Return whether it was started and has not ended."""
        return self._state is JobState.RUNNING

    def cancelled(self) -> bool:
        """Return whether it was ended before it had done what was asked."""
        return self._state is JobState.CANCELLED

    def cancel(self) -> bool:
        """Ask for its end; return False if it has ended already."""
        if self.done():
            return False
        self._cancelling = True
        self._cluster.wake()
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Return what its program returned, waiting for it.

        Of a job that was ended by `stop_at`, `max_iterations` or `time_budget` it is what the program returned
        after it caught `Cancelled`, or else the state it last gave to `checkpoint`, or None. Raises what the
        program raised, `JobFailedError` where it was lost, `CancelledError` if it was cancelled.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert self._ending is not None
        return None if self._ending.result is None else unpack(self._ending.result)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what its program raised, waiting for its end; None if it completed."""
        ending = self._await_end(timeout)
        if ending.state is JobState.CANCELLED:
            raise CancelledError
        if ending.state is JobState.COMPLETED:
            return None
        if ending.error is not None:
            error, text = unpack_error(ending.error)
            return JobFailedError(self.id, text) if error is None else error
        return JobFailedError(self.id, ending.reason)

    def wait(self, reduction: float | None = None, timeout: float | None = None) -> bool:
        """Wait for its end or, if given, for that share of its whole reduction; return whether it has come."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.done() or (reduction is not None and self._reduction >= reduction), timeout
            )
        return self.done() if reduction is None else self.reduction >= reduction

    def add_done_callback(self, callback: Callable[["Job"], object]) -> None:
        """Call callback(job) once it has ended, in a thread of its own; at once if it has ended already."""
        with self._changed:
            if not self.done():
                self._callbacks.append(callback)
                return
        self._call_back([callback])

    def __iter__(self) -> Iterator[Observation]:
        """Yield its observations from the first, as they come, until it has ended."""
        place = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.done() or len(self._observations) > place)  # noqa: B023
                news = self._observations[place:]
            if not news:
                return
            yield from news
            place += len(news)

    def _await_end(self, timeout: float | None) -> Ending:
        with self._changed:
            if not self._changed.wait_for(self.done, timeout):
                raise TimeoutError(f"job {self.id!r} has not ended within {timeout} seconds")
        assert self._ending is not None
        return self._ending

    def _measured_reduction(self) -> float:
        losses = np.array(self.losses)
        finite = losses[np.isfinite(losses)]
        if len(finite) < 2:
            return 0.0
        best = float(self.forecast(int(HORIZONS[-1])).mean[0]) if self._target is None else self._target
        return float(reduction_of(finite, float(finite[0]), min(best, float(finite.min())))[-1])

    # The cluster calls what follows.

    def _observe(self, observation: Observation, metrics: Mapping[str, float]) -> None:
        with self._changed:
            self._observations.append(observation)
            self._metrics.append(metrics)
            self._changed.notify_all()

    def _bend(self) -> None:
        self._announced.append(len(self._observations))

    def _begin(self) -> None:
        self._state = JobState.RUNNING

    def _decide(self, units: int, reduction: float) -> bool:
        """Take note of a decision; return whether the job has done what was asked."""
        with self._changed:
            self._units, self._reduction = units, reduction
            self._changed.notify_all()
        if self._stop_at is None or self._target is not None:
            return False
        settled = len(self._observations) >= SETTLED
        self._enough = self._enough + 1 if settled and reduction >= self._stop_at else 0
        return self._enough >= 2

    def _end(self, ending: Ending) -> None:
        with self._changed:
            self._state, self._reason, self._ending = ending.state, ending.reason, ending
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        if callbacks:
            self._call_back(callbacks)

    def _call_back(self, callbacks: Sequence[Callable[["Job"], object]]) -> None:
        def call() -> None:
            for callback in callbacks:
                try:
                    callback(self)
                except Exception:
                    _log.exception("callback failed", extra={"job": self.id})

        threading.Thread(target=call, name=f"slaq-callbacks-{self.id}", daemon=True).start()


class Cluster(Listener):
    """Runs training jobs on this machine's cores, and moves the cores to the jobs that improve most.

    As a context manager it waits for its jobs at the end of the block, and cancels them if the block raises.
    A cluster that is never shut down ends, jobs and all, with the process that made it.
    """

    def __init__(  # noqa: PLR0913 (one keyword per thing a user may choose)
        self,
        cores: int | None = None,
        policy: str = "total-quality",
        *,
        epoch_seconds: float = 1.0,
        directory: str | os.PathLike[str] | None = None,
        units_per_core: int | None = None,
        preload: Sequence[str] = (),
        grace_seconds: float = 5.0,
        throttle: str | None = None,
    ) -> None:
        self.cores = cores_here() if cores is None else cores
        if self.cores < 1 or epoch_seconds <= 0 or (units_per_core is not None and units_per_core < 1):
            raise ValueError(
                "a cluster needs at least one core, one unit to a core, and epochs above 0 seconds"
            )
        #: How many units make a core.
        self.units_per_core = units_per_core or usual_units_per_core(self.cores)
        self.policy = policy
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._inbox: deque[JobSpec] = deque()
        self._woken = threading.Event()
        self._closing = False
        temporary = directory is None
        if directory is None:
            directory = tempfile.mkdtemp(prefix="slaq-")
            # Its jobs hold this object: logs can be read for as long as any of them is there.
            weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        site = Site(
            cores=self.cores,
            units_per_core=self.units_per_core,
            epoch_seconds=epoch_seconds,
            directory=Path(directory).absolute(),
            preload=tuple(preload),
            temporary=temporary,
            grace_seconds=grace_seconds,
        )
        self._live = go_live(policy, site, self, throttle)
        self._epoch_seconds = epoch_seconds
        atexit.register(_close_at_exit, weakref.ref(self._live.engine), os.getpid())
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
        return self._live.engine.capacity()

    @property
    def history(self) -> History:
        """All that has happened and been decided, for reports."""
        return self._live.store

    def submit(  # noqa: PLR0913 (one keyword per thing a user may ask for)
        self,
        program: Program,
        data: Any = None,
        *,
        name: str | None = None,
        partitions: int | None = None,
        weight: float = 1.0,
        min_units: int = 0,
        max_units: int | None = None,
        target: float | None = None,
        stop_at: float | None = None,
        max_iterations: int | None = None,
        time_budget: float | None = None,
        max_restarts: int = 2,
        task_timeout: float | None = None,
        memory_limit: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Job:
        """Start a training program beside the jobs there are; return its handle.

        `data` is a Dataset, features, or (features, targets); jobs given the same arrays share one copy of them.
        `target` is the loss you are content with. `stop_at=0.95` ends the job once 95% of the way from its
        first loss to the target, or to where its curve is forecast to end, is done; `max_iterations` and
        `time_budget` (seconds) end it too, as completed. `task_timeout` (seconds) and `memory_limit` (bytes)
        make a task that hangs, or allocates more, fail. `checkpoint` is the file of that name which an
        earlier run of the program left in its directory: the program goes on from there.
        """
        _check(
            weight=weight,
            min_units=min_units,
            max_units=max_units,
            partitions=partitions,
            stop_at=stop_at,
            max_iterations=max_iterations,
            time_budget=time_budget,
            max_restarts=max_restarts,
            task_timeout=task_timeout,
            memory_limit=memory_limit,
        )
        kept = b"" if checkpoint is None else Path(checkpoint).read_bytes()
        dataset = _dataset(data)
        pieces = dataset.count(
            partitions or getattr(program, "partitions", None) or PARTITIONS_PER_CORE * self.cores
        )
        # No job can use more cores than it has tasks at a time.
        most = min(pieces, self.cores) * self.units_per_core
        job = ProgramJob(
            program=cloudpickle.dumps(program, protocol=5),
            data=dataset,
            partitions=pieces,
            max_iterations=max_iterations,
            time_budget=time_budget,
            target=target,
            stop_at=stop_at,
            max_restarts=max_restarts,
            task_timeout=task_timeout,
            memory_limit=memory_limit,
        )
        handle = self._register(name or _name_of(program), name is None, stop_at, target)
        spec = JobSpec(
            id=handle.id,
            weight=weight,
            min_units=min_units,
            max_units=most if max_units is None else min(max_units, most),
            target_loss=target,
        )
        if checkpoint is not None:
            self._live.store.keep_checkpoint(handle.id, kept)
        return self._queue(handle, spec, self._live.programs, job)

    def submit_command(  # noqa: PLR0913 (one keyword per thing a user may ask for)
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        name: str | None = None,
        loss_pattern: str | None = None,
        loss_file: str | os.PathLike[str] | None = None,
        loss_column: str = "loss",
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        weight: float = 1.0,
        min_units: int = 0,
        max_units: int | None = None,
        target: float | None = None,
        stop_at: float | None = None,
        max_iterations: int | None = None,
        time_budget: float | None = None,
        max_restarts: int = 0,
        trains: bool = True,
    ) -> Job:
        """Start any command beside the jobs there are, its whole process tree under its share of the cores.

        Its loss comes from `slaq.report(loss)` inside it, from `loss_pattern`, a regular expression with one
        group over what it prints, or from `loss_file`, a CSV file or JSON Lines that it writes (`loss_column`
        names the column or key). Without `trains` it is other work, held at its fair share. A command that
        fails is run again up to `max_restarts` times; its `result()` is 0, its exit status.
        """
        _check(
            weight=weight,
            min_units=min_units,
            max_units=max_units,
            stop_at=stop_at,
            max_iterations=max_iterations,
            time_budget=time_budget,
            max_restarts=max_restarts,
        )
        words = tuple(os.fspath(word) for word in argv)
        most = self.cores * self.units_per_core
        limit = most if max_units is None else min(max_units, most)
        handle = self._register(name or _command_name(words), name is None, stop_at, target)
        directory = self.directory_of(handle.id)
        command = CommandSpec(
            argv=words,
            directory=directory,
            log=directory / LOG,
            cwd=None if cwd is None else Path(cwd),
            env=dict(env or {}),
            loss_pattern=loss_pattern,
            loss_file=None if loss_file is None else Path(loss_file),
            loss_column=loss_column,
            max_cores=limit / self.units_per_core,
        )
        job = CommandJob(
            command=command,
            goal=Goal(max_iterations=max_iterations, target=target, stop_at=stop_at),
            time_budget=time_budget,
            max_restarts=max_restarts,
        )
        spec = JobSpec(
            id=handle.id,
            kind=Kind.ML if trains else Kind.OTHER,
            weight=weight,
            min_units=min_units,
            max_units=limit,
            target_loss=target,
        )
        return self._queue(handle, spec, self._live.commands, job)

    def _queue(self, handle: Job, spec: JobSpec, runner: Runner[Work_contra], job: Work_contra) -> Job:
        """Hand the job to its runner and to the scheduler; one that its runner refuses never was."""
        try:
            runner.prepare(handle.id, job)
        except BaseException:
            del self._jobs[handle.id]
            raise
        self._live.engine.assign(handle.id, runner)
        self._inbox.append(replace(spec, arrival=self._live.clock.now()))
        self.wake()
        return handle

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

    def directory_of(self, job_id: str) -> Path:
        """Return where a job's files are."""
        return self._live.programs.directory(job_id)

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
    def ended(self, event: JobEnded, ending: Ending) -> None:
        self._jobs[event.job_id]._end(ending)
        self.wake()

    # The scheduler's thread.

    def _schedule(self) -> None:
        """Run epochs for as long as there are jobs; a job that comes or goes begins a new one early."""
        live = self._live
        try:
            while not (self._closing and not self._inbox and all(job.done() for job in self.jobs())):
                self._woken.clear()
                decision = self._run_epoch(live)
                if decision is not None:
                    time.sleep(SHORTEST_EPOCH * self._epoch_seconds)
                    self._woken.wait((1 - SHORTEST_EPOCH) * self._epoch_seconds)
                elif not self._inbox and not self._closing:
                    self._woken.wait()
        finally:
            live.engine.close()
            live.store.append(live.engine.poll())

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


#: What may be given for an option of a job, and how to say so; None is always the absence of a choice.
_OPTIONS: dict[str, tuple[Callable[[float], bool], str]] = {
    "weight": (lambda weight: 0 < weight < math.inf, "a number above 0"),
    "min_units": (lambda units: units >= 0, "0 or more units"),
    "max_units": (lambda units: units >= 1, "1 or more units"),
    "partitions": (lambda count: count >= 1, "1 or more"),
    "stop_at": (
        lambda share: 0 < share <= 1,
        "a share of the reduction, above 0 and at most 1, such as 0.95",
    ),
    "max_iterations": (lambda count: count >= 1, "1 or more"),
    "time_budget": (lambda seconds: seconds > 0, "seconds above 0"),
    "max_restarts": (lambda count: count >= 0, "0 or more"),
    "task_timeout": (lambda seconds: seconds > 0, "seconds above 0"),
    "memory_limit": (lambda size: size > 0, "bytes above 0"),
}


def _check(**options: float | None) -> None:
    """Refuse options that make no sense, before anything is started."""
    for name, value in options.items():
        holds, wanted = _OPTIONS[name]
        if value is not None and not holds(value):
            raise JobOptionError(name, value, wanted)
    least, most = options["min_units"], options["max_units"]
    if least is not None and most is not None and least > most:
        raise JobOptionError("min_units", least, f"at most max_units, which is {most}")


def _dataset(data: Any) -> Dataset:
    """Return what was given as data as a Dataset."""
    if isinstance(data, Dataset):
        return data
    if isinstance(data, tuple):
        return Dataset(*data)
    return Dataset(data)


def _command_name(words: Sequence[str]) -> str:
    """Return what to call a command whose owner gave it no name: its script, or its program."""
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return Path(scripts[0] if scripts else words[0] if words else "command").stem


def _name_of(program: Program) -> str:
    """Return what to call a job whose owner gave it no name."""
    name = getattr(program, "__name__", type(program).__name__)
    return re.sub(r"\W+", "", name) or "job"


def _close_at_exit(engine: "weakref.ref[Any]", process: int) -> None:
    """End a cluster that its owner forgot; a fork of that process does not own it."""
    live = engine()
    if live is not None and os.getpid() == process:
        live.close()
