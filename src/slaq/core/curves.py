"""The curve families, fitted to all jobs at once: each fit is a fixed linear filter over recent losses.

A family has the form  f(t) = level + slope * (shape(t) - shape(0)),  with t = 0 now, t < 0 in the past. Once
its shape is fixed, weighted least squares gives level and slope as weighted sums of the losses, with
weights that depend on nothing but the number of losses at hand. So a grid over the shape parameter turns
the paper's two families (§4.2.2) and the power law into one matrix product for any number of jobs, and a new
loss costs the same however long the history is.

    exponential  mu**t                 mu^(k-b)+c             L-BFGS and other linear convergence
    power        (1 + t/age)**-p       1/(ak^2+bk+c)+d        p = 1 and 2 are the paper's 1/k and 1/k^2
                                                              ends; p = 1/2 the slower ones of SGD
    accelerating 1 - growth**t         none: the paper's families only flatten. Solvers and boosting that leave a
                                       plateau, schedules that cool the learning rate down
    flat         no slope              a smoothed or last loss

Nothing falls ever faster for long, and gains have to be concave. So an accelerating curve goes on as a straight
line, at the mean rate that its growth would have until it `lasts` no more, and is flat from there.

Losses are weighted by decay**lag: with a small decay a fit follows the last few losses, with a large one the
whole window. The same filters, applied to the losses known some iterations ago, tell how far off each curve would
have been by now: a job's past is forecast again at no cost but further columns of the product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from slaq.core.arrays import Booleans, Floats, Integers, Singles

#: Losses kept per job. At the slowest decay the oldest loss has a seventh of the weight of the newest.
WINDOW = 64
#: A curve that began longer ago counts as begun so many losses ago.
OLDEST = 6 * WINDOW

SHARP, QUICK, MEDIUM, LONG = 0.4, 0.6, 0.85, 0.97

FAMILIES = ("exponential", "power", "accelerating", "flat")

#: From so many losses ago the present loss is forecast again.
PAST = (4, 10)

#: The ages at which filters exist; a job uses those of the highest not above its own age, and as many losses.
#: Beyond WINDOW the number of losses stays the same, and only the power laws change.
AGES: Integers = np.array(
    (
        *(*range(1, 17), *range(18, 26, 2), *range(27, 37, 3), 40, 44, 48, 52, 58, WINDOW),
        *(80, 96, 128, 160, 192, 256, 320, OLDEST),
    )
)


@dataclass(frozen=True, slots=True)
class Curve:
    """One member of a family: its shape, the decay of its weights, and where it starts."""

    #: One of FAMILIES.
    family: str
    #: Weight of a loss relative to the next; 0 uses the last loss only.
    decay: float
    #: For an exponential: mu. For a power law: the iterations that it began before its first loss. For an
    #: accelerating curve: the factor by which each fall was larger than the one before.
    parameter: float = 0.0
    #: p of a power law.
    power: float = 0.0
    #: The iterations for which an accelerating curve still falls.
    lasts: float = 0.0
    #: Whether the curve starts from the last loss instead of its own fit: better without noise, worse with noise.
    anchored: bool = False

    def shape(self, t: Floats, age: int | Floats) -> Floats:
        """Return shape(t) - shape(0), falling, and convex for t > 0, for a job that began `age` losses ago."""
        if self.family == "flat":
            return np.zeros_like(t)
        if self.family == "accelerating":
            rate = (self.parameter**self.lasts - 1.0) / self.lasts
            past = self.parameter ** np.minimum(t, 0.0)
            return np.asarray(1.0 - past - rate * t.clip(0.0, self.lasts))
        if self.family == "exponential":
            return self.parameter**t - 1.0
        return np.asarray((1.0 + t / (age - 1 + self.parameter)) ** -self.power - 1.0)


def _exponentials(decay: float, rates: tuple[float, ...], *, anchored: bool) -> Iterator[Curve]:
    for rate in rates:
        yield Curve("exponential", decay, rate, anchored=anchored)


def _powers(decay: float, ages: tuple[tuple[float, float], ...], *, anchored: bool) -> Iterator[Curve]:
    for power, age in ages:
        yield Curve("power", decay, age, power, anchored=anchored)


def _accelerating(decay: float, kinds: tuple[tuple[float, float], ...]) -> Iterator[Curve]:
    for growth, lasts in kinds:
        yield Curve("accelerating", decay, growth, lasts=lasts, anchored=True)


#: The curves that are fitted to every job, in the order of the rows of `evidence.PRIOR`.
CURVES: tuple[Curve, ...] = (
    Curve("flat", 0.0, anchored=True),
    Curve("flat", QUICK),
    Curve("flat", MEDIUM),
    Curve("flat", LONG),
    *_exponentials(SHARP, (0.3, 0.5, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.99), anchored=True),
    *_powers(
        SHARP, ((0.5, 1), (0.5, 10), (1, 0.5), (1, 5), (1, 40), (2, 1), (2, 10), (2, 40)), anchored=True
    ),
    *_exponentials(MEDIUM, (0.5,), anchored=True),
    *_powers(MEDIUM, ((1, 0.5), (2, 1), (2, 10)), anchored=True),
    *_accelerating(SHARP, ((1.3, 5), (1.3, 10), (1.15, 10), (1.05, 20))),
    *_exponentials(QUICK, (0.5, 0.7, 0.85, 0.93, 0.97), anchored=False),
    *_powers(QUICK, ((0.5, 1), (1, 0.5), (1, 5), (2, 1)), anchored=False),
    *_powers(MEDIUM, ((0.5, 1), (1, 0.5), (1, 40), (2, 1)), anchored=False),
    *_powers(LONG, ((1, 0.5), (1, 40)), anchored=False),
)

MANY = len(CURVES)


@lru_cache(maxsize=8)
def of(families: tuple[str, ...]) -> Booleans:
    """Return which of CURVES belong to these families: shape (curves,)."""
    return np.array([curve.family in families for curve in CURVES])


def keys(ages: Integers) -> NDArray[np.int16]:
    """Return the places in AGES that jobs of these ages (1 or more) use."""
    return np.asarray(_KEYS.take(ages, mode="clip"))


#: The places by age: small numbers, which are sorted in one pass.
_KEYS: NDArray[np.int16] = (np.searchsorted(AGES, np.arange(OLDEST + 1), side="right") - 1).astype(np.int16)


@dataclass(frozen=True, slots=True)
class Alike:
    """Consecutive members of CURVES with one mean: their places, and the place of their mean among MEANS."""

    curves: slice
    mean: int


def _runs() -> tuple[tuple[Alike, ...], tuple[Curve, ...]]:
    """Return the runs of CURVES, and for each different mean a curve that has it."""
    runs: list[Alike] = []
    means: dict[float | None, Curve] = {}
    for decay, members in groupby(CURVES, lambda curve: None if curve.anchored else curve.decay):
        alike = list(members)
        means.setdefault(decay, alike[0])
        start = runs[-1].curves.stop if runs else 0
        runs.append(Alike(slice(start, start + len(alike)), list(means).index(decay)))
    return tuple(runs), tuple(means.values())


RUNS, MEANS = _runs()
#: The rows of a bank of filters: one per curve for the slope; then, for now and for each of PAST, one per curve for
#: the forecast of the present loss as if the slope might rise, and one per mean.
SLOPES = slice(0, MANY)
TIMES: tuple[int, ...] = (0, *PAST)
_EACH = MANY + len(MEANS)
#: The number of rows.
ROWS = MANY + _EACH * len(TIMES)
AHEAD = tuple(slice(start, start + MANY) for start in range(MANY, ROWS, _EACH))
MEAN = tuple(slice(ahead.stop, ahead.stop + len(MEANS)) for ahead in AHEAD)


@lru_cache(maxsize=len(AGES))
def filters(key: int) -> Singles:
    """Return what turns windows of this key, relative to their last loss, into fits: (rows, losses), newest last.

    The filters of a past before which there were not two losses are zero.
    """
    age = int(AGES[key])
    count = min(age, WINDOW)
    bank = np.zeros((ROWS, count))
    for past, ahead, mean in zip(TIMES, AHEAD, MEAN, strict=True):
        if past and count - past < 2:
            continue
        known = slice(0, count - past)
        means, slopes, middles = _lines(count - past, age - past)
        then = _shapes(np.array([float(past)]), age - past) - middles
        bank[ahead, known] = means + slopes * then
        bank[mean, known] = means[[CURVES.index(curve) for curve in MEANS]]
        if not past:
            bank[SLOPES] = slopes
    return bank.astype(np.float32)


def _shapes(t: Floats, age: int) -> Floats:
    """Return the shape of each curve: (curves, len(t))."""
    return np.stack([curve.shape(t, age) for curve in CURVES])


def _lines(count: int, age: int) -> tuple[Floats, Floats, Floats]:
    """Return the filters, newest last, of each curve's mean and slope, and the shape's value where the mean is.

    With them the fit is  mean + slope * (shape(t) - value);  a slope that would rise is set to zero.
    """
    lags = np.arange(count - 1.0, -1.0, -1.0)
    weights = np.array([curve.decay for curve in CURVES])[:, None] ** lags
    weights /= weights.sum(axis=1, keepdims=True)
    x = _shapes(-lags, age)
    middles = (weights * x).sum(axis=1, keepdims=True)
    x -= middles
    variances = (weights * x**2).sum(axis=1, keepdims=True)
    slopes = np.divide(weights * x, variances, out=np.zeros_like(x), where=variances > 0)
    # Windows are relative to their last loss.
    anchored = np.array([curve.anchored for curve in CURVES])
    weights[anchored], middles[anchored] = np.eye(count)[-1], 0.0
    return weights, slopes, middles


@lru_cache(maxsize=64)
def falls(horizons: tuple[float, ...]) -> Singles:
    """Return shape(0) - shape(h), the fall at slope 1, by key: shape (keys, curves, horizons)."""
    t = np.array(horizons, dtype=float)
    ages = AGES[:, None].astype(np.float64)
    falls = [np.broadcast_to(-curve.shape(t, ages), (len(AGES), len(t))) for curve in CURVES]
    return np.stack(falls, axis=1).astype(np.float32)


@lru_cache(maxsize=64)
def squared_falls(horizons: tuple[float, ...]) -> Singles:
    """Return the squares of `falls`."""
    return np.asarray(falls(horizons) ** 2)
