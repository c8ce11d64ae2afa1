"""Gradient descent over partitions: the loop, and the largest step that is sure to descend."""

from collections.abc import Callable
from typing import Any

import numpy as np

from slaq.algorithms.inputs import Floats
from slaq.algorithms.training import TrainingRun
from slaq.jobs.context import Context
from slaq.jobs.data import Partition

#: Returns the loss at a point and its gradient there.
Objective = Callable[[Floats], tuple[float, Floats]]


def total(parts: list[tuple[float, Floats]]) -> tuple[float, Floats]:
    """Return the sums of the losses and of the gradients that the partitions' tasks returned."""
    losses, gradients = zip(*parts, strict=True)
    return float(sum(losses)), np.sum(gradients, axis=0)


def penalised(parts: list[tuple[float, Floats]], point: Floats, rows: int, l2: float) -> tuple[float, Floats]:
    """Return the mean over rows plus l2/2 |weights|², and its gradient; the last row, intercepts, is free."""
    loss, gradient = total(parts)
    weights = point.copy()
    weights[-1] = 0.0
    return loss / rows + l2 / 2 * float(np.sum(weights**2)), gradient / rows + l2 * weights


def descend(run: TrainingRun, objective: Objective, start: Floats, rate: Callable[[], float]) -> Floats:
    """Return the point that w <- w - rate * gradient(w) has led to when the run is over."""
    state = run.restored
    if state is None:
        state = {"point": start, "rate": rate()}
    point, step = state["point"], state["rate"]
    loss, gradient = objective(point)
    if not run.losses:
        run.record(loss, state)
    while run.goes_on:
        point = point - step * gradient
        loss, gradient = objective(point)
        run.record(loss, {"point": point, "rate": step})
    return np.asarray(point)


def largest_eigenvalue(product: Callable[[Floats], Floats], size: int, rounds: int = 12) -> float:
    """Return the largest eigenvalue of a positive matrix, of which only products are known (power iteration).

    A dozen rounds may fall a few per cent short, which is harmless here: descent is sure for any step
    below 2 / L, and 1 / L is used.
    """
    direction = np.random.default_rng(0).standard_normal(size)
    value = 0.0
    for _ in range(rounds):
        direction /= np.linalg.norm(direction) or 1.0
        direction = product(direction)
        value = float(np.linalg.norm(direction))
    return value


def squared_scale(ctx: Context, *, intercept: bool) -> float:
    """Return the largest eigenvalue of the mean of x x', where x may end in a 1 for the intercept.

    It bounds the curvature of every loss of the form mean(f(w·x)) by itself times the largest f''.
    """

    def product(direction: Floats) -> Floats:
        products: list[Floats] = ctx.map(_gram_product, direction, intercept)
        return np.asarray(np.sum(products, axis=0) / ctx.data.num_rows)

    return largest_eigenvalue(product, ctx.data.num_features + intercept)


def _gram_product(partition: Partition, direction: Floats, intercept: bool) -> Floats:
    """Return X'X times a direction, X having a column of ones at its end if there is an intercept."""
    x: Any = partition.x
    width = x.shape[1]
    image = x @ direction[:width] + (direction[-1] if intercept else 0.0)
    product = np.asarray(x.T @ image, dtype=float)
    return np.append(product, image.sum()) if intercept else product
