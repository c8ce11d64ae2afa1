"""A multi-layer perceptron that classifies, trained on all rows at once by L-BFGS."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms import lbfgs
from slaq.algorithms.gradient_descent import total
from slaq.algorithms.inputs import Floats, class_labels, label_codes, matching
from slaq.algorithms.model import Model, accuracy, chosen
from slaq.algorithms.probabilities import log_softmax, logistic, softmax
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.jobs.context import Context
from slaq.jobs.data import Partition

#: For each activation: its value at z, and its slope as a function of that value.
ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "tanh": (np.tanh, lambda a: 1.0 - a * a),
    "logistic": (logistic, lambda a: a * (1.0 - a)),
    "relu": (lambda z: np.maximum(z, 0.0), lambda a: (a > 0).astype(float)),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MLPClassifierModel(Model):
    """Layers of weights; what the last one gives are log-probabilities, up to a constant."""

    weights: tuple[Floats, ...]  # each inputs x outputs
    biases: tuple[Floats, ...]
    activation: str
    classes: NDArray[Any]

    def decision(self, x: Any) -> Floats:
        """Return the last layer's values for each row (rows x classes)."""
        rows = matching(x, len(self.weights[0]))
        return forward(rows, list(zip(self.weights, self.biases, strict=True)), self.activation)[-1]

    def predict_proba(self, x: Any) -> Floats:
        """Return the probability of each class for each row (rows x classes)."""
        return softmax(self.decision(x))

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the class of each row."""
        return chosen(self.decision(x), self.classes)

    def score(self, x: Any, y: Any) -> float:
        """Return the share of rows whose class is predicted right."""
        return accuracy(self.predict(x), y)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLPClassifier(Algorithm[MLPClassifierModel]):
    """Loss: the mean over rows of -log p(label), plus l2/2 |weights|² (biases are free)."""

    #: Units of each hidden layer.
    hidden: tuple[int, ...] = (32,)
    activation: str = "tanh"
    l2: float = 1e-4
    #: How many past steps L-BFGS remembers.
    memory: int = 10
    seed: int = 0

    @override
    def check(self) -> None:
        object.__setattr__(self, "hidden", check.wholes(self, "hidden", at_least=1))
        check.choice(self, "activation", ACTIVATIONS)
        check.real(self, "l2", at_least=0)
        check.whole(self, "memory", at_least=1)
        check.whole(self, "seed", at_least=0)

    @override
    def __call__(self, ctx: Context) -> MLPClassifierModel:
        classes = class_labels(ctx, "MLPClassifier")
        sizes = (ctx.data.num_features, *self.hidden, len(classes))
        penalised = _is_weight(sizes)

        def objective(point: Floats) -> tuple[float, Floats]:
            loss, gradient = total(ctx.map(loss_and_gradient, point, sizes, self.activation, classes))
            weights = np.where(penalised, point, 0.0)
            rows = ctx.data.num_rows
            return loss / rows + self.l2 / 2 * float(weights @ weights), gradient / rows + self.l2 * weights

        # The memory of L-BFGS makes a checkpoint many times the model, so it is not kept every time.
        run = TrainingRun(ctx, self, checkpoint_every=5)
        point = lbfgs.minimise(run, objective, initial(sizes, self.seed), self.memory)
        weights, biases = zip(*layers(point, sizes), strict=True)
        return MLPClassifierModel(
            weights=weights, biases=biases, activation=self.activation, classes=classes, losses=run.losses
        )


def initial(sizes: tuple[int, ...], seed: int) -> Floats:
    """Return weights within ±sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010), and zero biases."""
    generator = np.random.default_rng(seed)
    parts = []
    for inputs, outputs in pairwise(sizes):
        bound = np.sqrt(6.0 / (inputs + outputs))
        parts += [generator.uniform(-bound, bound, inputs * outputs), np.zeros(outputs)]
    return np.concatenate(parts)


def layers(point: Floats, sizes: tuple[int, ...]) -> list[tuple[Floats, Floats]]:
    """Return the weights and biases of each layer, which lie one after another in the point."""
    found, offset = [], 0
    for inputs, outputs in pairwise(sizes):
        middle, end = offset + inputs * outputs, offset + (inputs + 1) * outputs
        found.append((point[offset:middle].reshape(inputs, outputs), point[middle:end]))
        offset = end
    return found


def forward(x: Any, network: list[tuple[Floats, Floats]], activation: str) -> list[Floats]:
    """Return what each layer gives for the rows, the last one without an activation."""
    value, _ = ACTIVATIONS[activation]
    given: list[Floats] = []
    below = x
    for weights, biases in network[:-1]:
        below = value(below @ weights + biases)
        given.append(below)
    weights, biases = network[-1]
    return [*given, np.asarray(below @ weights + biases)]


def loss_and_gradient(
    partition: Partition, point: Floats, sizes: tuple[int, ...], activation: str, classes: NDArray[Any]
) -> tuple[float, Floats]:
    """Return the sum over rows of -log p(label), and its gradient by backpropagation."""
    network, (_, slope) = layers(point, sizes), ACTIVATIONS[activation]
    given = forward(partition.x, network, activation)
    rows, codes = np.arange(len(partition)), label_codes(partition, classes)
    logs = log_softmax(given[-1])
    error = np.exp(logs)
    error[rows, codes] -= 1.0
    parts: list[Floats] = []
    for depth in reversed(range(len(network))):
        below = given[depth - 1] if depth else partition.x
        parts = [np.ravel(below.T @ error), error.sum(axis=0), *parts]
        if depth:
            error = (error @ network[depth][0].T) * slope(below)
    return -float(logs[rows, codes].sum()), np.concatenate(parts)


def _is_weight(sizes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return for each entry of a point whether it is a weight rather than a bias."""
    marks = [np.repeat([True, False], [inputs * outputs, outputs]) for inputs, outputs in pairwise(sizes)]
    return np.concatenate(marks)
