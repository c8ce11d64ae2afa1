"""The engine of one machine keeps the engine contract."""

import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from typing_extensions import override

from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.local.engine import LocalEngine
from slaq.engines.local.orders import ProgramJob
from slaq.engines.local.programs import Programs, Site
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset, Partition
from tests.contracts.engine_contract import Bench, EngineContract

#: A job lasts many steps, so that it is still there when a test looks at it.
ITERATIONS, SECONDS = 40, 0.05


def maps(ctx: Context) -> None:
    """Iterate in tasks."""

    def work(_: Partition) -> None:
        time.sleep(SECONDS)

    for number in range(ITERATIONS):
        ctx.report(1.0 / (1 + number))
        ctx.map(work)


def drives(ctx: Context) -> None:
    """Iterate in the driver alone."""
    for number in range(ITERATIONS):
        ctx.report(1.0 / (1 + number))
        time.sleep(SECONDS)


class TestLocalEngine(EngineContract):
    @pytest.fixture
    @override
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        clock = WallClock()
        journal = Journal(clock)
        programs = Programs(Site(cores=3, units_per_core=4, epoch_seconds=0.5, directory=tmp_path), journal)
        engine = LocalEngine(journal, [programs], 12)
        specs = [JobSpec(id=name) for name in ("one", "two", "three")]
        for spec, program in zip(specs, (maps, drives, maps), strict=True):
            job = ProgramJob(program=cloudpickle.dumps(program), data=Dataset(), partitions=1)
            programs.prepare(spec.id, job)
            engine.assign(spec.id, programs)
        yield Bench(engine=engine, clock=clock, specs=specs, step=0.15, patience=60.0)
        engine.close()
