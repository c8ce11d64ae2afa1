"""The jobs of `slaq demo --engine spark`: MLlib estimators on data generated inside Spark."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from slaq.spark import SparkCluster

#: Slots per core: with more slots, more jobs can run at the same time, in finer shares.
SLOTS_PER_CORE = 4
#: Rows of data at size 1, features, and partitions per slot.
ROWS, FEATURES, PARTITIONS_PER_SLOT = 24_000, 16, 2
TERMS = 120
#: Seconds between two polls for jobs that have arrived or ended.
LOOK = 0.2
#: Iterations of each kind that are run before the measurement.
WARMING = 3

#: Makes an estimator with random hyperparameters.
Make = Callable[[np.random.Generator], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFit:
    """One fit of the demo: its arrival and its estimator."""

    name: str
    kind: str
    #: Seconds after the start.
    arrival: float
    make: Callable[[], Any]


def kinds() -> dict[str, Make]:
    """Return the kinds of jobs by name; each estimator reports its loss while it fits."""
    from pyspark.ml import classification, clustering, regression

    def seed(rng: np.random.Generator) -> int:
        return int(rng.integers(1, 99))

    return {
        "logreg": lambda rng: classification.LogisticRegression(
            maxIter=60, tol=0.0, regParam=float(rng.choice([1e-4, 1e-3])), standardization=False
        ),
        "svm": lambda rng: classification.LinearSVC(maxIter=40, regParam=float(rng.choice([0.01, 0.1]))),
        "linreg": lambda rng: regression.LinearRegression(
            maxIter=60, tol=0.0, solver="l-bfgs", labelCol="number", standardization=False
        ),
        "mlp": lambda rng: classification.MultilayerPerceptronClassifier(
            layers=[FEATURES, int(rng.choice([6, 12])), 2], maxIter=60, seed=seed(rng)
        ),
        "kmeans": lambda rng: clustering.KMeans(
            k=int(rng.choice([8, 16])), maxIter=40, tol=0.0, seed=seed(rng)
        ),
        "mixture": lambda rng: clustering.GaussianMixture(k=4, maxIter=40, tol=0.0, seed=seed(rng)),
        "gbt": lambda rng: classification.GBTClassifier(
            maxIter=12, maxDepth=3, stepSize=float(rng.choice([0.1, 0.3])), seed=seed(rng)
        ),
        "gbtreg": lambda rng: regression.GBTRegressor(
            maxIter=12, maxDepth=3, labelCol="number", stepSize=float(rng.choice([0.1, 0.3])), seed=seed(rng)
        ),
        "lda": lambda rng: clustering.LDA(k=8, maxIter=30, featuresCol="terms", seed=seed(rng)),
    }


def plan(
    count: int, seconds: float, rng: np.random.Generator, *, iterations: float = 1.0
) -> list[PlannedFit]:
    """Return the jobs of a Poisson process in order of arrival; all kinds occur about equally often.

    `iterations` multiplies the usual number of iterations.
    """
    makers = list(kinds().items())
    order = [makers[place % len(makers)] for place in rng.permutation(count)]
    # Given their number, the arrivals of a Poisson process are uniformly distributed.
    arrivals = np.sort(rng.uniform(0.0, seconds, count))
    arrivals[0] = 0.0
    jobs = []
    for place, (arrival, (name, make)) in enumerate(zip(arrivals.tolist(), order, strict=True)):
        drawn = np.random.default_rng(rng.integers(2**32))
        state = drawn.bit_generator.state

        def again(make: Make = make, state: Any = state) -> Any:
            # The same hyperparameters under every policy.
            same = np.random.default_rng()
            same.bit_generator.state = state
            estimator = make(same)
            return estimator.setMaxIter(max(round(iterations * estimator.getMaxIter()), 2))

        jobs.append(PlannedFit(name=f"{name}-{place}", kind=name, arrival=arrival, make=again))
    return jobs


def made_up(spark: Any, rows: int, slots: int) -> Any:
    """Return a cached frame with features of different scale, two labels and documents."""
    from pyspark.ml.functions import array_to_vector
    from pyspark.sql import functions as sql

    group = (sql.rand(seed=7) * 6).cast("int")
    columns = [
        (sql.randn(seed=place) + sql.sin((group + 1) * (place + 1)) * 1.5) * float((place + 1) ** -0.5)
        for place in range(FEATURES)
    ]
    score = columns[0] * 2 - columns[1] + columns[2] * columns[3] + sql.randn(seed=98)
    topic = (sql.rand(seed=8) * 8).cast("int")
    terms = [
        sql.floor(sql.rand(seed=1000 + place) * sql.when(topic == place % 8, 6.0).otherwise(1.3)).cast(
            "double"
        )
        for place in range(TERMS)
    ]
    frame = spark.range(0, rows, 1, PARTITIONS_PER_SLOT * slots).select(
        array_to_vector(sql.array(*columns)).alias("features"),
        (score > 0).cast("double").alias("label"),
        score.alias("number"),
        array_to_vector(sql.array(*terms)).alias("terms"),
    )
    frame = frame.cache()
    frame.count()
    return frame


def warm_up(cluster: "SparkCluster", planned: Sequence[PlannedFit], frame: Any) -> None:
    """Fit each planned kind briefly, so that Java has compiled the code before the first policy is measured."""

    def short(fit: PlannedFit) -> PlannedFit:
        return replace(fit, arrival=0.0, make=lambda: fit.make().setMaxIter(WARMING))

    train(cluster, [short(fit) for fit in {fit.kind: fit for fit in planned}.values()], frame, lambda _: None)


def train(
    cluster: "SparkCluster", planned: Sequence[PlannedFit], frame: Any, told: Callable[[float], None]
) -> None:
    """Submit each job at its arrival, and wait for all jobs; raise the error of a job that fails."""
    began = time.monotonic()
    coming = list(planned)
    while coming or not cluster.wait(timeout=LOOK):
        while coming and coming[0].arrival <= time.monotonic() - began:
            fit = coming.pop(0)
            estimator = fit.make()
            cluster.submit(lambda spark, estimator=estimator: estimator.fit(frame), name=fit.name)
        if coming:
            time.sleep(min(LOOK, max(coming[0].arrival - (time.monotonic() - began), 0.0)))
        told(sum(job.done() for job in cluster.jobs()) / len(planned))
    for job in cluster.jobs():
        job.result()
