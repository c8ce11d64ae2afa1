"""The gain of a job from n units in the coming epoch, from its forecast and runtime; concave in n."""

import numpy as np

from slaq.core.arrays import Floats, Integers

#: Horizons in iterations at which forecasts are evaluated; falls are linear in between.
HORIZONS: tuple[float, ...] = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0),
    *(512.0, 1024.0),
)
#: Horizons at which the fall is known: 0 and each of HORIZONS.
KNOTS: Floats = np.array([0.0, *HORIZONS])


def unit_grid(limit: int) -> Integers:
    """Return unit counts from 0 to `limit`: all up to 4, then two per doubling."""
    points = {0, 1, 3, limit}
    step = 2
    while step < limit:
        points.update((step, step + step // 2))
        step *= 2
    return np.array(sorted(point for point in points if point <= limit), dtype=np.int64)


def gains(falls: Floats, iterations: Floats) -> Floats:
    """Return the fall after these iterations: shape (jobs, points) from (jobs, horizons) and (jobs, points).

    Several tables of falls, stacked in front, are read at the same iterations.
    Falls that are concave over iterations, and iterations that are concave over units, give gains that are
    concave over units. `concave` removes the exceptions due to rounding or to a forecast that is not quite convex.
    """
    table = np.concatenate((np.zeros((*falls.shape[:-1], 1)), falls), axis=-1)
    place = np.clip(np.searchsorted(KNOTS, iterations, side="right") - 1, 0, len(KNOTS) - 2)
    low, high = KNOTS[place], KNOTS[place + 1]
    share = np.minimum((iterations - low) / (high - low), 1.0)
    start = np.take_along_axis(table, place, axis=-1)
    stop = np.take_along_axis(table, place + 1, axis=-1)
    return np.asarray(start + share * (stop - start))


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
    falls = concave(np.concatenate((np.zeros((len(falls), 1)), falls), axis=1), KNOTS)
    end = gains(falls[:, 1:], left[:, None]) + credit
    before = left[:, None] - KNOTS
    slopes = np.divide(end - falls, before, out=np.full(falls.shape, np.inf), where=before > 0)
    leaves = slopes.argmin(axis=1)[:, None]
    slope = np.take_along_axis(slopes, leaves, axis=1)
    line = end - slope * np.maximum(left[:, None] - iterations, 0.0)
    return np.where(iterations > KNOTS[leaves], line, gain)


def concave(gain: Floats, grid: Integers | Floats) -> Floats:
    """Return the gains with every slope limited to the one before it and to zero or more."""
    width = np.diff(grid)
    slopes = np.minimum.accumulate(np.diff(gain, axis=1) / width, axis=1)
    rises = np.cumsum(np.maximum(slopes, 0.0) * width, axis=1)
    return np.concatenate((np.zeros((len(gain), 1)), rises), axis=1)
