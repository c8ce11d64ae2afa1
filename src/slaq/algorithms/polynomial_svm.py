"""A support vector machine with a polynomial kernel, by gradient descent among the kernel's functions.

f(x) = Σ_j a_j K(l_j, x) + b is expanded over landmarks l_j: rows drawn once and sent to every task. With as
many landmarks as rows this is the full kernel machine; with fewer it is the best machine in their span
(the reduced SVM of Lee and Mangasarian 2001), and a task costs rows x landmarks instead of rows².

The gradient of the loss in the space of functions, projected onto that span, has the coefficients
K_ll⁻¹ Σ_i f'_i K(l, x_i) + l2 a. Descending along it, rather than along the gradient by a, is what
makes the descent independent of how nearly alike the landmarks are. And it is done with K(l, x) less its
mean over all rows, which moves nothing but b, because that mean would otherwise bound the step.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.gradient_descent import descend, largest_eigenvalue, total
from slaq.algorithms.inputs import Floats, class_labels, matching, signs, values_of
from slaq.algorithms.linear_svm import squared_hinge
from slaq.algorithms.model import Model, accuracy, chosen
from slaq.algorithms.sampling import sample
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PolynomialKernel:
    """K(u, v) = (gamma u·v + coef0) ** degree."""

    degree: int
    gamma: float
    coef0: float

    def __call__(self, x: Any, landmarks: Floats) -> Floats:
        """Return the kernel of each row with each landmark (rows x landmarks)."""
        base = np.asarray(x @ landmarks.T)
        base *= self.gamma
        base += self.coef0
        power = base.copy()
        # Multiplying is several times faster than raising to a power.
        for _ in range(self.degree - 1):
            power *= base
        return power


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expansion:
    """The landmarks, and the mean over all rows of each one's kernel."""

    kernel: PolynomialKernel
    landmarks: Floats
    means: Floats

    def images(self, x: Any) -> Floats:
        """Return the kernel of each row with each landmark, less the means."""
        images = self.kernel(x, self.landmarks)
        images -= self.means
        return images


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolynomialSVMModel(Model):
    """An expansion over landmarks."""

    landmarks: Floats  # landmarks x features
    coefficients: Floats  # landmarks x outputs
    intercepts: Floats
    classes: NDArray[Any]
    degree: int
    gamma: float
    coef0: float

    def decision(self, x: Any) -> Floats:
        """Return each row's value for each output (rows x outputs)."""
        kernel = PolynomialKernel(degree=self.degree, gamma=self.gamma, coef0=self.coef0)
        rows = matching(x, self.landmarks.shape[1])
        return kernel(rows, self.landmarks) @ self.coefficients + self.intercepts

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the class of each row."""
        return chosen(self.decision(x), self.classes)

    def score(self, x: Any, y: Any) -> float:
        """Return the share of rows whose class is predicted right."""
        return accuracy(self.predict(x), y)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolynomialSVM(Algorithm[PolynomialSVMModel]):
    """Loss: the mean over rows of max(0, 1 - ±f(x))², plus l2/2 |f|² (intercepts are free).

    |f|² = a' K_ll a. More than two classes are separated one against the rest, the loss summed over them.
    """

    degree: int = 3
    #: None takes 1 / (features * variance of all entries), as scikit-learn's "scale".
    gamma: float | None = None
    coef0: float = 1.0
    l2: float = 1e-3
    #: How many rows to expand over, all where there are fewer.
    landmarks: int = 256
    #: Step along the gradient; None takes 1/L, L being the largest curvature, found in a dozen passes.
    learning_rate: float | None = None
    seed: int = 0

    @override
    def check(self) -> None:
        check.whole(self, "degree", at_least=1)
        check.optional_real(self, "gamma", above=0)
        check.real(self, "coef0", at_least=0)
        check.real(self, "l2", at_least=0)
        check.whole(self, "landmarks", at_least=1)
        check.optional_real(self, "learning_rate", above=0)
        check.whole(self, "seed", at_least=0)

    @override
    def __call__(self, ctx: Context) -> PolynomialSVMModel:
        classes = class_labels(ctx, "PolynomialSVM")
        outputs, rows = 1 if len(classes) == 2 else len(classes), ctx.data.num_rows
        kernel = PolynomialKernel(degree=self.degree, gamma=self.gamma or _scale(ctx), coef0=self.coef0)
        landmarks = sample(ctx, self.landmarks, self.seed)
        means = np.sum(ctx.map(_kernel_sums, kernel, landmarks), axis=0) / rows
        expansion = Expansion(kernel=kernel, landmarks=landmarks, means=means)
        gram = kernel(landmarks, landmarks)
        # A trace of ridge, so that landmarks that are alike leave the matrix invertible.
        ridge = 1e-6 * float(np.trace(gram)) / len(gram) * np.eye(len(gram))
        # K_ll = C C', so that K_ll⁻¹ = root' root: symmetric and positive to the last digit.
        root = np.linalg.inv(np.linalg.cholesky(gram + ridge))

        def objective(point: Floats) -> tuple[float, Floats]:
            loss, gradient = total(ctx.map(loss_and_gradient, point, expansion, classes))
            weights = point[:-1]
            penalty = self.l2 / 2 * float(np.sum(weights * (gram @ weights)))
            slope = np.vstack([root.T @ (root @ gradient[:-1]), gradient[-1:]]) / rows
            slope[:-1] += self.l2 * weights
            return loss / rows + penalty, slope

        def product(direction: Floats) -> Floats:
            image = np.sum(ctx.map(_kernel_product, direction, expansion), axis=0) / rows
            return np.append(root.T @ (root @ image[:-1]), image[-1])

        def rate() -> float:
            if self.learning_rate is not None:
                return self.learning_rate
            # The second derivative of the squared hinge is at most 2.
            return 1.0 / (2.0 * largest_eigenvalue(product, len(landmarks) + 1) + self.l2)

        run = TrainingRun(ctx, self)
        point = descend(run, objective, np.zeros((len(landmarks) + 1, outputs)), rate)
        return PolynomialSVMModel(
            landmarks=landmarks,
            coefficients=point[:-1],
            intercepts=point[-1] - means @ point[:-1],
            classes=classes,
            degree=kernel.degree,
            gamma=kernel.gamma,
            coef0=kernel.coef0,
            losses=run.losses,
        )


def loss_and_gradient(
    partition: Partition, point: Floats, expansion: Expansion, classes: NDArray[Any]
) -> tuple[float, Floats]:
    """Return the sum over rows of the squared hinge, and its gradient; the point's last row is the intercepts."""
    images = expansion.images(partition.x)
    loss, residual = squared_hinge(images @ point[:-1] + point[-1], signs(partition, classes))
    return loss, np.vstack([images.T @ residual, residual.sum(axis=0)])


def _kernel_product(partition: Partition, direction: Floats, expansion: Expansion) -> Floats:
    """Return K'K times a direction, K having a column of ones at its end."""
    images = expansion.images(partition.x)
    image = images @ direction[:-1] + direction[-1]
    return np.append(images.T @ image, image.sum())


def _kernel_sums(partition: Partition, kernel: PolynomialKernel, landmarks: Floats) -> Floats:
    """Return the sum over rows of each landmark's kernel."""
    return np.asarray(kernel(partition.x, landmarks).sum(axis=0))


def _scale(ctx: Context) -> float:
    """Return 1 / (features * variance of all entries)."""
    totals, squares = np.sum(ctx.map(_entries), axis=0)
    entries = ctx.data.num_rows * ctx.data.num_features
    variance = squares / entries - (totals / entries) ** 2
    return 1.0 / (ctx.data.num_features * float(variance)) if variance > 0 else 1.0


def _entries(partition: Partition) -> Floats:
    values = values_of(partition.x)
    return np.array([values.sum(dtype=float), np.square(values, dtype=float).sum()])
