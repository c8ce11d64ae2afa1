"""Slots of a Spark application go where they were granted."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slaq import Context
from slaq.engines.spark.shares import Shares
from slaq.spark import SparkCluster
from tests.spark_session import SLOTS, spark

__all__ = ["spark"]

PATIENCE = 240.0


def napping(ctx: Context) -> None:
    """Tasks that hold a slot and no core, so that what else the machine does matters little."""
    iteration = 0
    while True:
        ctx.map(lambda partition: time.sleep(0.05))
        iteration += 1
        ctx.report(1.0 / iteration)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shares", list(Shares))
def test_who_is_granted_more_goes_faster(spark: Any, tmp_path: Path, shares: Shares) -> None:
    """With three times the weight under fair sharing, a job does clearly more of the same iterations."""
    with SparkCluster(spark, "fair", epoch_seconds=0.3, directory=tmp_path, shares=shares) as cluster:
        jobs = [
            cluster.submit_program(
                napping, np.full((4 * SLOTS, 1), weight), partitions=4 * SLOTS, weight=weight
            )
            for weight in (3.0, 1.0)
        ]
        deadline = time.monotonic() + PATIENCE
        while not all(len(job.losses) >= 2 for job in jobs):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        begun = [len(job.losses) for job in jobs]
        while True:
            many, few = (len(job.losses) - before for job, before in zip(jobs, begun, strict=True))
            if many >= 8 and many >= 1.5 * few:
                break
            assert time.monotonic() < deadline, (many, few)
            time.sleep(0.05)
        assert jobs[0].cores == pytest.approx(3 * jobs[1].cores)
        cluster.shutdown(cancel=True)
