"""The possible futures of a job's loss, all equally likely, and when each of them reaches a target.

A forecast is a mean with an 80% interval at every horizon. It becomes TRAJECTORIES trajectories: one for each of as
many quantiles of a normal distribution, scaled on either side of the mean to match the interval. Each keeps
its quantile at all horizons: a job that does better than forecast goes on doing so. The times at which they reach
the target are the distribution of the time to the target.
"""

from statistics import NormalDist

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecaster import ForecastTable
from slaq.core.gain import KNOTS, read_at
from slaq.core.progress import TOLERANCE, reached
from slaq.core.quality import done, end_of_curve
from slaq.core.roster import STOP_AT, Roster

#: The number of trajectories.
TRAJECTORIES = 16
#: A target with a lower probability is out of reach: it lies below the 80% interval.
OUT_OF_REACH = 0.1
#: The end of a loss curve is its forecast at the job's last loss, or at a horizon of this many times the losses so
#: far, whichever comes first; limited to the largest horizon of forecasts.
FORESIGHT = 15.0
#: Assumed for a job with fewer than two losses: after h iterations it has reached 1 - (1 + h) ** -START_POWER of
#: its whole reduction, with this standard deviation of log h.
START_POWER = 0.7
START_SPREAD = 1.5

#: Whether a share of the whole reduction is reached depends on the end of the curve as forecast at that time. On
#: trajectories that fall less than forecast, that end is higher than the present forecast by this many times the
#: difference; on the others it is the same. `benchmarks/prospect_calibration.py` compares probabilities with
#: outcomes.
SHALLOWER = 1.0

#: The trajectories as multiples of the 80% half-interval, from the one that falls least to the one that falls most.
_QUANTILES: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / TRAJECTORIES) for i in range(TRAJECTORIES)])
_QUANTILES_80: Floats = _QUANTILES / NormalDist().inv_cdf(0.9)


def ends(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the forecast end of each job's loss curve, or the best loss so far if that is lower."""
    return forecast_ends(_ahead(roster, rows), forecasts, roster.best[rows])


def forecast_ends(ahead: Floats, forecasts: ForecastTable, best: Floats) -> Floats:
    """Return where curves that end so many strides ahead are forecast to end, which is not above the best loss.

    A curve that has ended ends at its best loss.
    """
    (fall,) = read_at((forecasts.fall,), ahead)
    return np.where(ahead > 0, np.minimum(forecasts.level - fall, best), best)


def strides_ahead(known: Floats, left: Floats) -> Floats:
    """Return how far ahead a curve ends of which so many losses are known and left; NaN left for an unknown end."""
    return np.fmin(FORESIGHT * known, left)


def _ahead(roster: Roster, rows: Integers) -> Floats:
    """Return how many strides ahead the curves of these jobs end."""
    stride = np.maximum(roster.stride[rows], 1)
    return strides_ahead(roster.observed[rows] / stride, roster.losses_left(rows) / stride)


def reductions(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the share of its forecast whole reduction that each job has reached.

    The whole reduction is from the first loss to the target loss, else to the forecast end. The share is 0 for
    jobs with fewer than two losses, and for jobs whose loss has not fallen yet.
    """
    made = done(roster.first[rows], roster.best[rows], _end(roster, rows, forecasts))
    return np.where(_at_target_loss(roster, rows), 1.0, np.where(roster.observed[rows] >= 2, made, 0.0))


def strides_to_shares(
    roster: Roster, rows: Integers, forecasts: ForecastTable, shares: tuple[float, ...] | Floats
) -> Floats:
    """Return the strides expected until each share of the whole reduction is reached: (jobs, shares).

    The shares are the same for all jobs, or those of each job: (jobs, shares).
    0 if it is reached, infinite if the forecast does not reach it, NaN for jobs with fewer than two losses or
    without a reduction.
    """
    whole = roster.first[rows] - _end(roster, rows, forecasts)
    shares = np.broadcast_to(shares, (len(rows), np.shape(shares)[-1]))
    goal = roster.first[rows, None] - shares * whole[:, None]
    path = np.minimum.accumulate(forecasts.mean, axis=1)
    strides = _crossings(path[:, None, :], goal, whole[:, None])
    strides = np.maximum(strides, _next(roster, rows))
    strides[~_foreseen(roster, rows) | (whole <= 0)] = np.nan
    strides[strides > _left(roster, rows)] = np.inf
    strides[reached(shares, reductions(roster, rows, forecasts)[:, None])] = 0.0
    return strides


def strides_to_target(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the strides until each job's target is reached, ascending over its trajectories: (jobs, TRAJECTORIES).

    The target is the target loss, else the share `stop_at` of the whole reduction. 0 if the target is reached;
    infinite on trajectories that never reach it, and for jobs that diverged; NaN for jobs without a target.
    """
    first, target, stop_at = roster.first[rows], roster.target[rows], roster.stop_at[rows]
    apart = _QUANTILES_80[:, None]
    half = np.where(apart > 0, forecasts.below[:, None, :], forecasts.above[:, None, :])
    paths = np.minimum.accumulate(forecasts.mean[:, None, :] - apart * half, axis=2)
    # A trajectory that ends above the best loss so far has already reached its whole reduction.
    ahead = _ahead(roster, rows)
    own, mean = (
        np.stack(list(read_at(tables, ahead)), axis=1)
        for tables in (np.moveaxis(paths, 1, 0), (forecasts.mean,))
    )
    end = ends(roster, rows, forecasts)[:, None] + SHALLOWER * np.maximum(own - mean, 0.0)
    end = np.minimum(end, roster.best[rows, None])
    to_share = first[:, None] - stop_at[:, None] * (first[:, None] - end)
    goal = np.where(np.isnan(target)[:, None], to_share, target[:, None])
    strides = _crossings(paths, goal, first[:, None] - goal)
    strides[roster.best[rows, None] <= goal] = 0.0
    strides = np.maximum(strides, _next(roster, rows))
    strides.sort(axis=1)

    fresh = ~_foreseen(roster, rows)
    strides[fresh] = _start(stop_at[fresh])
    strides[roster.diverged[rows]] = np.inf
    share = np.where(np.isnan(target), stop_at, 1.0)
    strides[reductions(roster, rows, forecasts) >= share - TOLERANCE] = 0.0
    strides[strides > _left(roster, rows)] = np.inf
    strides[~roster.competes[rows] | (np.isnan(target) & np.isnan(stop_at))] = np.nan
    return strides


def chances(strides: Floats, available: Floats) -> Floats:
    """Return the probability that the available strides suffice: shape (jobs, points).

    `strides` has shape (jobs, TRAJECTORIES), `available` has shape (jobs, points). The probability is linear
    between two trajectories, and approaches the share of those that reach the target. It never falls with more
    strides.
    NaN for jobs without a target.
    """
    count = np.count_nonzero(strides[:, :, None] <= available[:, None, :], axis=1)
    padded = np.concatenate(
        (np.zeros((len(strides), 1)), strides, np.full((len(strides), 1), np.inf)), axis=1
    )
    before = np.take_along_axis(padded, count, axis=1)
    after = np.take_along_axis(padded, count + 1, axis=1)
    between = np.isfinite(after) & (after > before)
    with np.errstate(invalid="ignore"):
        part = np.divide(available - before, after - before, out=np.zeros_like(available), where=between)
    # The first trajectory is at the middle of its quantile range, so the step to it is half a step.
    step = np.where(count == 0, 0.5, 1.0)
    inside = np.maximum(count - 0.5, 0.0) + step * part
    late = np.divide(before, available, out=np.zeros_like(available), where=available > 0)
    beyond = count - 0.5 * np.where(count > 0, late, 0.0)
    chance: Floats = np.where(between, inside, beyond) / TRAJECTORIES
    chance[(strides[:, 0] == 0.0) & (strides[:, -1] == 0.0)] = 1.0
    chance[np.isnan(strides[:, 0])] = np.nan
    return chance


def _left(roster: Roster, rows: Integers) -> Floats:
    """Return the strides to each job's known end, beyond which nothing is reached: (jobs, 1)."""
    left = roster.losses_left(rows)[:, None] / np.maximum(roster.stride[rows, None], 1)
    return np.asarray(np.where(np.isnan(left), np.inf, left) * (1.0 + TOLERANCE))


def _next(roster: Roster, rows: Integers) -> Floats:
    """Return the strides to the next loss, before which nothing is reached that has not been: (jobs, 1)."""
    return np.minimum(1.0 / np.maximum(roster.stride[rows, None], 1), _left(roster, rows))


def _foreseen(roster: Roster, rows: Integers) -> Booleans:
    return np.asarray(roster.competes[rows] & (roster.observed[rows] >= 2))


def _end(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the end of each job's curve: its target loss, else where the curve is forecast to end."""
    return end_of_curve(ends(roster, rows, forecasts), roster.best[rows], roster.target[rows])


def _at_target_loss(roster: Roster, rows: Integers) -> Booleans:
    return np.asarray((roster.observed[rows] > 0) & (roster.best[rows] <= roster.target[rows]))


def _start(stop_at: Floats) -> Floats:
    """Return the strides to the share `stop_at` for jobs with fewer than two losses: (jobs, TRAJECTORIES)."""
    share = np.where(np.isnan(stop_at), STOP_AT, stop_at).clip(0.0, 1.0 - TOLERANCE)
    usual = (1.0 - share) ** (-1.0 / START_POWER) - 1.0
    return np.asarray(usual[:, None] * np.exp(START_SPREAD * _QUANTILES))


def _crossings(paths: Floats, goal: Floats, extent: Floats) -> Floats:
    """Return the strides at which non-rising paths, (jobs, trajectories, knots), reach their goals.

    There is one path and several goals, or one goal per path.
    """
    near = goal + TOLERANCE * np.abs(extent)
    above = np.count_nonzero(paths > near[:, :, None], axis=2)
    last = len(KNOTS) - 1
    k = above.clip(1, last)
    paths = np.broadcast_to(paths, (*goal.shape, last + 1))
    high = np.take_along_axis(paths, k[:, :, None] - 1, axis=2)[:, :, 0]
    low = np.take_along_axis(paths, k[:, :, None], axis=2)[:, :, 0]
    part = np.divide(high - goal, high - low, out=np.ones_like(high), where=high > low).clip(0.0, 1.0)
    strides = KNOTS[k - 1] + part * (KNOTS[k] - KNOTS[k - 1])
    return np.where(above == 0, 0.0, np.where(above > last, np.inf, strides))
