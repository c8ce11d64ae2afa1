"""Laws of the adapters that train unmodified scikit-learn estimators as jobs."""

import pickle
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.cluster import MiniBatchKMeans
from sklearn.datasets import make_blobs, make_classification, make_regression
from sklearn.decomposition import LatentDirichletAllocation, MiniBatchDictionaryLearning
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier, SGDRegressor
from sklearn.metrics import log_loss, zero_one_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from slaq.core.errors import DataError, HyperparameterError, MissingExtraError, SlaqError
from slaq.integrations import sklearn as adapter
from slaq.integrations.sklearn import EstimatorProgram, partial_fit, warm_start
from slaq.jobs.data import Dataset
from slaq.jobs.inline import InlineContext


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a worker: on a busy machine threads that wait for each other take minutes."""
    with threadpool_limits(1):
        yield


EXAMPLES = Path(__file__).parents[2] / "examples"


def classes() -> Dataset:
    x, y = make_classification(400, 8, n_informative=5, random_state=0)
    return Dataset(x, np.where(y == 1, "yes", "no"))


def numbers() -> Dataset:
    x, y = make_regression(400, 6, noise=5.0, random_state=0)
    return Dataset(x, y / np.std(y))


def clusters() -> Dataset:
    return Dataset(make_blobs(400, 4, centers=5, random_state=0)[0])


def log_sgd() -> Any:
    return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.001, random_state=0)


PROGRAMS = {
    "sgd classifier": (partial_fit(log_sgd(), passes=4, batch_rows=100), classes),
    "sgd regressor": (partial_fit(SGDRegressor(eta0=1e-4, random_state=0), passes=4, batch_rows=90), numbers),
    "mini-batch k-means": (
        partial_fit(MiniBatchKMeans(5, random_state=0, n_init=1), passes=3, batch_rows=64),
        clusters,
    ),
    "perceptron": (
        partial_fit(MLPClassifier((8,), learning_rate_init=0.02, random_state=0), passes=4, batch_rows=100),
        classes,
    ),
    "boosting": (
        warm_start(GradientBoostingClassifier(random_state=0, max_depth=2), iterations=4, step=3),
        classes,
    ),
    "histogram boosting": (
        warm_start(HistGradientBoostingRegressor(random_state=0, max_depth=2), iterations=4, step=3),
        numbers,
    ),
    "forest": (warm_start(RandomForestRegressor(random_state=0), iterations=3, step=2), numbers),
    "logistic": (warm_start(LogisticRegression(), iterations=4, step=2), classes),
}

every_program = pytest.mark.parametrize("name", PROGRAMS)


@every_program
def test_the_loss_falls_from_that_of_a_constant_guess(name: str) -> None:
    """There is one loss before the first iteration and one after each, and the estimator learns."""
    program, data = PROGRAMS[name]
    ctx = InlineContext(data())
    fitted = program(ctx)
    assert len(ctx.losses) == program.iterations + 1
    assert ctx.losses[-1] < ctx.losses[0]
    assert ctx.losses[-1] == pytest.approx(program.loss(fitted, data().x, data().y))


@every_program
def test_a_resumed_run_ends_as_one_that_was_never_stopped(name: str) -> None:
    """From a checkpoint after two iterations the same losses follow, and the same estimator comes out."""
    program, data = PROGRAMS[name]
    whole = InlineContext(data())
    expected = program(whole)
    half = InlineContext(data())
    shorter = EstimatorProgram(
        estimator=program.estimator, improve=program.improve, iterations=2, loss=program.loss, compare=True
    )
    shorter(half)
    rest = InlineContext(data(), restored=pickle.loads(pickle.dumps(half.kept)))
    resumed = program(rest)
    assert half.losses + rest.losses == whole.losses
    np.testing.assert_array_equal(resumed.predict(data().x), expected.predict(data().x))


@every_program
def test_the_estimator_that_was_given_stays_as_it_was(name: str) -> None:
    """A program can be run twice, pickled or not, with the same losses: it trains copies."""
    program, data = PROGRAMS[name]
    first, second = InlineContext(data()), InlineContext(data())
    program(first)
    pickle.loads(pickle.dumps(program))(second)
    assert first.losses == second.losses
    assert not adapter._is_fitted(program.estimator)


def test_a_pass_is_what_partial_fit_does_by_hand() -> None:
    """The estimator is the one that partial_fit on the same batches leads to."""
    data = classes()
    fitted = partial_fit(log_sgd(), passes=2, batch_rows=150)(InlineContext(data))
    by_hand = log_sgd()
    for iteration in range(2):
        for batch in np.array_split(np.random.default_rng(iteration).permutation(400), 3):
            assert data.y is not None
            by_hand.partial_fit(data.x[batch], data.y[batch], classes=["no", "yes"])
    np.testing.assert_array_equal(fitted.coef_, by_hand.coef_)


@pytest.mark.parametrize("name", ["boosting", "histogram boosting", "forest"])
def test_members_added_in_steps_are_those_fitted_at_once(name: str) -> None:
    """Growing by steps ends with the ensemble that one fit of the full size gives."""
    program, data = PROGRAMS[name]
    rows = data()
    fitted = program(InlineContext(rows))
    improve = program.improve
    assert isinstance(improve, adapter.Refit)
    size = program.iterations * improve.step
    key = "max_iter" if name.startswith("histogram") else "n_estimators"
    at_once = clone(program.estimator).set_params(**{key: size}).fit(rows.x, rows.y)
    np.testing.assert_allclose(fitted.predict(rows.x[:50]) == at_once.predict(rows.x[:50]), True)


def test_the_loss_fits_the_estimator() -> None:
    """Log loss where there are probabilities, else wrong labels; squared error; inertia; minus the score."""
    assert adapter.loss_for(GaussianNB()) is adapter.log_loss
    assert adapter.loss_for(SGDClassifier(loss="hinge")) is adapter.error_rate
    assert adapter.loss_for(SGDRegressor()) is adapter.squared_error
    assert adapter.loss_for(MiniBatchKMeans()) is adapter.inertia
    assert adapter.loss_for(LatentDirichletAllocation()) is adapter.minus_score
    with pytest.raises(HyperparameterError, match="has score"):
        adapter.loss_for(MiniBatchDictionaryLearning())
    data = classes()
    fitted = log_sgd().fit(data.x, data.y)
    assert adapter.log_loss(fitted, data.x, data.y) == pytest.approx(
        log_loss(data.y, fitted.predict_proba(data.x))
    )
    assert adapter.error_rate(fitted, data.x, data.y) == pytest.approx(
        zero_one_loss(data.y, fitted.predict(data.x))
    )


def test_the_first_loss_is_the_entropy_of_the_labels() -> None:
    """A constant guess knows the classes' shares and no more; one centre knows the mean and no more."""
    ctx = InlineContext(classes())
    partial_fit(log_sgd(), passes=1)(ctx)
    share = np.mean(classes().y == "yes")
    assert ctx.losses[0] == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share))
    ctx = InlineContext(clusters())
    partial_fit(MiniBatchKMeans(5, n_init=1, random_state=0), passes=1)(ctx)
    assert ctx.losses[0] == pytest.approx(clusters().x.var(axis=0).sum() * 400)


def test_a_fitted_estimator_goes_on_from_where_it_is() -> None:
    """Its own loss comes first, not that of a guess."""
    data = classes()
    fitted = log_sgd().fit(data.x, data.y)
    ctx = InlineContext(data)
    partial_fit(fitted, passes=1)(ctx)
    assert ctx.losses[0] == pytest.approx(adapter.log_loss(fitted, data.x, data.y))


def test_any_function_can_be_the_loss() -> None:
    """It is called with the estimator and the data; there is no loss before the first iteration then."""
    ctx = InlineContext(classes())
    partial_fit(log_sgd(), passes=3, loss=lambda estimator, x, y: float(np.abs(estimator.coef_).sum()))(ctx)
    assert len(ctx.losses) == 3


def test_sparse_rows_and_scores_work_too() -> None:
    """CSR rows are batched like any; an estimator without targets is judged by its score."""
    # SGDClassifier itself moves intercepts more slowly on sparse rows.
    data = classes()
    ctx = InlineContext(Dataset(sp.csr_array(data.x), data.y))
    partial_fit(log_sgd(), passes=2, batch_rows=100)(ctx)
    dense = InlineContext(data)
    partial_fit(log_sgd(), passes=2, batch_rows=100)(dense)
    np.testing.assert_allclose(ctx.losses, dense.losses, rtol=0.01)
    counts = np.random.default_rng(0).poisson(0.5, (60, 30))
    ctx = InlineContext(Dataset(sp.csr_array(counts)))
    partial_fit(LatentDirichletAllocation(3, random_state=0), passes=2, batch_rows=30)(ctx)
    assert len(ctx.losses) == 2


def test_what_cannot_be_trained_is_refused_in_one_sentence() -> None:
    """Estimators without the method, counts that make no sense, data in pieces or without targets."""
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (partial_fit, {"estimator": SVC(), "passes": 1}, "one that has partial_fit\\(\\), not 'SVC'"),
        (
            partial_fit,
            {"estimator": log_sgd(), "passes": 0},
            "passes must be a whole number of at least 1, not 0",
        ),
        (partial_fit, {"estimator": log_sgd(), "passes": 1, "batch_rows": 0.5}, "batch_rows must be"),
        (
            warm_start,
            {"estimator": GaussianNB(), "iterations": 1},
            "warm_start, and n_estimators or max_iter",
        ),
        (warm_start, {"estimator": log_sgd(), "iterations": 1, "step": -1}, "step must be"),
        (warm_start, {"estimator": 3, "iterations": 1}, "not 'int'"),
    ]
    for make, options, text in wrong:
        with pytest.raises(HyperparameterError, match=text):
            make(**options)
    program, data = PROGRAMS["sgd classifier"]
    with pytest.raises(DataError, match="cut into 3 partitions; submit it with partitions=1"):
        program(InlineContext(data(), partitions=3))
    with pytest.raises(DataError, match="no targets"):
        program(InlineContext(Dataset(data().x)))
    with pytest.raises(DataError, match="no data"):
        program(InlineContext())


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scikit-learn the error says what to install, and the module itself still loads."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    estimator = type("Estimator", (), {"partial_fit": None})()
    with pytest.raises(MissingExtraError, match=r"pip install 'slaq\[sklearn\]'") as caught:
        partial_fit(estimator, passes=1)
    assert isinstance(caught.value, SlaqError)


def test_the_examples_train() -> None:
    """What the examples submit to a cluster trains: the grid finds a rate, one's own algorithm its weights."""
    grid = runpy.run_path(str(EXAMPLES / "sklearn_grid.py"))
    last = {}
    for rate in grid["RATES"]:
        ctx = InlineContext(Dataset(*grid["data"](2000)))
        grid["program"](rate, 3)(ctx)
        last[rate] = ctx.losses[-1]
    assert min(last, key=lambda rate: last[rate]) < 1.0
    own = runpy.run_path(str(EXAMPLES / "custom_algorithm.py"))
    ctx = InlineContext(Dataset(*own["data"](2000, 5)), partitions=3)
    np.testing.assert_allclose(own["train"](ctx), np.arange(5), atol=0.05)
    assert ctx.losses[-1] < 0.01 * ctx.losses[0]
