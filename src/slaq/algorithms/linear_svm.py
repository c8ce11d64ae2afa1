"""A linear support vector machine by gradient descent on the squared hinge loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms.inputs import Floats, signs
from slaq.algorithms.linear_classifier import LinearClassifier
from slaq.algorithms.model import LinearClassifierModel
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearSVMModel(LinearClassifierModel):
    """Hyperplanes with a margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSVM(LinearClassifier[LinearSVMModel]):
    """Loss: the mean over rows of max(0, 1 - ±value)², plus l2/2 |weights|² (intercepts are free).

    The hinge is squared because that makes it smooth: plain gradient descent converges with a constant
    step. More than two classes are separated one against the rest, and the loss is summed over them.
    Gradient descent is slow where features differ much in scale: standardise them first.
    """

    @override
    def __call__(self, ctx: Context) -> LinearSVMModel:
        # The second derivative of the squared hinge is at most 2.
        return LinearSVMModel(**self._descend(ctx, loss_and_gradient, lambda outputs: 2.0))


def squared_hinge(values: Floats, labels: Floats) -> tuple[float, Floats]:
    """Return the sum of max(0, 1 - label * value)², and its derivative by each value."""
    short = np.maximum(0.0, 1.0 - labels * values)
    return float(np.sum(short**2)), -2.0 * labels * short


def loss_and_gradient(
    partition: Partition, point: Floats, classes: NDArray[Any], intercept: bool
) -> tuple[float, Floats]:
    """Return the sum over rows of the squared hinge, and its gradient; the point's last row is the intercepts."""
    values = np.asarray(partition.x @ point[:-1] + point[-1])
    loss, residual = squared_hinge(values, signs(partition, classes))
    slope = residual.sum(axis=0) if intercept else np.zeros(values.shape[1])
    return loss, np.vstack([partition.x.T @ residual, slope])
