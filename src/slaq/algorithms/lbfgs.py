"""L-BFGS: quasi-Newton steps from the last few changes of the gradient (Nocedal and Wright 2006, ch. 7)."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from slaq.algorithms.gradient_descent import Objective
from slaq.algorithms.inputs import Floats
from slaq.algorithms.training import TrainingRun

#: Wolfe's conditions: the loss must fall by this share of what the slope promises, ...
ARMIJO = 1e-4
#: ... and the slope must flatten to this share.
CURVATURE = 0.9
#: How many steps a line search tries before it takes the best one it has.
TRIALS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterate:
    """A point of the search with the loss and the gradient there."""

    point: Floats
    loss: float
    gradient: Floats


def minimise(run: TrainingRun, objective: Objective, start: Floats, memory: int = 10) -> Floats:
    """Return the best point found when the run is over, or when no step along the search descends.

    An iteration maps over the partitions once when the full step is taken, as it mostly is, and once more
    for each further step that the line search tries.
    """
    state = run.restored or {"point": start, "pairs": []}
    pairs: deque[tuple[Floats, Floats]] = deque(state["pairs"], maxlen=memory)
    here = _evaluate(objective, state["point"])
    if not run.losses:
        run.record(here.loss, state)
    while run.goes_on:
        direction = -inverse_hessian_product(here.gradient, pairs)
        first = 1.0 if pairs else 1.0 / max(1.0, float(np.linalg.norm(here.gradient)))
        there = line_search(objective, here, direction, first)
        if there is None:
            if not pairs:
                break
            # What is remembered misleads (rounding, near the minimum): start again from the gradient.
            pairs.clear()
            continue
        step, change = there.point - here.point, there.gradient - here.gradient
        if float(step @ change) > 1e-10 * float(step @ step):
            pairs.append((step, change))
        here = there
        run.record(here.loss, {"point": here.point, "pairs": list(pairs)})
    return here.point


def inverse_hessian_product(gradient: Floats, pairs: Any) -> Floats:
    """Return the product with the inverse Hessian that the pairs (s, y) imply: the two-loop recursion."""
    q = gradient.copy()
    weights: list[float] = []
    for s, y in reversed(pairs):
        weights.append(float(s @ q) / float(s @ y))
        q -= weights[-1] * y
    if pairs:
        s, y = pairs[-1]
        q *= float(s @ y) / float(y @ y)
    for (s, y), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - float(y @ q) / float(s @ y)) * s
    return q


def line_search(objective: Objective, here: Iterate, direction: Floats, first: float) -> Iterate | None:
    """Return a point along the direction that meets Wolfe's conditions, else the best seen, None if none descends.

    The step is doubled while the slope is still steep, and bisected once it has been too long (Lewis and
    Overton 2013).
    """
    slope = float(direction @ here.gradient)
    if not slope < 0:
        return None
    short, long, step, best = 0.0, np.inf, first, None
    for _ in range(TRIALS):
        there = _evaluate(objective, here.point + step * direction)
        if not there.loss <= here.loss + ARMIJO * step * slope:
            long = step
        else:
            best = there
            if float(direction @ there.gradient) >= CURVATURE * slope:
                break
            short = step
        step = 2 * short if long == np.inf else (short + long) / 2
    return best


def _evaluate(objective: Objective, point: Floats) -> Iterate:
    loss, gradient = objective(point)
    return Iterate(point=point, loss=loss, gradient=gradient)
