"""Each algorithm agrees with scikit-learn or scipy on the same data, within the tolerance stated."""

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.cluster import KMeans as TheirKMeans
from sklearn.datasets import load_breast_cancer, load_digits, make_friedman1, make_moons
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LinearRegression as TheirLinearRegression
from sklearn.linear_model import LogisticRegression as TheirLogisticRegression
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from slaq.algorithms import (
    LDA,
    GBTClassifier,
    GBTRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MLPClassifier,
    PolynomialSVM,
    mlp,
)
from slaq.jobs.data import Partition
from tests.algorithms.samples import corpus, diabetes, three_classes

Rows = NDArray[np.float64]


def cancer() -> tuple[Rows, NDArray[Any]]:
    """569 tumours, 30 features, two classes."""
    x, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def test_kmeans_has_the_inertia_of_lloyds_algorithm_at_every_iteration() -> None:
    """From the same centres, the inertia after 0, 1, ... iterations is that of scikit-learn to 1e-9."""
    # Not the digits: whole numbers are often just as far from two centres, and then either may be taken.
    x, _ = cancer()
    start = KMeans(k=10, iterations=0).fit(x).centres
    ours = KMeans(k=10, iterations=12).fit(x, partitions=3)
    for iterations in (1, 2, 5, 12):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = TheirKMeans(10, init=start, n_init=1, max_iter=iterations, tol=0, algorithm="lloyd").fit(
                x
            )
        assert ours.losses[iterations] == pytest.approx(theirs.inertia_, rel=1e-9)
    np.testing.assert_allclose(ours.centres, theirs.cluster_centers_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(ours.predict(x), theirs.labels_)


def test_kmeans_starts_as_well_as_kmeans_plus_plus() -> None:
    """Over ten seeds the mean inertia of our starts, and of where they lead, is within 5% of scikit-learn's."""
    x, _ = load_digits(return_X_y=True)
    ours = [KMeans(k=10, iterations=10, seed=seed).fit(x).losses for seed in range(10)]
    theirs = [
        TheirKMeans(10, n_init=1, max_iter=10, tol=0, random_state=seed).fit(x).inertia_ for seed in range(10)
    ]
    assert np.mean([losses[-1] for losses in ours]) == pytest.approx(np.mean(theirs), rel=0.05)


@pytest.mark.parametrize("data", [cancer, three_classes])
def test_logistic_regression_reaches_the_minimum(data: Any) -> None:
    """The loss is within 1e-3 of that of scikit-learn with C = 1 / (n l2), and labels agree on 99.5% of rows."""
    x, y = data()
    ours = LogisticRegression(l2=0.01, iterations=1500).fit(x, y)
    theirs = TheirLogisticRegression(C=1 / (len(x) * 0.01), tol=1e-8, max_iter=2000).fit(x, y)
    weights = theirs.coef_
    minimum = log_loss(y, theirs.predict_proba(x)) + 0.005 * float(np.sum(weights**2))
    assert minimum * (1 - 1e-9) <= ours.losses[-1] <= minimum * (1 + 1e-3)
    assert ours.losses[-1] - 0.005 * float(np.sum(ours.weights**2)) == pytest.approx(
        log_loss(y, ours.predict_proba(x)), rel=1e-9
    )
    assert np.mean(ours.predict(x) == theirs.predict(x)) >= 0.995


@pytest.mark.parametrize("data", [cancer, three_classes])
def test_linear_svm_reaches_the_minimum(data: Any) -> None:
    """Without intercepts, the loss is within 1e-3 of that of LinearSVC with C = 1 / (n l2)."""
    x, y = data()
    l2 = 0.02
    ours = LinearSVM(l2=l2, intercept=False, iterations=1500).fit(x, y)
    # LinearSVC minimises C Σ hinge² + |w|²/2.
    theirs = LinearSVC(C=1 / (len(x) * l2), fit_intercept=False, dual=False, tol=1e-8, max_iter=10_000).fit(
        x, y
    )
    classes = theirs.classes_[1:] if len(theirs.classes_) == 2 else theirs.classes_
    signs = np.where(y[:, None] == classes, 1.0, -1.0)
    hinge = np.maximum(0.0, 1.0 - signs * (x @ theirs.coef_.T))
    minimum = float(np.sum(hinge**2)) / len(x) + l2 / 2 * float(np.sum(theirs.coef_**2))
    assert minimum * (1 - 1e-6) <= ours.losses[-1] <= minimum * (1 + 1e-3)
    assert np.mean(ours.predict(x) == theirs.predict(x)) >= 0.99
    assert ours.intercepts.tolist() == [0.0] * len(classes)


@pytest.mark.parametrize(
    ("data", "landmarks", "iterations"),
    [
        (lambda: make_moons(500, noise=0.2, random_state=0), 1000, 400),
        (lambda: load_digits(return_X_y=True), 300, 300),
    ],
    ids=["moons, all rows", "digits, 300 landmarks"],
)
def test_polynomial_svm_predicts_as_well_as_svc(data: Any, landmarks: int, iterations: int) -> None:
    """On held-out rows the accuracy is at most two points below that of SVC with the same kernel."""
    x, y = data()
    x, held_out, y, labels = train_test_split(x / np.abs(x).max(), y, test_size=0.4, random_state=0)
    ours = PolynomialSVM(landmarks=landmarks, iterations=iterations, l2=1e-4).fit(x, y, partitions=2)
    theirs = SVC(kernel="poly", degree=3, coef0=1.0, gamma="scale").fit(x, y)
    assert ours.gamma == pytest.approx(1 / (x.shape[1] * x.var()), rel=1e-9)
    assert ours.score(held_out, labels) >= theirs.score(held_out, labels) - 0.02


def test_polynomial_svm_reaches_the_minimum() -> None:
    """With every row a landmark, the loss is within 1% of the minimum in the kernel's own features."""
    x, y = make_moons(150, noise=0.2, random_state=1)
    signs = np.where(y == 1, 1.0, -1.0)
    ours = PolynomialSVM(degree=2, gamma=1.0, coef0=1.0, l2=0.01, landmarks=150, iterations=1500).fit(x, y)
    a, b = x.T
    root = np.sqrt(2)
    # (u·v + 1)² is the inner product of these.
    features = np.stack([a * a, b * b, root * a * b, root * a, root * b, np.ones(len(x))], axis=1)

    def objective(point: Rows) -> float:
        short = np.maximum(0.0, 1.0 - signs * (features @ point[:-1] + point[-1]))
        return float(np.mean(short**2) + 0.005 * point[:-1] @ point[:-1])

    minimum = minimize(objective, np.zeros(7)).fun
    assert minimum * (1 - 1e-4) <= ours.losses[-1] <= minimum * 1.01


def test_boosted_regression_keeps_up_with_scikit_learn() -> None:
    """Errors are within 4% of histogram boosting with like settings, and 10% of boosting without histograms.

    The first tree, before small differences in the edges of bins add up, is the same on the training rows.
    """
    x, y = make_friedman1(3000, noise=1.0, random_state=0)
    x, held_out, y, targets = train_test_split(x, y, test_size=0.3, random_state=0)
    ours = GBTRegressor(iterations=80, depth=4, bins=255, l2=0.0, min_rows=20).fit(x, y, partitions=2)
    like = {"max_depth": 4, "max_leaf_nodes": None, "early_stopping": False}
    theirs = HistGradientBoostingRegressor(max_iter=80, **like).fit(x, y)
    first = HistGradientBoostingRegressor(max_iter=1, **like).fit(x, y)
    exact = GradientBoostingRegressor(n_estimators=80, max_depth=4, min_samples_leaf=20, random_state=0).fit(
        x, y
    )
    assert ours.losses[1] == pytest.approx(mean_squared_error(y, first.predict(x)), rel=1e-6)
    assert ours.losses[-1] == pytest.approx(mean_squared_error(y, ours.predict(x)), rel=1e-9)
    for other, tolerance in ((theirs, 0.04), (exact, 0.1)):
        for rows, truth in ((x, y), (held_out, targets)):
            error = mean_squared_error(truth, other.predict(rows))
            assert mean_squared_error(truth, ours.predict(rows)) == pytest.approx(error, rel=tolerance)


def test_boosted_classification_keeps_up_with_scikit_learn() -> None:
    """The log loss on training and on held-out rows is within 6% of histogram boosting with like settings."""
    x, y = cancer()
    x, held_out, y, labels = train_test_split(x, y, test_size=0.4, random_state=0)
    ours = GBTClassifier(iterations=40, depth=3, bins=255, l2=0.0, min_rows=20).fit(x, y, partitions=2)
    theirs = HistGradientBoostingClassifier(
        max_iter=40, max_depth=3, max_leaf_nodes=None, max_bins=255, early_stopping=False
    ).fit(x, y)
    assert ours.losses[-1] == pytest.approx(log_loss(y, ours.predict_proba(x)), rel=1e-9)
    assert ours.losses[-1] == pytest.approx(log_loss(y, theirs.predict_proba(x)), rel=0.06)
    assert log_loss(labels, ours.predict_proba(held_out)) == pytest.approx(
        log_loss(labels, theirs.predict_proba(held_out)), rel=0.06
    )


def test_the_perceptron_descends_as_far_as_scipys_lbfgs() -> None:
    """From the same start, the loss after 60 iterations is at most 10% above that of scipy's L-BFGS-B."""
    x, y = load_digits(return_X_y=True)
    x = x[:600] / 16
    y = y[:600]
    ours = MLPClassifier(hidden=(12,), iterations=60, l2=1e-3, seed=3).fit(x, y, partitions=2)
    sizes, classes = (64, 12, 10), np.arange(10)
    partition = Partition(0, 0, x, y)
    free = np.ones(len(mlp.initial(sizes, 3)))
    free[64 * 12 : 65 * 12] = free[-10:] = 0.0

    def objective(point: Rows) -> tuple[float, Rows]:
        loss, gradient = mlp.loss_and_gradient(partition, point, sizes, "tanh", classes)
        return loss / 600 + 0.0005 * float(free @ point**2), gradient / 600 + 0.001 * free * point

    options = {"maxiter": 60, "maxcor": 10, "ftol": 0.0, "gtol": 0.0}
    theirs = minimize(objective, mlp.initial(sizes, 3), jac=True, method="L-BFGS-B", options=options)
    assert ours.losses[0] == pytest.approx(objective(mlp.initial(sizes, 3))[0], rel=1e-12)
    assert ours.losses[-1] <= 1.1 * theirs.fun
    assert ours.score(x, y) > 0.99
    np.testing.assert_allclose(ours.predict_proba(x).sum(axis=1), 1.0)


def test_lda_has_the_bound_of_scikit_learn() -> None:
    """At the same topics, perplexity and shares are those of scikit-learn to 1e-3; EM ends within 2% of it."""
    x, _ = corpus()
    theirs = LatentDirichletAllocation(4, max_iter=25, random_state=0, evaluate_every=0).fit(x)
    model = LDA(topics=4, iterations=25, seed=0).fit(x, partitions=3)
    start = LDA(topics=4, iterations=0).fit(x)
    theirs.components_ = model.components
    theirs.exp_dirichlet_component_ = np.exp(_expected_log(model.components))
    assert model.perplexity(x) == pytest.approx(theirs.perplexity(x), rel=1e-3)
    np.testing.assert_allclose(model.transform(x), theirs.transform(x), atol=5e-3)
    assert np.exp(model.losses[-1]) == pytest.approx(model.perplexity(x), rel=1e-9)
    assert model.perplexity(x) < 0.8 * start.perplexity(x)


@pytest.mark.parametrize("optimizer", ["em", "online"])
def test_lda_ends_as_well_as_scikit_learn(optimizer: str) -> None:
    """Over four seeds, as local optima differ, the best perplexity is within 2% of scikit-learn's."""
    x, _ = corpus()
    passes = 15
    theirs = [
        LatentDirichletAllocation(
            4,
            max_iter=passes,
            learning_method="batch" if optimizer == "em" else "online",
            batch_size=30,
            random_state=seed,
        )
        .fit(x)
        .perplexity(x)
        for seed in range(4)
    ]
    iterations = passes if optimizer == "em" else passes * 3
    ours = [
        LDA(topics=4, optimizer=optimizer, iterations=iterations, batch_rows=30, seed=seed)
        .fit(sp.csr_array(x))
        .perplexity(x)
        for seed in range(4)
    ]
    assert min(ours) == pytest.approx(min(theirs), rel=0.02)


def test_em_raises_the_bound_at_every_iteration() -> None:
    """Batch EM is monotone, up to how exactly the E-step is solved."""
    losses = LDA(topics=4, iterations=25).fit(corpus()[0]).losses
    assert np.all(np.diff(losses) <= 1e-4)


@pytest.mark.parametrize("l2", [0.0, 0.05])
@pytest.mark.parametrize("intercept", [True, False])
def test_linear_regression_finds_the_least_squares(l2: float, intercept: bool) -> None:
    """Weights are those of the exact solution, Ridge with alpha = n l2, to 1e-6."""
    x, y = diabetes()
    ours = LinearRegression(l2=l2, intercept=intercept, iterations=100).fit(x, y, partitions=2)
    exact = Ridge(alpha=len(x) * l2, fit_intercept=intercept, solver="cholesky") if l2 else None
    theirs = (exact or TheirLinearRegression(fit_intercept=intercept)).fit(x, y)
    np.testing.assert_allclose(ours.weights, theirs.coef_, rtol=1e-4, atol=1e-4)
    assert ours.intercept == pytest.approx(float(theirs.intercept_), rel=1e-6)
    loss = 0.5 * mean_squared_error(y, theirs.predict(x)) + l2 / 2 * float(theirs.coef_ @ theirs.coef_)
    assert ours.losses[-1] == pytest.approx(loss, rel=1e-9)
    assert ours.score(x, y) == pytest.approx(theirs.score(x, y), rel=1e-6)


def _expected_log(components: Rows) -> Rows:
    from scipy.special import psi

    return np.asarray(psi(components) - psi(components.sum(axis=1, keepdims=True)))
