"""Small data for each algorithm, and settings under which it trains in a moment."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, make_blobs, make_classification
from sklearn.preprocessing import StandardScaler

from slaq.algorithms import (
    LDA,
    Algorithm,
    GBTClassifier,
    GBTRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MLPClassifier,
    PolynomialSVM,
)

Sample = tuple[Any, Any]


@cache
def two_classes() -> Sample:
    """Two classes that overlap, with labels that are not 0 and 1."""
    x, y = make_classification(300, 8, n_informative=5, random_state=1)
    return StandardScaler().fit_transform(x), np.where(y == 1, "yes", "no")


@cache
def three_classes() -> Sample:
    """Three classes, labelled -1, 0 and 7."""
    x, y = make_classification(240, 6, n_informative=4, n_redundant=0, n_classes=3, random_state=2)
    return StandardScaler().fit_transform(x), np.array([-1, 0, 7])[y]


@cache
def blobs() -> Sample:
    """Four clusters, some entries of which are 0."""
    x, _ = make_blobs(200, 5, centers=4, random_state=3)
    return np.where(np.abs(x) < 1.5, 0.0, x), None


@cache
def diabetes() -> Sample:
    """Ten features of patients and how their disease went on."""
    x, y = load_diabetes(return_X_y=True)
    return StandardScaler().fit_transform(x), y


@cache
def corpus() -> Sample:
    """Documents of 60 words from four topics of 80 words."""
    generator = np.random.default_rng(4)
    topics = generator.dirichlet(np.full(80, 0.1), 4)
    shares = generator.dirichlet(np.full(4, 0.2), 90)
    return np.stack([generator.multinomial(60, share @ topics) for share in shares]), None


#: By name: the algorithm with few iterations, and its data.
CASES: dict[str, tuple[Algorithm[Any], Callable[[], Sample]]] = {
    "kmeans": (KMeans(k=4, iterations=6), blobs),
    "kmeans sampled": (KMeans(k=6, init="sample", iterations=6, seed=5), blobs),
    "logistic two": (LogisticRegression(iterations=15), two_classes),
    "logistic three": (LogisticRegression(iterations=15, l2=0.1), three_classes),
    "svm two": (LinearSVM(iterations=15), two_classes),
    "svm three": (LinearSVM(iterations=15, intercept=False), three_classes),
    "polynomial two": (PolynomialSVM(iterations=10, landmarks=60), two_classes),
    "polynomial three": (PolynomialSVM(iterations=10, degree=2, landmarks=1000), three_classes),
    "gbt classifier": (GBTClassifier(iterations=8, bins=16), two_classes),
    "gbt regressor": (GBTRegressor(iterations=8, depth=3), diabetes),
    "mlp": (MLPClassifier(iterations=12, hidden=(6, 5)), three_classes),
    "mlp two": (MLPClassifier(iterations=7, hidden=(4,), activation="relu"), two_classes),
    "lda em": (LDA(iterations=6, topics=4), corpus),
    "lda online": (LDA(iterations=8, topics=4, optimizer="online", batch_rows=20), corpus),
    "linear regression": (LinearRegression(iterations=8, l2=0.01), diabetes),
}


def sparse(x: Any) -> Any:
    """Return the rows as a CSR array."""
    return sp.csr_array(x)
