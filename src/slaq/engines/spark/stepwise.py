"""Estimators that log no loss, run a few iterations at a time inside jobs: LDA, perceptrons by descent."""

import logging
import math
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

#: Called with a loss after some iterations; returns whether to go on. None outside a job.
Step = Callable[[float], bool]
Stepper = Callable[[], Step | None]
Fit = Callable[[Any, Any], Any]

#: Iterations of a perceptron between two looks at its losses: each look costs a few small Spark jobs.
ITERATIONS_PER_LOOK = 5
#: The loss of an LDA is looked at as often as that costs this share of its iterations' time, and at least every
#: so many iterations.
SHARE_FOR_LOOKS, RAREST_LOOK = 0.5, 4
#: Documents from which the loss of an online LDA is computed, as a share of all, at least.
SAMPLED = 0.05

_log = logging.getLogger(__name__)


def stepping(stepper: Stepper) -> Callable[[], None]:
    """Make these estimators report losses inside jobs; return the function that restores them."""
    from pyspark.ml.classification import MultilayerPerceptronClassifier
    from pyspark.ml.clustering import LDA

    changed = [(LDA, _fit_lda), (MultilayerPerceptronClassifier, _fit_perceptron)]
    for kind, fit in changed:
        # The class inherits `_fit`.
        kind._fit = _instead_of(kind._fit, fit, stepper)

    def put_back() -> None:
        for kind, _ in changed:
            if "_fit" in vars(kind):
                del kind._fit

    return put_back


def _instead_of(plain: Fit, fit: Callable[[Fit, Any, Any, Step], Any], stepper: Stepper) -> Fit:
    @wraps(plain)
    def wrapped(estimator: Any, dataset: Any) -> Any:
        step = stepper()
        return plain(estimator, dataset) if step is None else fit(plain, estimator, dataset, step)

    return wrapped


def _fit_perceptron(plain: Fit, estimator: Any, dataset: Any, step: Step) -> Any:
    """Fit a few iterations at a time, from the weights of those before: gradient descent keeps nothing else."""
    if estimator.getSolver() != "gd":
        return plain(estimator, dataset)
    left = estimator.getMaxIter()
    part = estimator.copy()
    history: list[float] = []
    model = None
    while left > 0:
        count = min(left, ITERATIONS_PER_LOOK if history else 1)
        model = plain(part.setMaxIter(count), dataset)
        losses = list(model.summary().objectiveHistory)
        told = losses[1:] if history else losses
        history += told
        left -= count
        # Report every loss, also those after the one that was enough.
        answers = [step(loss) for loss in told]
        if not all(answers) or len(losses) - 1 < count:
            break
        part.setInitialWeights(model.weights)
    if model is None:
        return plain(estimator, dataset)
    return _with_history(estimator, model, history)


def _with_history(estimator: Any, model: Any, history: list[float]) -> Any:
    """Return the model as if it had been fitted at once: its parameters, and a summary of all iterations."""
    summary = model.summary()._java_obj
    gateway = _gateway()
    values = gateway.new_array(gateway.jvm.double, len(history))
    for place, value in enumerate(history):
        values[place] = value
    field = summary.getClass().getDeclaredField("objectiveHistory")
    field.setAccessible(True)
    field.set(summary, values)
    for parameter in (estimator.maxIter, estimator.initialWeights):
        if estimator.isDefined(parameter):
            model._set(**{parameter.name: estimator.getOrDefault(parameter)})
        else:
            model.clear(model.getParam(parameter.name))
    return model


def _gateway() -> Any:
    from pyspark import SparkContext

    return SparkContext._gateway


def _fit_lda(plain: Fit, estimator: Any, dataset: Any, step: Step) -> Any:
    """Do what the estimator's own fit does, and look at the loss between its iterations."""
    steps = _LdaSteps(estimator, dataset)
    done, looked, every = 0, 0, 1
    go_on = step(steps.loss())
    while go_on and done < estimator.getMaxIter():
        began = time.monotonic()
        steps.next()
        done += 1
        middle = time.monotonic()
        if done - looked >= every or done == estimator.getMaxIter():
            looked = done
            go_on = step(steps.loss())
            if done <= 2:
                cost = (time.monotonic() - middle) / max(SHARE_FOR_LOOKS * (middle - began), 1e-9)
                every = min(max(math.ceil(cost), 1), RAREST_LOOK)
    return steps.model(done)


class _LdaSteps:
    """The iterations of an LDA, through the optimizer that its fit uses, which is private to Spark."""

    def __init__(self, estimator: Any, dataset: Any) -> None:
        from pyspark import SparkContext

        self._estimator = estimator
        self._context = SparkContext._active_spark_context
        assert self._context is not None
        self._jvm = self._context._jvm
        estimator._transfer_params_to_java()
        java = estimator._java_obj
        self._online = estimator.getOptimizer() == "online"
        self._session = dataset.sparkSession._jsparkSession
        documents = self._static("org.apache.spark.ml.clustering.LDA$").getOldDataset(
            dataset._jdf, estimator.getFeaturesCol()
        )
        old = self._jvm.org.apache.spark.mllib.clustering.LDA()
        old.setK(estimator.getK())
        vectors = self._static("org.apache.spark.mllib.linalg.Vectors$")
        old.setDocConcentration(vectors.fromML(java.getOldDocConcentration()))
        old.setTopicConcentration(java.getOldTopicConcentration())
        old.setMaxIterations(estimator.getMaxIter())
        old.setSeed(java.getSeed())
        old.setCheckpointInterval(estimator.getCheckpointInterval())
        old.setOptimizer(java.getOldOptimizer())
        self._state = old.getOptimizer().initialize(documents, old)
        self._sample = None
        if self._online:
            fraction = min(max(SAMPLED, estimator.getSubsamplingRate()), 1.0)
            self._sample = documents.sample(False, fraction, 7).cache()
            if self._sample.isEmpty():
                self._sample = documents

    def next(self) -> None:
        """Do one iteration."""
        self._state.next()

    def loss(self) -> float:
        """Return the negative log likelihood of all data by EM, the perplexity bound of a sample online."""
        if not self._online:
            return -float(self._state.getLDAModel(self._times(0)).logLikelihood())
        # Not by getLDAModel, which draws from the optimizer's own random numbers.
        topics = self._static("org.apache.spark.mllib.linalg.Matrices$").fromBreeze(self._state.getLambda())
        model = self._jvm.org.apache.spark.mllib.clustering.LocalLDAModel(
            topics.transpose(), self._state.getAlpha(), self._state.getEta(), 100.0
        )
        return float(model.logPerplexity(self._sample))

    def model(self, iterations: int) -> Any:
        """Return what the estimator's fit would have returned."""
        old = self._state.getLDAModel(self._times(iterations))
        kind = self._jvm.org.apache.spark.ml.clustering
        uid, size = self._estimator.uid, old.vocabSize()
        if self._online:
            new = kind.LocalLDAModel(uid, size, old, self._session)
        else:
            none = self._static("scala.None$")
            new = kind.DistributedLDAModel(uid, size, old, self._session, none)
        java = self._estimator._java_obj
        java.copyValues(new, java.extractParamMap()).setParent(java)
        if self._sample is not None:
            self._sample.unpersist(False)
        return self._estimator._copyValues(self._estimator._create_model(new))

    def _times(self, count: int) -> Any:
        return self._context._gateway.new_array(self._jvm.double, count)

    def _static(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
