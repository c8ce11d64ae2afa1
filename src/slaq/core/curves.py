"""The curve families, fitted to all jobs at once: each fit is a fixed linear filter over recent losses.

A family has the form  f(t) = level + slope * (shape(t) - shape(0)),  with t = 0 now, t < 0 in the past. Once
its shape is fixed, weighted least squares gives level and slope as weighted sums of the losses, with
weights that depend on nothing but the number of losses at hand. So a grid over the shape parameter turns
the paper's two families (§4.2.2) and the power law into one matrix product for any number of jobs, and a new
loss costs the same however long the history is.

    exponential  mu**t                 mu^(k-b)+c             L-BFGS and other linear convergence
    power        (1 + t/age)**-p       1/(ak^2+bk+c)+d        p = 1 and 2 are the paper's 1/k and 1/k^2
                                                              ends; p = 1/2 the slower ones of SGD
    flat         no slope              a smoothed or last loss

Losses are weighted by decay**lag: with a small decay a fit follows the last few losses, with a large one the
whole window.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slaq.core.arrays import Booleans, Floats

#: Losses kept per job. At the slowest decay the oldest loss has a seventh of the weight of the newest.
WINDOW = 64

QUICK, MEDIUM, LONG = 0.6, 0.85, 0.97

FAMILIES = ("exponential", "power", "flat")


@dataclass(frozen=True, slots=True)
class Curve:
    """One member of a family: its shape, the decay of its weights, and where it starts."""

    #: One of FAMILIES.
    family: str
    #: Weight of a loss relative to the next; 0 uses the last loss only.
    decay: float
    #: For an exponential: mu. For a power law: the iterations that it began before its first loss.
    parameter: float = 0.0
    #: p of a power law.
    power: float = 0.0
    #: Whether the curve starts from the last loss instead of its own fit: better without noise, worse with noise.
    anchored: bool = False

    def shape(self, t: Floats, count: int) -> Floats:
        """Return shape(t) - shape(0), falling and convex, for a job with `count` losses."""
        if self.family == "flat":
            return np.zeros_like(t)
        if self.family == "exponential":
            return self.parameter**t - 1.0
        age = count - 1 + self.parameter
        return np.asarray((1.0 + t / age) ** -self.power - 1.0)


def _exponentials(decay: float, rates: tuple[float, ...], *, anchored: bool) -> Iterator[Curve]:
    for rate in rates:
        yield Curve("exponential", decay, rate, anchored=anchored)


def _powers(decay: float, ages: tuple[tuple[float, float], ...], *, anchored: bool) -> Iterator[Curve]:
    for power, age in ages:
        yield Curve("power", decay, age, power, anchored=anchored)


#: The curves that are fitted to every job, in the order of the rows of `evidence.PRIOR`.
CURVES: tuple[Curve, ...] = (
    Curve("flat", 0.0, anchored=True),
    Curve("flat", QUICK),
    Curve("flat", MEDIUM),
    Curve("flat", LONG),
    *_exponentials(QUICK, (0.5, 0.7, 0.85, 0.93, 0.97, 0.99), anchored=True),
    *_powers(QUICK, ((0.5, 1), (1, 0.5), (1, 5), (1, 40), (2, 1), (2, 10)), anchored=True),
    *_exponentials(MEDIUM, (0.5,), anchored=True),
    *_powers(MEDIUM, ((1, 0.5), (2, 1)), anchored=True),
    *_powers(LONG, ((1, 0.5), (2, 1)), anchored=True),
    *_exponentials(QUICK, (0.5, 0.93), anchored=False),
    *_powers(QUICK, ((0.5, 1), (1, 0.5), (1, 5), (2, 1)), anchored=False),
    *_exponentials(MEDIUM, (0.97,), anchored=False),
    *_powers(MEDIUM, ((0.5, 1), (1, 0.5), (1, 40), (2, 1)), anchored=False),
    *_powers(LONG, ((1, 0.5), (1, 40), (2, 1)), anchored=False),
)


@lru_cache(maxsize=8)
def of(families: tuple[str, ...]) -> Booleans:
    """Return which of CURVES belong to these families: shape (curves,)."""
    return np.array([curve.family in families for curve in CURVES])


@lru_cache(maxsize=1)
def filters() -> Floats:
    """Return the least-squares filters: shape (WINDOW + 1, WINDOW, 3 * curves).

    Row n holds the weights for the window of a job with n losses (newest last, unused places at the front): one
    column per curve for the slope, then one for the level at t = 0, then one for the level of the same curve
    with its slope fixed at zero.
    """
    bank = np.zeros((WINDOW + 1, WINDOW, 3, len(CURVES)))
    for count in range(1, WINDOW + 1):
        lags = np.arange(count - 1.0, -1.0, -1.0)
        for column, curve in enumerate(CURVES):
            weights = curve.decay**lags
            weights /= weights.sum()
            bank[count, -count:, 2, column] = weights
            x = curve.shape(-lags, count)
            mean = weights @ x
            variance = weights @ (x - mean) ** 2
            slope = weights * (x - mean) / variance if variance > 0 else np.zeros(count)
            bank[count, -count:, 0, column] = slope
            bank[count, -count:, 1, column] = weights - slope * mean
    anchored = np.array([curve.anchored for curve in CURVES])
    # Windows are relative to their last loss, so a curve that starts from the last loss has level 0.
    bank[:, :, 1:, anchored] = 0.0
    return bank.reshape(WINDOW + 1, WINDOW, 3 * len(CURVES))


@lru_cache(maxsize=64)
def falls(horizons: tuple[float, ...]) -> Floats:
    """Return shape(0) - shape(h), the fall at slope 1: shape (WINDOW + 1, curves, horizons)."""
    t = np.array(horizons, dtype=float)
    table = np.zeros((WINDOW + 1, len(CURVES), len(t)))
    for count in range(1, WINDOW + 1):
        for column, curve in enumerate(CURVES):
            table[count, column] = -curve.shape(t, count)
    return table
