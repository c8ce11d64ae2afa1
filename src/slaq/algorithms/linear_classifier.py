"""What the linear classifiers share: their hyperparameters, and gradient descent on a smooth loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.gradient_descent import descend, penalised, squared_scale
from slaq.algorithms.inputs import Floats, class_labels
from slaq.algorithms.model import LinearClassifierModel
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.jobs.context import Context

M_co = TypeVar("M_co", bound=LinearClassifierModel, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearClassifier(Algorithm[M_co]):
    """A classifier of one hyperplane for two classes, and one for each of more.

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

    def _descend(
        self,
        ctx: Context,
        loss_and_gradient: Callable[..., tuple[float, Floats]],
        curvature: Callable[[int], float],
    ) -> dict[str, Any]:
        """Train in the context; return the fields of the model.

        `loss_and_gradient(partition, point, classes, intercept)` runs in tasks. `curvature` returns a bound of the
        second derivative of the loss by a value, given the number of outputs.
        """
        classes = class_labels(ctx, type(self).__name__)
        outputs = 1 if len(classes) == 2 else len(classes)
        rows, features = ctx.data.num_rows, ctx.data.num_features

        def objective(point: Floats) -> tuple[float, Floats]:
            parts = ctx.map(loss_and_gradient, point, classes, self.intercept)
            return penalised(parts, point, rows, self.l2)

        def rate() -> float:
            if self.learning_rate is not None:
                return self.learning_rate
            return 1.0 / (curvature(outputs) * squared_scale(ctx, intercept=self.intercept) + self.l2)

        run = TrainingRun(ctx, self)
        point = descend(run, objective, np.zeros((features + 1, outputs)), rate)
        return {"weights": point[:-1], "intercepts": point[-1], "classes": classes, "losses": run.losses}
