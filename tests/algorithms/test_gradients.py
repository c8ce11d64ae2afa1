"""Laws of the gradients that tasks return: each is the slope of the loss beside it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.algorithms import linear_regression, linear_svm, logistic_regression, mlp, polynomial_svm
from slaq.algorithms.gradient_boosting import Boosting
from slaq.algorithms.inputs import Floats, dense
from slaq.jobs.data import Partition
from tests.algorithms.samples import diabetes, sparse, three_classes, two_classes

Task = Callable[[Partition, Floats], tuple[float, Floats]]

KERNEL = polynomial_svm.PolynomialKernel(degree=3, gamma=0.2, coef0=0.5)


def rows(data: tuple[Any, Any], number: int = 25) -> Partition:
    """Return some rows as a partition."""
    x, y = data
    return Partition(0, 0, x[:number], y[:number])


def classes_of(partition: Partition) -> Any:
    """Return the distinct labels of a partition."""
    assert partition.y is not None
    return np.unique(partition.y)


def logistic(partition: Partition, point: Floats) -> tuple[float, Floats]:
    return logistic_regression.loss_and_gradient(partition, point, classes_of(partition), True)


def hinge(partition: Partition, point: Floats) -> tuple[float, Floats]:
    return linear_svm.loss_and_gradient(partition, point, classes_of(partition), True)


def kernel(partition: Partition, point: Floats) -> tuple[float, Floats]:
    landmarks = dense(partition.x[:6])
    expansion = polynomial_svm.Expansion(kernel=KERNEL, landmarks=landmarks, means=np.arange(6.0))
    return polynomial_svm.loss_and_gradient(partition, point, expansion, classes_of(partition))


def squares(partition: Partition, point: Floats) -> tuple[float, Floats]:
    return linear_regression.loss_and_gradient(partition, point, True)


def perceptron(activation: str) -> Task:
    def task(partition: Partition, point: Floats) -> tuple[float, Floats]:
        sizes = (6, 4, 3, 3)
        return mlp.loss_and_gradient(partition, point, sizes, activation, classes_of(partition))

    return task


TASKS: dict[str, tuple[Task, Partition, tuple[int, ...]]] = {
    "logistic, two classes": (logistic, rows(two_classes()), (9, 1)),
    "logistic, three classes": (logistic, rows(three_classes()), (7, 3)),
    "squared hinge, two classes": (hinge, rows(two_classes()), (9, 1)),
    "squared hinge, three classes": (hinge, rows(three_classes()), (7, 3)),
    "polynomial kernel": (kernel, rows(three_classes()), (7, 3)),
    "squared error": (squares, rows(diabetes()), (11,)),
    "perceptron, tanh": (perceptron("tanh"), rows(three_classes()), (55,)),
    "perceptron, logistic": (perceptron("logistic"), rows(three_classes()), (55,)),
    "perceptron, relu": (perceptron("relu"), rows(three_classes()), (55,)),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_gradient_is_the_slope_of_its_loss(name: str) -> None:
    """Central differences along random directions agree to six digits."""
    task, partition, shape = TASKS[name]
    generator = np.random.default_rng(0)
    for _ in range(5):
        point, direction = generator.standard_normal((2, *shape)) * 0.5
        loss, gradient = task(partition, point)
        assert gradient.shape == shape
        width = 1e-6
        ahead, _ = task(partition, point + width * direction)
        behind, _ = task(partition, point - width * direction)
        slope = (ahead - behind) / (2 * width)
        assert float(np.sum(gradient * direction)) == pytest.approx(slope, rel=1e-6, abs=1e-6 * abs(loss))


@pytest.mark.parametrize("name", TASKS)
def test_sparse_rows_have_the_same_gradient(name: str) -> None:
    """A task returns the same for CSR rows as for the same rows dense."""
    task, partition, shape = TASKS[name]
    point = np.random.default_rng(1).standard_normal(shape)
    loss, gradient = task(partition, point)
    other_loss, other_gradient = task(Partition(0, 0, sparse(partition.x), partition.y), point)
    assert other_loss == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(other_gradient, gradient, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("classes", [None, np.array(["no", "yes"])])
@given(margin=st.floats(-20, 20))
def test_boosting_follows_the_slope_and_curvature_of_its_loss(classes: Any, margin: float) -> None:
    """Gradient and curvature of each row are the first and second derivative of its loss, or half of it."""
    y = np.array([1.5]) if classes is None else np.array(["yes"])
    partition = Partition(0, 0, np.zeros((1, 1)), y)
    boosting = Boosting(token="", edges=np.zeros((1, 1)), bias=0.0, classes=classes)
    losses, sums = zip(
        *(boosting.loss_and_sums(partition, np.array([margin + shift])) for shift in (-1e-4, 0.0, 1e-4)),
        strict=True,
    )
    scale = 0.5 if classes is None else 1.0
    gradient, curvature = sums[1][:2, 0]
    assert gradient == pytest.approx(scale * (losses[2] - losses[0]) / 2e-4, rel=1e-4, abs=1e-7)
    slope = (sums[2][0, 0] - sums[0][0, 0]) / 2e-4
    assert curvature == pytest.approx(slope, rel=1e-4, abs=1e-7)
