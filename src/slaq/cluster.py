"""The embedded cluster: programs and commands on the cores of this machine."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
from typing_extensions import override

from slaq.bootstrap import go_live
from slaq.core.job import JobSpec, Kind
from slaq.engines.files import LOG
from slaq.engines.journal import Runner, Work_contra
from slaq.engines.limits import Goal
from slaq.engines.local.commands import CommandJob
from slaq.engines.local.engine import cores_here, usual_units_per_core
from slaq.engines.local.orders import ProgramJob
from slaq.engines.local.programs import Site
from slaq.engines.processes.records import CommandSpec
from slaq.handle import Job
from slaq.jobs.context import Program
from slaq.jobs.data import Dataset
from slaq.jobs.options import check_options
from slaq.running import RunningCluster, name_of

#: Partitions per core that a job's data is cut into unless told otherwise: short tasks share cores finely.
PARTITIONS_PER_CORE = 4


class Cluster(RunningCluster):
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
        super().__init__(epoch_seconds)
        home = self._home(directory)
        site = Site(
            cores=self.cores,
            units_per_core=self.units_per_core,
            epoch_seconds=epoch_seconds,
            directory=home,
            preload=tuple(preload),
            temporary=directory is None,
            grace_seconds=grace_seconds,
        )
        self._live = go_live(policy, site, self, throttle)
        self._run(self._live)

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
        check_options(
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
        dataset = Dataset.of(data)
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
        handle = self._register(name or name_of(program), name is None, stop_at, target)
        spec = JobSpec(
            id=handle.id,
            weight=weight,
            min_units=min_units,
            max_units=most if max_units is None else min(max_units, most),
            target_loss=target,
        )
        if checkpoint is not None:
            self._live.store.keep_checkpoint(handle.id, kept)
        return self._queue(handle, spec, partial(self._prepare, self._live.programs, handle.id, job))

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
        check_options(
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
        return self._queue(handle, spec, partial(self._prepare, self._live.commands, handle.id, job))

    @override
    def directory_of(self, job_id: str) -> Path:
        return self._live.programs.directory(job_id)

    def _prepare(self, runner: Runner[Work_contra], job_id: str, job: Work_contra) -> None:
        runner.prepare(job_id, job)
        self._live.engine.assign(job_id, runner)


def _command_name(words: Sequence[str]) -> str:
    """Return what to call a command whose owner gave it no name: its script, or its program."""
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return Path(scripts[0] if scripts else words[0] if words else "command").stem
