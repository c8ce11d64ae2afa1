"""Unmodified scikit-learn estimators as training programs: by `partial_fit`, or by `warm_start`.

An estimator sees all rows at once, so its job has one partition (submit it with partitions=1) and uses one
worker at a time: many such jobs share a cluster well, but one of them gets no faster by more cores. Each
iteration is one task, so that what it costs is accounted to the job.
"""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from slaq.core.errors import DataError, HyperparameterError
from slaq.core.extras import needs
from slaq.jobs.context import Context
from slaq.jobs.data import Partition

#: Returns the loss of an estimator on features and targets; less is better.
Loss = Callable[[Any, Any, Any], float]


def partial_fit(
    estimator: Any, *, passes: int, batch_rows: int = 1024, loss: Loss | None = None
) -> "EstimatorProgram":
    """Return a program that trains a copy of the estimator by `partial_fit`; one iteration is one pass.

    A pass goes through all rows, shuffled, in even batches of at most `batch_rows`. `loss(estimator, x, y)`
    is what it reports; by default `loss_for` chooses. The job's result is the fitted estimator.
    """
    _require("partial_fit", estimator, hasattr(estimator, "partial_fit"), "one that has partial_fit()")
    _require_count("partial_fit", "passes", passes)
    _require_count("partial_fit", "batch_rows", batch_rows)
    return EstimatorProgram(
        estimator=copy.deepcopy(estimator),
        improve=Pass(batch_rows=batch_rows),
        iterations=passes,
        loss=loss or loss_for(estimator),
        compare=loss is None,
    )


def warm_start(
    estimator: Any, *, iterations: int, step: int = 1, loss: Loss | None = None
) -> "EstimatorProgram":
    """Return a program that fits a fresh clone of the estimator repeatedly, each time from its present state.

    Each iteration adds `step` members (`n_estimators`; of histogram boosting, `max_iter`) or goes on for
    `step` rounds (`max_iter` of the others). `loss(estimator, x, y)` is what it reports; by default
    `loss_for` chooses. The job's result is the fitted estimator.
    """
    known = estimator.get_params() if hasattr(estimator, "get_params") else {}
    able = "warm_start" in known and ("n_estimators" in known or "max_iter" in known)
    _require("warm_start", estimator, able, "one that has warm_start, and n_estimators or max_iter")
    _require_count("warm_start", "iterations", iterations)
    _require_count("warm_start", "step", step)
    return EstimatorProgram(
        estimator=_sklearn("base").clone(estimator),
        improve=Refit(step=step),
        iterations=iterations,
        loss=loss or loss_for(estimator),
        compare=loss is None,
    )


def loss_for(estimator: Any) -> Loss:
    """Return the loss that fits the estimator.

    Classifiers: the log loss, or the share of wrong labels where there are no probabilities. Regressors: the
    mean squared error. Clusterings with centres: the inertia. Others: minus their score.
    """
    base = _sklearn("base")
    if base.is_classifier(estimator):
        return log_loss if hasattr(estimator, "predict_proba") else error_rate
    if base.is_regressor(estimator):
        return squared_error
    if base.is_clusterer(estimator) and hasattr(estimator, "transform"):
        return inertia
    _require("loss_for", estimator, hasattr(estimator, "score"), "one that has score(), or given with loss=")
    return minus_score


def log_loss(estimator: Any, x: Any, y: Any) -> float:
    """Return the mean over rows of -log p(label)."""
    return float(_sklearn("metrics").log_loss(y, estimator.predict_proba(x), labels=estimator.classes_))


def error_rate(estimator: Any, x: Any, y: Any) -> float:
    """Return the share of rows whose label is predicted wrong."""
    return float(np.mean(estimator.predict(x) != y))


def squared_error(estimator: Any, x: Any, y: Any) -> float:
    """Return the mean squared error."""
    return float(np.mean((estimator.predict(x) - y) ** 2))


def inertia(estimator: Any, x: Any, y: Any) -> float:
    """Return the sum over rows of the squared distance to the nearest centre."""
    return float(np.sum(estimator.transform(x).min(axis=1) ** 2))


def minus_score(estimator: Any, x: Any, y: Any) -> float:
    """Return minus the estimator's own score."""
    return -float(estimator.score(x) if y is None else estimator.score(x, y))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """An iteration by `partial_fit`: one pass over all rows."""

    batch_rows: int

    def __call__(self, estimator: Any, x: Any, y: Any, iteration: int) -> None:
        """Train the estimator, in place."""
        rows = x.shape[0]
        order = np.random.default_rng(iteration).permutation(rows)
        known = {"classes": np.unique(y)} if _sklearn("base").is_classifier(estimator) else {}
        for batch in np.array_split(order, -(-rows // self.batch_rows)):
            if y is None:
                estimator.partial_fit(x[batch])
            else:
                estimator.partial_fit(x[batch], y[batch], **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refit:
    """An iteration by `fit` from where the last one ended."""

    step: int

    def __call__(self, estimator: Any, x: Any, y: Any, iteration: int) -> None:
        """Train the estimator, in place."""
        ensemble = _sklearn("ensemble")
        histograms = (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
        name = "n_estimators" if "n_estimators" in estimator.get_params() else "max_iter"
        # Counts of members go on from the last fit; rounds of a solver start at 0 in each.
        adds = name == "n_estimators" or isinstance(estimator, histograms)
        estimator.set_params(warm_start=True, **{name: (iteration + 1) * self.step if adds else self.step})
        with warnings.catch_warnings():
            # The warning that the fit has not converged is expected.
            warnings.simplefilter("ignore", _sklearn("exceptions").ConvergenceWarning)
            estimator.fit(x) if y is None else estimator.fit(x, y)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EstimatorProgram:
    """A training program that improves an estimator by one task per iteration and returns it fitted.

    The loss before the first iteration is that of the best constant guess (of a single centre, where
    centres are looked for), or of the estimator as it was given if that was fitted already. With a loss of
    the user's own, or minus a score, this loss is unknown, and the first report follows the first iteration.
    (A network's random start can be worse than a constant guess, so that its second loss is above the first.)
    """

    #: How many partitions the job's data must have.
    partitions: ClassVar[int] = 1

    estimator: Any
    improve: Pass | Refit
    iterations: int
    loss: Loss
    #: Whether the loss can judge a constant guess too.
    compare: bool

    def __call__(self, ctx: Context) -> Any:
        """Train in the context and return the fitted estimator."""
        name = type(self.estimator).__name__
        if ctx.data.num_partitions != self.partitions:
            raise DataError(
                f"{name} needs all rows at once, but the data is cut into {ctx.data.num_partitions} "
                "partitions; submit it with partitions=1"
            )
        if ctx.data.num_rows == 0:
            raise DataError(f"{name}: there is no data to train on; submit it with data=(x, y)")
        done, estimator = ctx.restored or (0, self.estimator)
        if ctx.restored is None:
            [first] = ctx.map(_loss_at_start, estimator, self.loss, self.compare)
            if first is not None:
                ctx.report(first, total=self.iterations)
        for iteration in range(done, self.iterations):
            [(estimator, loss)] = ctx.map(_improved, estimator, self.improve, self.loss, iteration)
            ctx.report(loss, step=iteration + 1, total=self.iterations)
            ctx.checkpoint((iteration + 1, estimator))
        return estimator


def _improved(
    partition: Partition, estimator: Any, improve: Pass | Refit, loss: Loss, iteration: int
) -> tuple[Any, float]:
    """Return the estimator one iteration on, and its loss; a copy, so that the task can be run again."""
    improved = copy.deepcopy(estimator)
    improve(improved, partition.x, partition.y, iteration)
    return improved, float(loss(improved, partition.x, partition.y))


def _loss_at_start(partition: Partition, estimator: Any, loss: Loss, compare: bool) -> float | None:
    """Return the loss before the first iteration, None if it is unknown."""
    base, dummy = _sklearn("base"), _sklearn("dummy")
    x, y = partition.x, partition.y
    supervised = base.is_classifier(estimator) or base.is_regressor(estimator)
    if supervised and y is None:
        raise DataError(f"{type(estimator).__name__}: there are no targets; submit it with data=(x, y)")
    if _is_fitted(estimator):
        return float(loss(estimator, x, y))
    if not compare:
        return None
    if supervised:
        guess = dummy.DummyClassifier() if base.is_classifier(estimator) else dummy.DummyRegressor()
        return float(loss(guess.fit(x, y), x, y))
    if loss is inertia:
        dense = x.toarray() if hasattr(x, "toarray") else x
        return float(np.sum((dense - dense.mean(axis=0)) ** 2))
    return None


def _is_fitted(estimator: Any) -> bool:
    try:
        _sklearn("utils.validation").check_is_fitted(estimator)
    except _sklearn("exceptions").NotFittedError:
        return False
    return True


def _require(function: str, estimator: Any, able: bool, expected: str) -> None:
    _sklearn("base")
    if not able:
        raise HyperparameterError(function, "estimator", type(estimator).__name__, expected)


def _require_count(function: str, name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise HyperparameterError(function, name, value, "a whole number of at least 1")


def _sklearn(module: str) -> Any:
    """Return a module of scikit-learn, which is optional and slow to load."""
    with needs("sklearn"):
        return import_module(f"sklearn.{module}")
