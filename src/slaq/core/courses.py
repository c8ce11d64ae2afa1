"""The courses a job's loss may take from now on, all equally likely, and when each of them reaches a target.

A forecast is a mean with an 80% interval at every horizon. It is read as a bundle of courses: one for each of
COURSES quantiles of a normal law, stretched on either side of the mean so that the ends of the interval are met.
A course keeps its quantile at all horizons: a job that does better than forecast keeps doing so. When each of
them reaches the target is then the law of the time it takes.
"""

from statistics import NormalDist

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecaster import Outlook
from slaq.core.gain import KNOTS, gains
from slaq.core.roster import WANTED, Roster

#: How many courses stand for all.
COURSES = 16
#: A target less likely than this is out of reach: the lower end of the 80% interval stays above it.
HOPELESS = 0.1
#: A loss is taken to end where it is forecast to be after this many times the losses known so far, and no further
#: ahead than forecasts go.
FORESIGHT = 15.0
#: What is known of a job with fewer than two losses: after h iterations it has made 1 - (1 + h) ** -START_POWER
#: of its whole reduction, give or take this many powers of e in h.
START_POWER = 0.7
START_SPREAD = 1.5

#: Whether a share of the whole reduction is made depends on where the loss is thought to end by then, which
#: tends to be higher than was thought before: on courses that fall less than forecast by this many times as
#: much, on the others not at all. `benchmarks/prospect_calibration.py` compares chances with what came true.
SHALLOWER = 0.5

#: The courses, in parts of the half-interval of 80%: from the one that falls least to the one that falls most.
_QUANTILES: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / COURSES) for i in range(COURSES)])
_QUANTILES_80: Floats = _QUANTILES / NormalDist().inv_cdf(0.9)
# A target counts as reached within this share of the way to it.
_TOLERANCE = 1e-9


def ends(roster: Roster, rows: Integers, outlook: Outlook) -> Floats:
    """Return where each job's loss is foreseen to end, or the best loss so far where that is lower."""
    reach = FORESIGHT * roster.observed[rows] / np.maximum(roster.stride[rows], 1)
    fall = gains(outlook.fall[:, 1:], reach[:, None])[:, 0]
    return np.minimum(outlook.level - fall, roster.best[rows])


def reductions(roster: Roster, rows: Integers, outlook: Outlook) -> Floats:
    """Return the share of its whole reduction that each job has made, as far as is foreseen.

    The whole is from its first loss to its target loss, or else to where it is foreseen to end. 0 for jobs without
    two losses, or that have not fallen yet.
    """
    whole = _whole(roster, rows, outlook)
    known = _foreseen(roster, rows) & (whole > 0)
    fallen = roster.first[rows] - roster.best[rows]
    made = np.divide(fallen, whole, out=np.zeros(len(rows)), where=known).clip(0.0, 1.0)
    return np.where(_at_target_loss(roster, rows), 1.0, made)


def strides_to_shares(roster: Roster, rows: Integers, outlook: Outlook, shares: tuple[float, ...]) -> Floats:
    """Return the strides expected until each share of the whole reduction is made: (jobs, shares).

    0 where it has been made, infinite where it is not forecast, NaN where nothing can be said: for jobs without
    two losses, or without a reduction to make.
    """
    whole = _whole(roster, rows, outlook)
    goal = roster.first[rows, None] - np.array(shares) * whole[:, None]
    path = np.minimum.accumulate(outlook.mean, axis=1)
    strides = _crossings(path[:, None, :], goal, whole[:, None])
    strides[~_foreseen(roster, rows) | (whole <= 0)] = np.nan
    strides[reductions(roster, rows, outlook)[:, None] >= np.array(shares) - _TOLERANCE] = 0.0
    return strides


def strides_to_target(roster: Roster, rows: Integers, outlook: Outlook) -> Floats:
    """Return the strides until each job's target is reached, ascending over its courses: (jobs, COURSES).

    The target is the target loss, or else the wanted share of the whole reduction. 0 throughout where it has been
    reached; infinite on courses that never do, and for jobs that diverged; NaN where a job has no target.
    """
    first, target, wanted = roster.first[rows], roster.target[rows], roster.wanted[rows]
    apart = _QUANTILES_80[:, None]
    half = np.where(apart > 0, outlook.below[:, None, :], outlook.above[:, None, :])
    paths = np.minimum.accumulate(outlook.mean[:, None, :] - apart * half, axis=2)
    # A course that ends above the best loss so far has all of its reduction behind it.
    higher = np.maximum(paths[:, :, -1] - outlook.mean[:, None, -1], 0.0)
    end = np.minimum(ends(roster, rows, outlook)[:, None] + SHALLOWER * higher, roster.best[rows, None])
    to_share = first[:, None] - wanted[:, None] * (first[:, None] - end)
    goal = np.where(np.isnan(target)[:, None], to_share, target[:, None])
    strides = _crossings(paths, goal, first[:, None] - goal)
    strides[roster.best[rows, None] <= goal] = 0.0
    strides.sort(axis=1)

    fresh = ~_foreseen(roster, rows)
    strides[fresh] = _start(wanted[fresh])
    strides[roster.diverged[rows]] = np.inf
    share = np.where(np.isnan(target), wanted, 1.0)
    strides[reductions(roster, rows, outlook) >= share - _TOLERANCE] = 0.0
    strides[~roster.competes[rows] | (np.isnan(target) & np.isnan(wanted))] = np.nan
    return strides


def chances(strides: Floats, available: Floats) -> Floats:
    """Return the probability that so many strides suffice: (jobs, points) from (jobs, COURSES), (jobs, points).

    Linear between two courses; beyond the last that arrives it nears the share of those that do. Never falls as
    strides are added. NaN where there is no target.
    """
    count = np.count_nonzero(strides[:, :, None] <= available[:, None, :], axis=1)
    padded = np.concatenate(
        (np.zeros((len(strides), 1)), strides, np.full((len(strides), 1), np.inf)), axis=1
    )
    before = np.take_along_axis(padded, count, axis=1)
    after = np.take_along_axis(padded, count + 1, axis=1)
    between = np.isfinite(after) & (after > before)
    part = np.divide(available - before, after - before, out=np.zeros_like(available), where=between)
    # The first course stands for the first half of the first part, hence the smaller step to it.
    step = np.where(count == 0, 0.5, 1.0)
    inside = np.maximum(count - 0.5, 0.0) + step * part
    late = np.divide(before, available, out=np.zeros_like(available), where=available > 0)
    beyond = count - 0.5 * np.where(count > 0, late, 0.0)
    chance: Floats = np.where(between, inside, beyond) / COURSES
    chance[(strides[:, 0] == 0.0) & (strides[:, -1] == 0.0)] = 1.0
    chance[np.isnan(strides[:, 0])] = np.nan
    return chance


def strides_for(strides: Floats, chance: float) -> Floats:
    """Return the strides that suffice with at least this probability; infinite where none do."""
    place = min(int(np.ceil(chance * COURSES + 0.5)), COURSES) - 1
    return np.asarray(strides[:, place])


def _foreseen(roster: Roster, rows: Integers) -> Booleans:
    return np.asarray(roster.competes[rows] & (roster.observed[rows] >= 2))


def _whole(roster: Roster, rows: Integers, outlook: Outlook) -> Floats:
    """Return each job's whole reduction, in its own loss; not above 0 where there is none to make."""
    target = roster.target[rows]
    end = np.where(np.isnan(target), ends(roster, rows, outlook), target)
    return np.asarray(roster.first[rows] - end)


def _at_target_loss(roster: Roster, rows: Integers) -> Booleans:
    return np.asarray((roster.observed[rows] > 0) & (roster.best[rows] <= roster.target[rows]))


def _start(wanted: Floats) -> Floats:
    """Return the strides to the wanted share for jobs of which nothing is known: (jobs, COURSES)."""
    share = np.where(np.isnan(wanted), WANTED, wanted).clip(0.0, 1.0 - _TOLERANCE)
    usual = (1.0 - share) ** (-1.0 / START_POWER) - 1.0
    return np.asarray(usual[:, None] * np.exp(START_SPREAD * _QUANTILES))


def _crossings(paths: Floats, goal: Floats, extent: Floats) -> Floats:
    """Return the strides at which non-rising paths, (jobs, courses, knots), come down to their goals.

    With one path and several goals, or one goal per path.
    """
    near = goal + _TOLERANCE * np.abs(extent)
    above = np.count_nonzero(paths > near[:, :, None], axis=2)
    last = len(KNOTS) - 1
    k = above.clip(1, last)
    paths = np.broadcast_to(paths, (*goal.shape, last + 1))
    high = np.take_along_axis(paths, k[:, :, None] - 1, axis=2)[:, :, 0]
    low = np.take_along_axis(paths, k[:, :, None], axis=2)[:, :, 0]
    part = np.divide(high - goal, high - low, out=np.ones_like(high), where=high > low).clip(0.0, 1.0)
    strides = KNOTS[k - 1] + part * (KNOTS[k] - KNOTS[k - 1])
    return np.where(above == 0, 0.0, np.where(above > last, np.inf, strides))
