"""How exactly slots are shared on Spark, and what scheduling costs: `python -m benchmarks.spark_engine`.

All figures are ratios within one run; `python -m replication --only spark_contention` compares policies.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from slaq.core.job import JobSpec
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.spark.application import Application
from slaq.engines.spark.engine import SparkEngine, SparkSite
from slaq.engines.spark.runs import SparkJob
from slaq.engines.spark.shares import Shares
from slaq.jobs.data import Dataset
from slaq.spark import SparkCluster, session

SLOTS, PARTITIONS_PER_SLOT, FEATURES = 8, 6, 40
#: Rows that make an iteration on five slots last about a second, and fewer, where what lies between two stages
#: weighs more.
ROWS, FEW_ROWS = 1_000_000, 200_000
#: Targets in slots, one after another.
TARGETS = ({"a": 5, "b": 2, "c": 1}, {"a": 1, "b": 2, "c": 5})
#: Seconds to an epoch.
EPOCH = 1.0


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


def perceptron(iterations: int) -> Any:
    """Return the estimator that shares are measured with."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier

    return MultilayerPerceptronClassifier(layers=[FEATURES, 12, 2], maxIter=iterations, tol=0.0, seed=1)


def endless(frame: Any) -> Callable[[Any, Any], Any]:
    """Return work that iterates for as long as it is let."""
    return lambda spark, ctx: perceptron(100_000).fit(frame)


@contextmanager
def engine_of(application: Application, how: Shares) -> Iterator[SparkEngine]:
    """An engine without a scheduler: grants are given by hand."""
    with tempfile.TemporaryDirectory() as folder:
        site = SparkSite(epoch_seconds=EPOCH, directory=Path(folder), shares=how)
        engine = SparkEngine(application, site, Journal(WallClock()))
        try:
            yield engine
        finally:
            engine.close()


def delivered(engine: SparkEngine, pools: dict[str, Any], seconds: float) -> tuple[dict[str, float], float]:
    """Watch pools for a while: the mean slots that each held, and the part of all slots that idled.

    Looked at from outside the engine, fifty times a second.
    """
    held = dict.fromkeys(pools, 0.0)
    looks, now = 0, time.monotonic()
    end, epoch = now + seconds, now
    while (now := time.monotonic()) < end:
        if now >= epoch:
            # As a scheduler does.
            engine.capacity()
            engine.poll()
            epoch = now + EPOCH
        for name, pool in pools.items():
            held[name] += pool.runningTasks()
        looks += 1
        time.sleep(0.02)
    means = {name: total / looks for name, total in held.items()}
    return means, 1 - sum(means.values()) / SLOTS


def begin(engine: SparkEngine, jobs: Iterable[str], frame: Any) -> dict[str, Any]:
    """Start jobs that never end; return their pools."""
    for job in jobs:
        engine.prepare(job, SparkJob(work=endless(frame), data=Dataset()))
        engine.start(JobSpec(id=job))
    return {run.job_id: run.pool.pool for run in engine._active()}


def tell(title: str, means: dict[str, float], target: Mapping[str, float], idle: float) -> None:
    """Print what was delivered beside what was due."""
    told = ", ".join(f"{name} {means[name]:.2f} of {target[name]:.3g}" for name in target)
    worst = max(abs(means[name] / target[name] - 1) for name in target)
    print(f"{title}: delivered {told}; worst off by {worst:.0%}; idle {idle:.1%}", flush=True)


def shares(spark: Any, frame: Any, how: Shares, seconds: float) -> None:
    """Print what was delivered against 5:2:1 and, after a change, 1:2:5."""
    with engine_of(Application(spark), how) as engine:
        pools = begin(engine, TARGETS[0], frame)
        for target in TARGETS:
            engine.grant(target)
            delivered(engine, pools, seconds / 5)
            before = {run.job_id: run.iteration for run in engine._active()}
            means, idle = delivered(engine, pools, seconds)
            fastest = max(run.iteration - before[run.job_id] for run in engine._active())
            tell(f"{how}, iterations of {seconds / max(fastest, 1):.1f} s at best", means, target, idle)


def warm(spark: Any, frame: Any, seconds: float) -> None:
    """Run what will be measured, for Java to compile it."""
    with engine_of(Application(spark), Shares.POOLS) as engine:
        pools = begin(engine, TARGETS[0], frame)
        engine.grant(dict.fromkeys(pools, SLOTS / len(pools)))
        delivered(engine, pools, seconds)


def other_work(spark: Any, frame: Any, seconds: float) -> None:
    """Print what Spark jobs beside the cluster get, who are due as much as one of its two jobs."""
    from pyspark import InheritableThread

    application = Application(spark)
    stop = threading.Event()

    def aggregate() -> None:
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "other")
        while not stop.is_set():
            frame.groupBy("label").agg({"label": "count"}).collect()
            perceptron(3).fit(frame)

    other = InheritableThread(target=aggregate, daemon=True)
    other.start()
    with engine_of(application, Shares.TOKENS) as engine:
        pools = begin(engine, "ab", frame)
        while not (found := [pool for pool in application.foreign_pools() if pool.name() == "other"]):
            time.sleep(0.05)
        pools["other"] = found[0]
        engine.capacity()
        fair = SLOTS / 3
        engine.grant({"a": 1.5 * fair, "b": 0.5 * fair})
        delivered(engine, pools, seconds / 5)
        means, idle = delivered(engine, pools, seconds)
        tell("beside other work", means, {"a": 1.5 * fair, "b": 0.5 * fair, "other": fair}, idle)
        stop.set()
        other.join()


def reaction(spark: Any, frame: Any) -> None:
    """Print how long a job that was granted everything takes to hold most slots."""
    with engine_of(Application(spark), Shares.TOKENS) as engine:
        pools = begin(engine, "ab", frame)
        took = []
        for turn in range(6):
            favoured = "ab"[turn % 2]
            engine.grant({"a": 7, "b": 1} if favoured == "a" else {"a": 1, "b": 7})
            began = time.monotonic()
            while pools[favoured].runningTasks() < SLOTS // 2 and time.monotonic() - began < 10:
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
    for name, chosen in (("median", median), ("fastest", min)):
        one, other = chosen(alone), chosen(under)
        print(
            f"one fit, {name}: {one:.2f} s by itself, {other:.2f} s under the cluster, {other / one - 1:+.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_engine", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data and short looks")
    options = parser.parse_args()
    spark = session(f"local[{SLOTS}]", name="spark_engine", settings={"spark.driver.memory": "2g"})
    seconds = 4.0 if options.quick else 30.0
    # Long iterations are looked at for longer: the job with one slot does but four in half a minute.
    looks = {FEW_ROWS // 10: seconds} if options.quick else {ROWS: 2 * seconds, FEW_ROWS: seconds}
    try:
        for rows, look in looks.items():
            frame = made_up(spark, rows)
            warm(spark, frame, seconds)
            for how in Shares:
                shares(spark, frame, how, look)
        other_work(spark, frame, seconds)
        reaction(spark, frame)
        overhead(spark, frame, 2 if options.quick else 15)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
