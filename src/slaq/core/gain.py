"""The gain of a job from n units in the coming epoch, from its forecast and runtime; concave in n."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slaq.core.arrays import Floats, Integers, Singles

#: Horizons in iterations at which forecasts are evaluated; falls are linear in between.
HORIZONS: tuple[float, ...] = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0),
    *(512.0, 1024.0),
)
#: Horizons at which the fall is known: 0 and each of HORIZONS.
KNOTS: Floats = np.array([0.0, *HORIZONS])
_WIDTHS: Floats = np.diff(KNOTS)[:, None]


def unit_grid(limit: int) -> Integers:
    """Return unit counts from 0 to `limit`: all up to 4, then two per doubling."""
    points = {0, 1, 3, limit}
    step = 2
    while step < limit:
        points.update((step, step + step // 2))
        step *= 2
    return np.array(sorted(point for point in points if point <= limit), dtype=np.int64)


def knots_before(iterations: Floats) -> Integers:
    """Return the place in KNOTS of the last knot at or before these iterations, at most the last but one.

    The sign, the exponent and the first bit after the point of a single, its first ten bits, tell it: the knots
    are powers of two, and numbers halfway between two of them.
    """
    within = np.minimum(iterations, KNOTS[-1])
    return np.asarray(_PLACES.take(_first_bits(within.astype(np.float32, order="K")), mode="clip"))


def _first_bits(numbers: Singles) -> NDArray[np.int32]:
    return np.asarray(numbers.view(np.int32) >> 22)


def _places() -> Integers:
    """Return the place in KNOTS by the first ten bits of a single."""
    last = int(_first_bits(KNOTS[-1:].astype(np.float32))[0])
    beginnings = (np.arange(last + 1, dtype=np.int32) << 22).view(np.float32)
    return np.asarray(np.clip(np.searchsorted(KNOTS, beginnings, side="right") - 1, 0, len(KNOTS) - 2))


_PLACES = _places()


def gains(falls: Floats, iterations: Floats) -> Floats:
    """Return the fall after these iterations: shape (jobs, points) from (jobs, horizons) and (jobs, points).

    Falls that are concave over iterations, and iterations that are concave over units, give gains that are
    concave over units. `concave` removes the exceptions due to rounding or to a forecast that is not quite convex.

    Here and below the arrays lie column by column in memory, so that each step is one pass over all jobs.
    """
    jobs = len(falls)
    table = np.zeros((len(KNOTS), jobs))
    table[1:] = falls.T
    slope = np.diff(table, axis=0)
    slope /= _WIDTHS
    # Where a line through two knots begins at 0 iterations.
    start = table[:-1]
    start -= slope * KNOTS[:-1, None]
    points = np.minimum(iterations.T, KNOTS[-1])
    place = knots_before(points)
    place *= jobs
    place += np.arange(jobs)
    points *= slope.ravel().take(place)
    points += start.ravel().take(place)
    return np.asarray(points.T)


def read_at(tables: Iterable[Floats], iterations: Floats) -> Iterator[Floats]:
    """Yield what each table, (jobs, KNOTS), holds for each job after its iterations; linear between knots."""
    within = np.minimum(iterations, KNOTS[-1])
    place, each = knots_before(within), np.arange(len(within))
    share = (within - KNOTS[place]) / _WIDTHS[place, 0]
    for table in tables:
        before = table[each, place]
        yield before + share * (table[each, place + 1] - before)


def delayed_gains(falls: Floats, iterations: Floats, delay: Floats) -> Floats:
    """Return the gains, as `gains` does, of jobs that first have to work for `delay` iterations without a fall.

    A job that cannot show a fall within the epoch would gain nothing, and never start. So it gains at its best mean
    rate, delay included: the largest of fall(h) / (delay + h) over the horizons h. That is the line from the origin
    that touches the delayed curve, so that the gain is concave; without a delay it is the curve itself.
    """
    found = gains(falls, iterations)
    late = delay > 0
    if not late.any():
        return found
    waits = delay[late, None]
    rates = falls[late] / (waits + KNOTS[1:])
    best = np.argmax(rates, axis=1)[:, None]
    rate = np.take_along_axis(rates, best, axis=1)
    touches = waits + KNOTS[1:][best]
    after = gains(falls[late], np.maximum(iterations[late] - waits, 0.0))
    found[late] = np.where(iterations[late] <= touches, rate * iterations[late], after)
    return found


def finishing_gains(falls: Floats, iterations: Floats, gain: Floats, left: Floats, credit: float) -> Floats:
    """Return the gains, with `credit` for the end added, of jobs that end after `left` iterations; left > 0.

    `gain` holds the gains without it. A job that goes all the way to its end gains what it falls until then and the
    credit: at its mean rate until then, where that is higher than its present rate. So the result follows the fall
    up to the point from which a straight line to the end rises faster, then that line, and is constant after the
    end. For a concave fall it is the least concave gain that is nowhere below the fall and holds the credit at the
    end: with the credit c, the index of Klimov and Gittins for a job that costs its normalised loss plus c per
    second until it has ended.
    """
    knots = KNOTS[:, None]
    table = concave(np.concatenate((np.zeros((1, len(falls))), falls.T)).T, KNOTS)
    end = gains(table[:, 1:], left[:, None])[:, 0] + credit
    before = left - knots
    slopes = np.divide(end - table.T, before, out=np.full_like(before, np.inf), where=before > 0)
    slope = slopes.min(axis=0)
    leaves = np.where(slopes <= slope, knots, np.inf).min(axis=0)
    line = end - slope * np.maximum(left - iterations.T, 0.0)
    return np.where(leaves < iterations.T, line, gain.T).T


def concave(gain: Floats, grid: Integers | Floats) -> Floats:
    """Return the gains with every slope limited to the one before it and to zero or more."""
    widths = np.diff(grid).astype(np.float64)[:, None]
    slopes = np.diff(gain.T, axis=0)
    slopes /= widths
    np.maximum(slopes, 0.0, out=slopes)
    for before, after in pairwise(slopes):
        np.minimum(before, after, out=after)
    slopes *= widths
    rises = np.zeros((len(grid), len(gain)))
    for step, before, after in zip(slopes, rises[:-1], rises[1:], strict=True):
        np.add(before, step, out=after)
    return rises.T
