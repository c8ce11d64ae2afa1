"""Comparable measures of loss curves: normalised loss, reduction so far, and the time to a share of it."""

import math
from collections.abc import Sequence

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.progress import TOLERANCE, is_number

#: A rise far above the first loss counts in full once it has lasted for so many losses in a row.
LASTING = 3
#: Far is a rise by this many times what the losses have fallen, or lastingly risen, since the first.
FAR = 2.0


def best_so_far(losses: Floats) -> Floats:
    """Return the lowest loss that counts up to each one; NaN before the first."""
    best: Floats = np.fmin.accumulate(np.where(is_number(losses), losses, np.nan))
    return best


def first_and_best(losses: Floats) -> tuple[float, float]:
    """Return the first and the lowest loss that count; both NaN when there is none."""
    finite = losses[is_number(losses)]
    return (float(finite[0]), float(finite.min())) if finite.size else (math.nan, math.nan)


def without_spikes(losses: Floats, one_before: Floats, two_before: Floats, first: Floats) -> Floats:
    """Return the losses with those lowered that rise far above the first loss, until the rise has lasted.

    The lowest of a loss and the two before it is what has lasted. A loss counts up to what has lasted, or the first
    loss if that is higher, and FAR times the difference of the two beyond.
    """
    lasting = np.minimum(np.minimum(one_before, two_before), losses)
    reach = np.maximum(first, lasting) + FAR * np.abs(first - lasting)
    return np.asarray(np.minimum(losses, reach))


def normalised(losses: Floats, first: float, best: float) -> Floats:
    """Return (loss - best) / (first - best): 1 at the first loss, 0 at the best.

    For a curve that never fell below its first loss, the result is 0 throughout.
    """
    # Use halves, because the difference of two finite losses may overflow.
    gap = first / 2 - best / 2
    return (losses / 2 - best / 2) / gap if gap > 0 else np.zeros(len(losses))


def reduction(losses: Floats, first: float, best: float) -> Floats:
    """Return the share of the fall from `first` to `best` that each loss has reached."""
    return 1.0 - normalised(best_so_far(losses), first, best)


def times_to(times: Floats, losses: Floats, shares: Sequence[float], best: float | None = None) -> Floats:
    """Return the time at which each share of the whole reduction was first reached; infinity if never.

    The whole reduction is from the first loss to `best`, or to the lowest of these losses if that is lower. A
    curve without any reduction has reached every share with its first loss. A curve without a loss that counts
    has reached none.
    """
    first, lowest = first_and_best(losses)
    if math.isnan(first):
        return np.full(len(shares), math.inf)
    lowest = lowest if best is None or math.isnan(best) else min(lowest, best)
    known = is_number(losses)
    fallen = -normalised(best_so_far(losses[known]), first, lowest)
    index = np.searchsorted(fallen, np.asarray(shares, dtype=np.float64) - 1.0 - TOLERANCE)
    result: Floats = np.append(times[known], math.inf)[index]
    return result


def time_to(times: Floats, losses: Floats, share: float, best: float | None = None) -> float:
    """Return the time at which this share of the whole reduction was first reached, as `times_to` does."""
    return float(times_to(times, losses, [share], best)[0])


def end_of_curve(forecast_end: Floats, best: Floats, target: Floats) -> Floats:
    """Return the end of each curve; a target of NaN stands for none."""
    return np.where(np.isnan(target), np.minimum(forecast_end, best), target)


def done(first: Floats, best: Floats, end: Floats) -> Floats:
    """Return the share of its whole reduction that each job has made: 0 where nothing has fallen yet."""
    # Use halves, because the difference of two finite losses may overflow.
    whole, fallen = first / 2 - end / 2, first / 2 - best / 2
    return np.divide(fallen, whole, out=np.zeros(len(first)), where=whole > 0).clip(0.0, 1.0)
