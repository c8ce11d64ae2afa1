"""The losses of unmodified MLlib estimators: heard while they fit, and equal to what the model says afterwards."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from pyspark.ml.classification import (
    GBTClassifier,
    LinearSVC,
    LogisticRegression,
    MultilayerPerceptronClassifier,
)
from pyspark.ml.clustering import LDA, GaussianMixture, KMeans
from pyspark.ml.linalg import Vectors
from pyspark.ml.regression import AFTSurvivalRegression, GBTRegressor, LinearRegression

from slaq.engines.spark.losses import FitBegan, FitOver, LossLogged, read_line
from slaq.spark import SparkCluster
from tests.spark_session import spark

__all__ = ["spark"]

pytestmark = pytest.mark.timeout(300)

PATIENCE = 60.0


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    """Rows with a label that depends on the features, and counts that are documents."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 4))
    y = (x @ [2.0, -1.0, 0.5, 0.0] + rng.normal(size=240) > 0).astype(float)
    words = rng.poisson(rng.dirichlet([0.3] * 12, 240) * 20).astype(float)
    rows = [
        (Vectors.dense(a), float(b), float(np.exp(a[0])), 1.0, Vectors.dense(c))
        for a, b, c in zip(x, y, words, strict=True)
    ]
    made = (
        spark.createDataFrame(rows, ["features", "label", "time", "censor", "words"]).repartition(4).cache()
    )
    made.count()
    return made


@pytest.fixture(scope="module")
def cluster(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(spark, epoch_seconds=0.2, directory=tmp_path_factory.mktemp("jobs")) as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


#: Each estimator with what its model says of its losses, all of them or the last, and how many digits agree.
TOLD: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Sequence[float]], float]] = {
    "LogisticRegression": (
        lambda: LogisticRegression(maxIter=5, regParam=0.01),
        lambda model, _: model.summary.objectiveHistory,
        1e-5,
    ),
    "LinearSVC": (lambda: LinearSVC(maxIter=5), lambda model, _: model.summary().objectiveHistory, 1e-5),
    "LinearRegression": (
        lambda: LinearRegression(maxIter=5, solver="l-bfgs"),
        lambda model, _: model.summary.objectiveHistory,
        1e-5,
    ),
    "MultilayerPerceptronClassifier": (
        lambda: MultilayerPerceptronClassifier(layers=[4, 3, 2], maxIter=5, seed=1),
        lambda model, _: model.summary().objectiveHistory,
        1e-5,
    ),
    "MultilayerPerceptronClassifier, gd": (
        lambda: MultilayerPerceptronClassifier(layers=[4, 3, 2], maxIter=8, seed=1, solver="gd"),
        lambda model, _: model.summary().objectiveHistory,
        1e-12,
    ),
    "KMeans": (lambda: KMeans(k=3, maxIter=5, seed=1), lambda model, _: [model.summary.trainingCost], 1e-12),
    "GaussianMixture": (
        lambda: GaussianMixture(k=2, maxIter=5, seed=1),
        lambda model, _: [-model.summary.logLikelihood],
        1e-12,
    ),
    "GBTClassifier": (
        lambda: GBTClassifier(maxIter=3, maxDepth=2, seed=1),
        lambda model, frame: model.evaluateEachIteration(frame),
        1e-9,
    ),
    "GBTRegressor": (
        lambda: GBTRegressor(maxIter=3, maxDepth=2, seed=1),
        lambda model, frame: model.evaluateEachIteration(frame, "squared"),
        1e-9,
    ),
    "LDA, em": (
        lambda: LDA(k=2, maxIter=4, seed=1, optimizer="em", featuresCol="words"),
        lambda model, _: [-model.trainingLogLikelihood()],
        1e-9,
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_losses_equal_the_models_own(cluster: SparkCluster, frame: Any, name: str) -> None:
    """Every loss is heard, in order, with the digits that the log has; the first of L-BFGS with three."""
    make, says, digits = TOLD[name]
    estimator = make()
    job = cluster.submit(lambda spark: estimator.fit(frame))
    model = job.result(PATIENCE)
    said = list(says(model, frame))
    assert len(job.losses) >= 3
    if len(said) == 1:
        assert job.losses[-1] == pytest.approx(said[0], rel=digits)
    else:
        assert job.losses[1:] == pytest.approx(said[1:], rel=digits)
        assert job.losses[0] == pytest.approx(said[0], rel=max(digits, 2e-3))
    assert [one.iteration for one in job.observations] == list(range(len(job.losses)))


@pytest.mark.parametrize("optimizer", ["online", "em"])
def test_an_lda_is_the_one_that_a_plain_fit_makes(cluster: SparkCluster, frame: Any, optimizer: str) -> None:
    """Stepping through it changes neither its topics nor its parameters, and its loss ends below where it began."""
    estimator = LDA(k=3, maxIter=5, seed=1, optimizer=optimizer, featuresCol="words", subsamplingRate=0.5)
    plain = estimator.fit(frame)
    job = cluster.submit(lambda spark: estimator.fit(frame))
    stepped = job.result(PATIENCE)
    assert stepped.topicsMatrix().toArray() == pytest.approx(plain.topicsMatrix().toArray())
    assert stepped.extractParamMap().keys() == plain.extractParamMap().keys()
    assert stepped.logPerplexity(frame) == pytest.approx(plain.logPerplexity(frame))
    assert job.losses[-1] < job.losses[0]


def test_a_perceptron_by_descent_is_the_one_that_a_plain_fit_makes(cluster: SparkCluster, frame: Any) -> None:
    """A few iterations at a time give the same weights, history and parameters."""
    estimator = MultilayerPerceptronClassifier(layers=[4, 3, 2], maxIter=8, seed=1, solver="gd")
    plain = estimator.fit(frame)
    stepped = cluster.submit(lambda spark: estimator.fit(frame)).result(PATIENCE)
    assert stepped.weights.toArray().tolist() == plain.weights.toArray().tolist()
    assert stepped.summary().objectiveHistory == plain.summary().objectiveHistory
    assert stepped.getMaxIter() == plain.getMaxIter()


def test_outside_a_job_nothing_is_heard(cluster: SparkCluster, frame: Any) -> None:
    """A fit in the user's own thread belongs to no job."""
    before = sum(len(job.losses) for job in cluster.jobs())
    LogisticRegression(maxIter=2).fit(frame)
    assert sum(len(job.losses) for job in cluster.jobs()) == before


def test_other_optimizers_are_heard_too(cluster: SparkCluster, frame: Any) -> None:
    """Whatever minimises by the same library tells its loss."""
    job = cluster.submit(
        lambda spark: AFTSurvivalRegression(labelCol="time", maxIter=4).fit(frame), name="survival"
    )
    job.result(PATIENCE)
    assert len(job.losses) >= 3
    assert job.losses[-1] < job.losses[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "Val and Grad Norm: 0.476898 (rel: 0.310) 0.122685",
            LossLogged(0.476898, 0.476898 / 0.69),
        ),
        ("Val and Grad Norm: 2.0 (rel: -0.5) 1", LossLogged(2.0, 1.0)),
        ("Val and Grad Norm: -2.0 (rel: 0.5) 1", LossLogged(-2.0, -1.0)),
        ("Val and Grad Norm: -1.0 (rel: -0.5) 1", LossLogged(-1.0, -1.0 / 1.5)),
        ("Val and Grad Norm: NaN (rel: NaN) NaN", None),
        ('[d4e64bcb] {"Cost@iter=3":"2336.35"}', LossLogged(2336.35)),
        ('[5677db57] {"logLikelihood@iter0":-4551.7}', LossLogged(4551.7)),
        ("error of gbt = 0.7474159723117532", LossLogged(0.7474159723117532)),
        ("[ac3f1650] Stage class: KMeans", FitBegan("KMeans")),
        ("[ac3f1650] training finished", FitOver()),
        ('[5677db57] {"logLikelihood":-4213.8}', None),
        ("Building tree 0", None),
    ],
)
def test_lines_are_read(line: str, told: Any) -> None:
    """Each line says one thing or nothing; the loss before an iteration follows from its relative fall."""
    read = read_line(line)
    if line.startswith("Val and Grad Norm: NaN"):
        assert isinstance(read, LossLogged)
        assert np.isnan(read.loss)
        assert read.before is None
    else:
        assert read == told
