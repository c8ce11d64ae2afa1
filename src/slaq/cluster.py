"""The embedded cluster: programs and commands on the cores of this machine."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import cloudpickle
from typing_extensions import override

from slaq.bootstrap import go_live, make_engine, name_of_policy
from slaq.core.allocation import Policy
from slaq.core.appraisal import usual_units_per_core
from slaq.core.job import JobSpec
from slaq.engines import checkpoints
from slaq.engines.files import LOG, job_directory
from slaq.engines.goals import Goal
from slaq.engines.journal import Journal
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.engines.processes import cores_here
from slaq.handle import Job
from slaq.jobs.context import Program
from slaq.jobs.data import Dataset
from slaq.jobs.executable import check_script
from slaq.jobs.options import (
    CLUSTER,
    COMMAND,
    PROGRAM,
    CommandOptions,
    ProgramOptions,
    losses_are_searched,
    waits,
)
from slaq.ports import LiveEngine
from slaq.running import RunningCluster, check_program, name_of

#: Starts an engine at a site; what happens to its jobs goes into the journal.
EngineMaker = Callable[[Site, Journal], LiveEngine]

#: Partitions per core that a job's data is cut into unless told otherwise: short tasks share cores finely.
PARTITIONS_PER_CORE = 4


class Cluster(RunningCluster):
    """Runs training jobs on this machine's cores, and moves the cores to the jobs that improve most.

    The policy is a name or an object, the engine a name or a function that starts one. As a context manager it
    waits for its jobs at the end of the block, and cancels them if the block raises. A cluster that is never shut
    down ends, jobs and all, with the process that made it.
    """

    def __init__(  # noqa: PLR0913 (one keyword per thing a user may choose)
        self,
        cores: int | None = None,
        policy: str | Policy = "total-quality",
        *,
        epoch_seconds: float = 1.0,
        directory: str | os.PathLike[str] | None = None,
        units_per_core: int | None = None,
        concurrent: int | None = None,
        preload: Sequence[str] = (),
        grace_seconds: float = 5.0,
        throttle: str | None = None,
        engine: str | EngineMaker = "local",
    ) -> None:
        asked = CLUSTER.complete(
            {
                "cores": cores,
                "units_per_core": units_per_core,
                "epoch_seconds": epoch_seconds,
                "concurrent": concurrent,
            }
        )
        epoch_seconds = asked["epoch_seconds"]
        self.cores = asked["cores"] or cores_here()
        #: How many units make a core.
        self.units_per_core = asked["units_per_core"] or usual_units_per_core(self.cores)
        #: The name of the policy.
        self.policy = name_of_policy(policy)
        super().__init__(epoch_seconds)
        self._directory = self._home(directory)
        site = Site(
            cores=self.cores,
            epoch_seconds=epoch_seconds,
            directory=self._directory,
            preload=tuple(preload),
            temporary=directory is None,
            grace_seconds=grace_seconds,
            throttle=throttle,
        )
        chosen = partial(make_engine, engine) if isinstance(engine, str) else engine
        self._live = go_live(
            policy,
            partial(chosen, site),
            self,
            epoch_seconds=epoch_seconds,
            units_per_core=self.units_per_core,
            concurrent=asked["concurrent"],
        )
        self._run(self._live)

    @PROGRAM.takes
    def submit(self, program: Program, data: Any = None, **options: Unpack[ProgramOptions]) -> Job:
        """Start a training program beside the jobs there are; return its handle.

        `data` is a Dataset, features, or (features, targets); jobs given the same arrays share one copy of them.
        docs/options.md describes the options.
        """
        check_program(program)
        asked = PROGRAM.complete(options)
        dataset = Dataset.of(data)
        pieces = dataset.count(
            asked["partitions"] or getattr(program, "partitions", None) or PARTITIONS_PER_CORE * self.cores
        )
        checkpoint = asked["checkpoint"]
        job = ProgramJob(
            program=cloudpickle.dumps(program, protocol=5),
            data=dataset,
            partitions=pieces,
            goal=Goal.asked(asked),
            retry=asked["retry"],
            task_timeout=asked["task_timeout"],
            memory=asked["memory"],
            checkpoint=None if checkpoint is None else bytes(checkpoints.read_own(Path(checkpoint))),
        )
        # No job can use more cores than it has tasks at a time. One without data that says how many it can use has
        # processes of its own, as an elastic training.
        alone = data is None and asked["max_cores"] is not None
        ceiling = self.cores if alone else min(pieces, self.cores)
        prepare = self._live.engine.prepare
        return self._submit(asked, name_of(program), lambda spec: prepare(spec.id, job), ceiling)

    @COMMAND.takes
    def submit_command(
        self, argv: Sequence[str | os.PathLike[str]], **options: Unpack[CommandOptions]
    ) -> Job:
        """Start any command beside the jobs there are, its whole process tree under its share of the cores.

        Its loss comes from `slaq.report(loss)` inside it, from `loss_pattern`, a regular expression with one
        group over what it prints, or from `loss_file`, a CSV file or JSON Lines that it writes (`loss_column`
        names the column or key). Its `result()` is 0, its exit status. docs/options.md describes the options.
        """
        asked = COMMAND.complete(options)
        words = tuple(os.fspath(word) for word in argv)
        if not waits(asked):
            check_script(words, Path.cwd() / (asked["cwd"] or ""))

        def prepare(spec: JobSpec) -> None:
            directory = self.directory_of(spec.id)
            command = CommandSpec(
                argv=words,
                directory=directory,
                log=directory / LOG,
                cwd=None if asked["cwd"] is None else Path(asked["cwd"]),
                env=asked["env"],
                loss_pattern=asked["loss_pattern"],
                loss_file=None if asked["loss_file"] is None else Path(asked["loss_file"]),
                loss_column=asked["loss_column"],
                max_cores=asked["max_cores"],
                threads=asked["threads"],
                memory=asked["memory"],
                search=losses_are_searched(asked),
                loss_series=asked["loss"],
                trains=asked["trains"],
                grace=asked["grace"],
            )
            job = CommandJob(command=command, goal=Goal.asked(asked), retry=asked["retry"])
            self._live.engine.prepare(spec.id, job)

        return self._submit(asked, _command_name(words), prepare, self.cores)

    @override
    def directory_of(self, job_id: str) -> Path:
        return job_directory(self._directory, job_id)


def _command_name(words: Sequence[str]) -> str:
    """Return what to call a command whose owner gave it no name: its script, or its program."""
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return Path(scripts[0] if scripts else words[0] if words else "command").stem
