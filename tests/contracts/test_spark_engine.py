"""The engine of a Spark application keeps the engine contract."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.spark.application import Application
from slaq.engines.spark.engine import SparkEngine, SparkSite
from slaq.engines.spark.runs import SparkJob
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset
from slaq.testing import Bench, EngineContract
from tests.spark_session import spark

__all__ = ["spark"]


def halving(_: Any, ctx: Context) -> str:
    """Halve the loss a few times, and run a task on Spark before each."""
    loss = 1.0
    ctx.map(len)
    ctx.report(loss)
    for _ in range(8):
        time.sleep(0.15)
        loss /= 2
        ctx.report(loss)
    return "done"


# Starting a session on a busy machine takes its time.
pytestmark = pytest.mark.timeout(300)


class TestSparkEngine(EngineContract):
    @pytest.fixture
    @override
    def bench(self, spark: Any, tmp_path: Path) -> Iterator[Bench]:
        clock = WallClock()
        site = SparkSite(epoch_seconds=0.2, directory=tmp_path)
        engine = SparkEngine(Application(spark), site, Journal(clock))
        specs = [JobSpec(id=name) for name in ("one", "two", "three")]
        for spec in specs:
            engine.prepare(spec.id, SparkJob(work=halving, data=Dataset()))
        yield Bench(engine=engine, clock=clock, specs=specs, step=0.4, patience=120.0)
        engine.close()
