"""Logistic regression by gradient descent, for two classes or more."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms.inputs import Floats, label_codes, signs
from slaq.algorithms.linear_classifier import LinearClassifier
from slaq.algorithms.model import LinearClassifierModel
from slaq.algorithms.probabilities import log_softmax, logistic, softmax
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogisticRegressionModel(LinearClassifierModel):
    """Weights whose values at a row are log-odds."""

    def predict_proba(self, x: Any) -> Floats:
        """Return the probability of each class for each row (rows x classes)."""
        values = self.decision(x)
        if values.shape[1] == 1:
            return np.hstack([logistic(-values), logistic(values)])
        return softmax(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression(LinearClassifier[LogisticRegressionModel]):
    """Loss: the mean over rows of -log p(label), plus l2/2 |weights|² (intercepts are free).

    Two classes have one output (logistic), more have one each (softmax). Gradient descent is slow where
    features differ much in scale: standardise them first.
    """

    @override
    def __call__(self, ctx: Context) -> LogisticRegressionModel:
        # The logistic function's slope is at most 1/4, the softmax's at most 1/2.
        fields = self._descend(ctx, loss_and_gradient, lambda outputs: 0.25 if outputs == 1 else 0.5)
        return LogisticRegressionModel(**fields)


def loss_and_gradient(
    partition: Partition, point: Floats, classes: NDArray[Any], intercept: bool
) -> tuple[float, Floats]:
    """Return the sum over rows of -log p(label), and its gradient; the point's last row is the intercepts."""
    values = np.asarray(partition.x @ point[:-1] + point[-1])
    if values.shape[1] == 1:
        labels = signs(partition, classes)
        loss = float(np.logaddexp(0.0, -labels * values).sum())
        residual = -labels * logistic(-labels * values)
    else:
        codes, rows = label_codes(partition, classes), np.arange(len(partition))
        logs = log_softmax(values)
        loss = -float(logs[rows, codes].sum())
        residual = np.exp(logs)
        residual[rows, codes] -= 1.0
    slope = residual.sum(axis=0) if intercept else np.zeros(values.shape[1])
    return loss, np.vstack([partition.x.T @ residual, slope])
