"""Linear regression by L-BFGS."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms import lbfgs
from slaq.algorithms.gradient_descent import penalised
from slaq.algorithms.inputs import Floats, matching, mean_target
from slaq.algorithms.model import Model, r_squared
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearRegressionModel(Model):
    """A hyperplane through the targets."""

    weights: Floats
    intercept: float

    def predict(self, x: Any) -> Floats:
        """Return the predicted target of each row."""
        return np.asarray(matching(x, len(self.weights)) @ self.weights + self.intercept)

    def score(self, x: Any, y: Any) -> float:
        """Return R², the share of the targets' variance that the predictions explain."""
        return r_squared(self.predict(x), y)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRegression(Algorithm[LinearRegressionModel]):
    """Loss: half the mean squared error, plus l2/2 |weights|² (the intercept is free)."""

    l2: float = 0.0
    intercept: bool = True
    #: How many past steps L-BFGS remembers.
    memory: int = 10

    @override
    def check(self) -> None:
        check.real(self, "l2", at_least=0)
        check.flag(self, "intercept")
        check.whole(self, "memory", at_least=1)

    @override
    def __call__(self, ctx: Context) -> LinearRegressionModel:
        mean_target(ctx, "LinearRegression")

        def objective(point: Floats) -> tuple[float, Floats]:
            return penalised(
                ctx.map(loss_and_gradient, point, self.intercept), point, ctx.data.num_rows, self.l2
            )

        run = TrainingRun(ctx, self)
        point = lbfgs.minimise(run, objective, np.zeros(ctx.data.num_features + 1), self.memory)
        return LinearRegressionModel(weights=point[:-1], intercept=float(point[-1]), losses=run.losses)


def loss_and_gradient(partition: Partition, point: Floats, intercept: bool) -> tuple[float, Floats]:
    """Return half the sum of squared errors, and its gradient; the point's last entry is the intercept."""
    error = np.asarray(partition.x @ point[:-1]) + point[-1] - partition.y
    slope = error.sum() if intercept else 0.0
    return float(error @ error) / 2, np.append(partition.x.T @ error, slope)
