"""The paper's nine algorithms (Table 1), each a training program of its own."""

from typing import Any

from slaq.algorithms.gradient_boosting import GBTClassifier, GBTRegressor
from slaq.algorithms.kmeans import KMeans
from slaq.algorithms.lda import LDA
from slaq.algorithms.linear_regression import LinearRegression
from slaq.algorithms.linear_svm import LinearSVM
from slaq.algorithms.logistic_regression import LogisticRegression
from slaq.algorithms.mlp import MLPClassifier
from slaq.algorithms.model import Model
from slaq.algorithms.polynomial_svm import PolynomialSVM
from slaq.algorithms.training import Algorithm

#: The algorithms by the names that job files use.
ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "kmeans": KMeans,
    "logistic-regression": LogisticRegression,
    "linear-svm": LinearSVM,
    "polynomial-svm": PolynomialSVM,
    "gbt-classifier": GBTClassifier,
    "gbt-regressor": GBTRegressor,
    "mlp-classifier": MLPClassifier,
    "lda": LDA,
    "linear-regression": LinearRegression,
}
#: Those that learn from features alone.
UNSUPERVISED = ("kmeans", "lda")

__all__ = [
    "ALGORITHMS",
    "LDA",
    "UNSUPERVISED",
    "Algorithm",
    "GBTClassifier",
    "GBTRegressor",
    "KMeans",
    "LinearRegression",
    "LinearSVM",
    "LogisticRegression",
    "MLPClassifier",
    "Model",
    "PolynomialSVM",
]
