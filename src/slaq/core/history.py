"""Reads a job's whole history at once, with the result of reading it loss by loss.

What a forecaster knows after each loss follows from the losses before, except where an outlier or a bend is
suspected. So stretches without one are read as many jobs side by side, one for each of their losses.
"""

from functools import lru_cache
from itertools import accumulate
from math import exp

import numpy as np
from numpy.typing import ArrayLike

from slaq.core import curves, evidence
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.curve_forecaster import (
    MISS_DISCOUNT,
    MOST_ERROR,
    MOST_STRETCH,
    OFF_DISCOUNT,
    OUTSIDE,
    STEP,
    CurveForecaster,
)
from slaq.core.forecaster import Forecaster

#: The only row of a forecaster of one curve.
ROW: Integers = np.zeros(1, dtype=np.int64)
#: Losses read side by side at most.
STRETCH = 128


def read(forecaster: Forecaster, losses: Floats) -> list[int]:
    """Have row 0 learn these losses one by one; return the places at which its curve was found to have bent.

    A bend is found at the loss that confirms it, the one after the suspect.
    """
    found: list[int] = []
    place = 0
    while place < len(losses):
        if isinstance(forecaster, CurveForecaster) and not forecaster.suspected[0]:
            place += _read_stretch(forecaster, losses[place : place + STRETCH])
        if place < len(losses):
            before = forecaster.bends[0]
            forecaster.observe(ROW, losses[None, place : place + 1], np.ones(1, dtype=np.int64))
            if forecaster.bends[0] > before:
                found.append(place)
            place += 1
    return found


def _read_stretch(forecaster: CurveForecaster, losses: Floats) -> int:
    """Learn losses up to the first that is suspected; return how many."""
    if len(losses) < 2:
        return 0
    many = len(losses)
    lane = CurveForecaster(many + 1, forecaster.families)
    kept, arrays = forecaster.arrays(), lane.arrays()
    for name, array in arrays.items():
        array[0] = kept[name][0]
    _roll(lane, losses)
    rows = np.arange(many + 1)
    fits = lane.fits(rows[1:])
    lane.size[1:], lane.level[1:], lane.slope[1:] = fits.size, fits.level, fits.slope
    _compare(lane)
    lane.weigh(rows[1:], fits)
    suspected = _judge(lane)
    learned = int(suspected.argmax()) if suspected.any() else many
    for name, array in kept.items():
        array[0] = arrays[name][learned]
    return learned


def _roll(lane: CurveForecaster, losses: Floats) -> None:
    """Fill in what follows from the losses alone: windows, counts and discounted changes."""
    if lane.count[0] == 0:
        lane.window[0] = losses[0]
    joined = np.concatenate((lane.window[0], losses))
    lane.window[:] = np.lib.stride_tricks.sliding_window_view(joined, curves.WINDOW)
    lane.suspect[1:], lane.bends[1:] = losses, lane.bends[0]
    lane.count[:] = np.minimum(lane.count[0] + np.arange(len(lane.count)), curves.OLDEST)
    changes = np.diff(joined)[-len(losses) :]
    lane.drift[1:] = _summed(lane.drift[0], changes, evidence.NOISE_DISCOUNT)
    lane.motion[1:] = _summed(lane.motion[0], np.abs(changes), evidence.NOISE_DISCOUNT)


def _compare(lane: CurveForecaster) -> None:
    """Fill in the curves' errors one iteration ahead."""
    rows = np.arange(len(lane.count))
    ahead = lane.ahead(rows[:-1]) * lane.size[:-1, None]
    errors = np.abs(ahead - np.diff(lane.window[:, -1])[:, None])
    errors[lane.count[:-1] < 2] = 0.0
    for kept, discount in ((lane.quick, evidence.QUICK_DISCOUNT), (lane.slow, evidence.SLOW_DISCOUNT)):
        sums, fading = _discounts(discount)
        many = len(errors)
        total = sums[:many, :many] @ errors + fading[:many, None] * (kept[0] * lane.size[0])
        kept[1:] = np.minimum(total / lane.size[1:, None], MOST_ERROR)


@lru_cache(maxsize=2)
def _discounts(discount: float) -> tuple[Floats, Floats]:
    """Return what turns STRETCH terms into their discounted sums, and the discounts of what was there before."""
    places = np.arange(STRETCH)
    ago = np.maximum(np.subtract.outer(places, places), 0)
    return np.tril(discount**ago), np.asarray(discount ** (places + 1.0), dtype=np.float64)


def _judge(lane: CurveForecaster) -> Booleans:
    """Fill in the errors of the average; return which losses are far from what was expected."""
    rows = np.arange(len(lane.count))
    expected = lane.expected(rows[:-1])
    off: Floats = np.abs(np.diff(lane.window[:, -1]) - expected)
    tried = lane.count[:-1] >= 2
    lane.miss[1:] = _summed(lane.miss[0], np.where(tried, off, 0.0), np.where(tried, MISS_DISCOUNT, 1.0))
    lane.trials[1:] = _summed(lane.trials[0], tried.astype(np.float64), np.where(tried, MISS_DISCOUNT, 1.0))
    tested = lane.tested(rows[1:])
    for past, known in enumerate(tested.T):
        discount = np.where(known, OFF_DISCOUNT, 1.0)
        missed: Floats = np.abs(lane.missed[1:, past])
        lane.off[1:, past] = _summed(lane.off[0, past], missed, discount)
        lane.tests[1:, past] = _summed(lane.tests[0, past], known.astype(np.float64), discount)
    _stretch(lane, np.diff(lane.window[:, -1]) - expected, tried)
    return lane.far(rows[:-1], off)


def _stretch(lane: CurveForecaster, off: Floats, tried: Booleans) -> None:
    """Fill in how much wider the intervals are than those of other jobs, once all else is known."""
    rows = np.arange(len(off))
    halves = lane.next_halves(rows, lane.weight[:-1], lane.ahead(rows))
    for side, (half, signed) in enumerate(zip(halves, (-off, off), strict=True)):
        stretch = float(lane.stretch[0, side])
        stretches = []
        # In plain numbers: each depends on the one before.
        for judged, width, beyond in zip(tried.tolist(), half.tolist(), signed.tolist(), strict=True):
            if judged:
                found = stretch + STEP * ((beyond > exp(stretch) * width) - OUTSIDE)
                stretch = min(max(found, -MOST_STRETCH), MOST_STRETCH)
            stretches.append(stretch)
        lane.stretch[1:, side] = stretches


def _summed(start: float, terms: Floats, discount: ArrayLike) -> Floats:
    """Return the discounted sums after each of the terms."""
    discounts = np.broadcast_to(discount, terms.shape).tolist()
    pairs = zip(discounts, terms.tolist(), strict=True)
    return np.array(
        list(accumulate(pairs, lambda total, pair: pair[0] * total + pair[1], initial=float(start)))[1:]
    )
