"""Forecast times runtime: what a job gains by n units in the coming epoch, concave in n."""

import numpy as np

from slaq.core.arrays import Floats, Integers

#: Iterations ahead at which forecasts are evaluated; falls are linear in between.
HORIZONS: tuple[float, ...] = (
    *(1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0),
    *(512.0, 1024.0),
)
#: Where forecasts are known: now, and at every one of HORIZONS.
KNOTS: Floats = np.array([0.0, *HORIZONS])


def unit_grid(limit: int) -> Integers:
    """Return unit counts from 0 to `limit`: every one to 4, then two to each doubling."""
    points = {0, 1, 3, limit}
    step = 2
    while step < limit:
        points.update((step, step + step // 2))
        step *= 2
    return np.array(sorted(point for point in points if point <= limit), dtype=np.int64)


def gains(falls: Floats, iterations: Floats) -> Floats:
    """Return the fall after so many iterations: shape (jobs, points) from (jobs, horizons), (jobs, points).

    Falls that are concave over iterations, and iterations that are concave over units, give gains that are
    concave over units; `concave` mends what rounding, or a forecast that is not quite convex, leaves.
    """
    table = np.concatenate((np.zeros((len(falls), 1)), falls), axis=1)
    place = np.clip(np.searchsorted(KNOTS, iterations, side="right") - 1, 0, len(KNOTS) - 2)
    low, high = KNOTS[place], KNOTS[place + 1]
    share = np.minimum((iterations - low) / (high - low), 1.0)
    start = np.take_along_axis(table, place, axis=1)
    stop = np.take_along_axis(table, place + 1, axis=1)
    return np.asarray(start + share * (stop - start))


def concave(gain: Floats, grid: Integers) -> Floats:
    """Return the gains with every slope held at or below the one before it, and none below zero."""
    width = np.diff(grid)
    slopes = np.minimum.accumulate(np.diff(gain, axis=1) / width, axis=1)
    rises = np.cumsum(np.maximum(slopes, 0.0) * width, axis=1)
    return np.concatenate((np.zeros((len(gain), 1)), rises), axis=1)
