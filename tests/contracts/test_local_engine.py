"""The laws of engines, run on the engine of one machine, whose node is in this process or in a child process."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest
from typing_extensions import override

from slaq.core.errors import UnknownNameError
from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.files import LOG, job_directory
from slaq.engines.journal import Journal
from slaq.engines.local.engine import LocalEngine
from slaq.engines.node.child import ChildNode
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.node import Node, make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset, Partition
from slaq.testing import Bench, EngineContract

#: A job lasts many steps, so that it is still there when a test looks at it.
ITERATIONS, SECONDS = 40, 0.05


def maps(ctx: Context) -> None:
    """Run each iteration as a task on a worker."""

    def work(_: Partition) -> None:
        time.sleep(SECONDS)

    for number in range(ITERATIONS):
        ctx.report(1.0 / (1 + number))
        ctx.map(work)


def drives(ctx: Context) -> None:
    """Run each iteration in the driver."""
    for number in range(ITERATIONS):
        ctx.report(1.0 / (1 + number))
        time.sleep(SECONDS)


SCRIPT = f"""
import os, slaq, time
print(os.getppid(), flush=True)
for number in range({ITERATIONS}):
    slaq.report(1.0 / (1 + number))
    time.sleep({SECONDS})
"""


def program(work: Callable[[Context], None], _: Path) -> ProgramJob:
    return ProgramJob(program=cloudpickle.dumps(work), data=Dataset(), partitions=1)


def command(_: Callable[[Context], None], directory: Path) -> CommandJob:
    return CommandJob(
        command=CommandSpec(
            argv=(sys.executable, "-c", SCRIPT),
            directory=directory,
            log=directory / LOG,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
    )


NODES = pytest.mark.parametrize("node", [make_node, ChildNode], ids=["called directly", "in a child process"])


@NODES
def test_work_that_a_node_cannot_run_is_refused(
    node: Callable[[Site, Journal], Node], tmp_path: Path
) -> None:
    """Preparing work of an unknown kind raises a sentence that lists the known kinds; the id stays free."""
    engine = LocalEngine(node(Site(cores=1, epoch_seconds=0.5, directory=tmp_path), Journal(WallClock())))
    try:
        with pytest.raises(
            UnknownNameError, match=r"no kind of work .* 'dict'.*known: CommandJob, ProgramJob"
        ):
            engine.prepare("a", {})
        engine.prepare("a", program(maps, tmp_path))
    finally:
        engine.close()


@pytest.mark.parametrize("kind", [program, command])
@NODES
class TestLocalEngine(EngineContract):
    @pytest.fixture
    @override
    def bench(
        self,
        node: Callable[[Site, Journal], Node],
        kind: Callable[[Callable[[Context], None], Path], ProgramJob | CommandJob],
        tmp_path: Path,
    ) -> Iterator[Bench]:
        clock = WallClock()
        site = Site(cores=3, epoch_seconds=0.5, directory=tmp_path)
        engine = LocalEngine(node(site, Journal(clock)))
        specs = [JobSpec(id=name) for name in ("one", "two", "three")]
        for spec, work in zip(specs, (maps, drives, maps), strict=True):
            engine.prepare(spec.id, kind(work, job_directory(tmp_path, spec.id)))
        # The losses of a command are looked for ten times a second.
        step = 0.4 if kind is command else 0.15

        def lose() -> None:
            """Kill the process that supervises the commands, which each of them printed first."""
            printed = (job_directory(tmp_path, specs[0].id) / LOG).read_text()
            os.kill(int(printed.split()[0]), signal.SIGKILL)

        yield Bench(
            engine=engine,
            clock=clock,
            specs=specs,
            step=step,
            patience=60.0,
            lose=lose if kind is command else None,
        )
        engine.close()
