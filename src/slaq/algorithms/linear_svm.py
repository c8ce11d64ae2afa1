"""A linear support vector machine by gradient descent on the squared hinge loss."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.gradient_descent import descend, penalised, squared_scale
from slaq.algorithms.inputs import Floats, class_labels, signs
from slaq.algorithms.model import LinearClassifierModel
from slaq.algorithms.training import Algorithm, Course
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearSVMModel(LinearClassifierModel):
    """Hyperplanes with a margin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSVM(Algorithm[LinearSVMModel]):
    """Loss: the mean over rows of max(0, 1 - ±value)², plus l2/2 |weights|² (intercepts are free).

    The hinge is squared because that makes it smooth: plain gradient descent converges with a constant
    step. More than two classes are separated one against the rest, and the loss is summed over them.
    Gradient descent is slow where features differ much in scale: standardise them first.
    """

    l2: float = 1e-4
    intercept: bool = True
    #: Step along the gradient; None takes 1/L, L being the largest curvature, found in a dozen passes.
    learning_rate: float | None = None

    @override
    def check(self) -> None:
        check.real(self, "l2", at_least=0)
        check.flag(self, "intercept")
        check.optional_real(self, "learning_rate", above=0)

    @override
    def __call__(self, ctx: Context) -> LinearSVMModel:
        classes = class_labels(ctx, "LinearSVM")
        outputs = 1 if len(classes) == 2 else len(classes)
        rows, features = ctx.data.num_rows, ctx.data.num_features

        def objective(point: Floats) -> tuple[float, Floats]:
            parts = ctx.map(loss_and_gradient, point, classes, self.intercept)
            return penalised(parts, point, rows, self.l2)

        def rate() -> float:
            if self.learning_rate is not None:
                return self.learning_rate
            # The second derivative of the squared hinge is at most 2.
            return 1.0 / (2.0 * squared_scale(ctx, intercept=self.intercept) + self.l2)

        course = Course(ctx, self)
        point = descend(course, objective, np.zeros((features + 1, outputs)), rate)
        return LinearSVMModel(weights=point[:-1], intercepts=point[-1], classes=classes, losses=course.losses)


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
