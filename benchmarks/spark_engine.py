"""How exactly slots are shared on Spark, and what scheduling costs: `python -m benchmarks.spark_engine`.

All figures are ratios within one run; `python -m replication --only spark_contention` compares policies.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from slaq.core.allocation import Allocation
from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.spark.application import Application
from slaq.engines.spark.engine import SparkEngine, SparkSite
from slaq.engines.spark.runs import SparkJob
from slaq.engines.spark.shares import Shares
from slaq.jobs.data import Dataset
from slaq.spark import SparkCluster, session

SLOTS, PARTITIONS_PER_SLOT, FEATURES = 8, 4, 40
#: Targets in slots, one after another.
TARGETS = ({"a": 5, "b": 2, "c": 1}, {"a": 1, "b": 2, "c": 5})
#: Seconds that a change of targets is given before it is measured.
SETTLING = 4.0


def made_up(spark: Any, rows: int) -> Any:
    """Return labelled rows, cached in several partitions for each slot."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as sql

    columns = [sql.randn(seed=place) for place in range(FEATURES)]
    label = sum(columns[:9], sql.lit(0.0)) + 3 * sql.randn(seed=99) > 0
    frame = spark.range(0, rows, 1, SLOTS * PARTITIONS_PER_SLOT).select(
        array_to_vector(sql.array(*columns)).alias("features"), label.cast("double").alias("label")
    )
    frame = frame.cache()
    frame.count()
    return frame


def endless(frame: Any) -> Callable[[Any, Any], Any]:
    """Return work that iterates for as long as it is let."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier

    estimator = MultilayerPerceptronClassifier(layers=[FEATURES, 12, 2], maxIter=100_000, tol=0.0, seed=1)
    return lambda spark, ctx: estimator.fit(frame)


@contextmanager
def engine_of(application: Application, how: Shares) -> Iterator[SparkEngine]:
    """An engine without a scheduler: grants are given by hand."""
    with tempfile.TemporaryDirectory() as folder:
        site = SparkSite(units_per_slot=8, epoch_seconds=1.0, directory=Path(folder), shares=how)
        engine = SparkEngine(application, site, Journal(WallClock()))
        try:
            yield engine
        finally:
            engine.close()


def slots(units: dict[str, int]) -> Allocation:
    """Return an allocation of whole slots."""
    return Allocation(ids=tuple(units), units=np.array(list(units.values())) * 8, credit=np.zeros(len(units)))


def delivered(
    application: Application, names: dict[str, str], seconds: float
) -> tuple[dict[str, float], float]:
    """Watch the pools for a while: mean slots held by each job, and the share of moments with an idle slot's worth.

    Looked at from outside the engine, fifty times a second.
    """
    pools = {pool.name(): pool for pool in application.root.schedulableQueue().toArray()}
    held = dict.fromkeys(names, 0.0)
    looks, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for job, pool in names.items():
            held[job] += pools[pool].runningTasks()
        looks += 1
        time.sleep(0.02)
    means = {job: total / looks for job, total in held.items()}
    return means, 1 - sum(means.values()) / SLOTS


def shares(spark: Any, frame: Any, how: Shares, seconds: float) -> None:
    """Print what was delivered against 5:2:1 and, after a change, 1:2:5."""
    application = Application(spark)
    with engine_of(application, how) as engine:
        for job in TARGETS[0]:
            engine.prepare(job, SparkJob(work=endless(frame), data=Dataset()))
            engine.start(JobSpec(id=job), None)
        for target in TARGETS:
            engine.grant(slots(target))
            time.sleep(SETTLING)
            names = {run.job_id: run.group for run in engine._active()}
            means, idle = delivered(application, names, seconds)
            engine.poll()
            told = ", ".join(f"{job} {means[job]:.2f} of {target[job]}" for job in target)
            worst = max(abs(means[job] / target[job] - 1) for job in target)
            print(f"{how}: delivered {told}; worst off by {worst:.0%}; idle {idle:.1%}", flush=True)


def reaction(spark: Any, frame: Any) -> None:
    """Print how long a job that was granted everything takes to hold most slots."""
    application = Application(spark)
    with engine_of(application, Shares.TOKENS) as engine:
        for job in ("a", "b"):
            engine.prepare(job, SparkJob(work=endless(frame), data=Dataset()))
            engine.start(JobSpec(id=job), None)
        took = []
        for turn in range(6):
            favoured = "ab"[turn % 2]
            engine.grant(slots({"a": 7, "b": 1} if favoured == "a" else {"a": 1, "b": 7}))
            began = time.monotonic()
            pool = next(run.pool for run in engine._active() if run.job_id == favoured)
            while pool.runningTasks() < SLOTS // 2 and time.monotonic() - began < 10:
                time.sleep(0.005)
            took.append(time.monotonic() - began)
            time.sleep(2.0)
        print(
            f"a change of grants is in force after {median(took):.2f} s (median of {len(took)})", flush=True
        )


def overhead(spark: Any, frame: Any, rounds: int) -> None:
    """Print how much longer one fit alone takes under the cluster than by itself, in turns."""
    from pyspark.ml.classification import LogisticRegression

    def fit(_: Any = None) -> Any:
        return LogisticRegression(maxIter=20, tol=0.0, regParam=0.01).fit(frame)

    fit()
    alone, under = [], []
    for _ in range(rounds):
        began = time.monotonic()
        fit()
        alone.append(time.monotonic() - began)
        with SparkCluster(spark) as cluster:
            began = time.monotonic()
            cluster.submit(fit).result()
            under.append(time.monotonic() - began)
    change = median(under) / median(alone) - 1
    print(f"one fit alone: {median(alone):.2f} s, under the cluster {median(under):.2f} s, {change:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data and short looks")
    options = parser.parse_args()
    spark = session(f"local[{SLOTS}]", name="spark_engine", settings={"spark.driver.memory": "2g"})
    try:
        frame = made_up(spark, 20_000 if options.quick else 200_000)
        for how in Shares:
            shares(spark, frame, how, 5.0 if options.quick else 20.0)
        reaction(spark, frame)
        overhead(spark, frame, 2 if options.quick else 7)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
