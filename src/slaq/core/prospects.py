"""When jobs are expected to reach 90%, 95% and their targets, and the probability to do so by their deadlines."""

from dataclasses import dataclass

import numpy as np

from slaq.core.appraisal import Appraisal
from slaq.core.arrays import Booleans, Floats
from slaq.core.progress import SHARES
from slaq.core.reliability import intervals, probabilities
from slaq.core.roster import Roster
from slaq.core.trajectories import OUT_OF_REACH, TRAJECTORIES, strides_to_shares, strides_to_target


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """The expected times and probabilities of each active job at an assumed number of cores; one row per job."""

    ids: tuple[str, ...]
    #: The share of the forecast whole reduction reached so far.
    reduction: Floats
    #: Expected seconds from now until each of SHARES is reached: (jobs, 2). 0 if it is reached, infinite if the
    #: forecast does not reach it, NaN without a forecast.
    seconds_to: Floats
    #: The ends of the 80% intervals of these times.
    earliest: Floats
    latest: Floats
    #: Expected seconds from now to the job's target; NaN also for a job without a target.
    seconds_to_target: Floats
    #: The probability of reaching the target by the deadline; NaN without a deadline.
    chance: Floats
    #: Whether the job would miss its deadline even with the most cores it can use; False without a deadline.
    out_of_reach: Booleans


def foresee(roster: Roster, appraisal: Appraisal, cores: Floats) -> Prospects:
    """Return the prospects of the appraised jobs if each held these cores from now on.

    More cores, or more time, never lower a chance. Where the end of a job is known, what it would reach after it
    is out of reach.
    """
    rows, forecasts, candidates = appraisal.rows, appraisal.forecasts, appraisal.candidates
    most = np.minimum(candidates.max_units, appraisal.capacity) * candidates.unit
    pace = np.stack((np.minimum(cores, most), most), axis=1)
    seconds = roster.runtime.steady_seconds(rows, appraisal.cpu, pace) * roster.stride[rows, None]
    expected = strides_to_shares(roster, rows, forecasts, SHARES)
    strides = np.full((len(rows), TRAJECTORIES), np.nan)
    aimed = (~np.isnan(roster.target[rows]) | ~np.isnan(roster.stop_at[rows])).nonzero()[0]
    strides[aimed] = strides_to_target(roster, rows[aimed], forecasts.take(aimed))
    low, high = intervals(roster, rows, expected)
    left = candidates.seconds_left.clip(0.0, None)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        available = np.nan_to_num(left / seconds, nan=0.0, posinf=np.finfo(float).max)
    chance = probabilities(roster, rows, forecasts, strides, available)
    middle = strides[:, TRAJECTORIES // 2 - 1 : TRAJECTORIES // 2 + 1].mean(axis=1)
    dated = np.isfinite(left[:, 0])
    return Prospects(
        ids=candidates.ids,
        reduction=appraisal.reduction,
        seconds_to=_times(expected, seconds[:, :1]),
        earliest=_times(low, seconds[:, :1]),
        latest=_times(high, seconds[:, :1]),
        seconds_to_target=_times(middle[:, None], seconds[:, :1])[:, 0],
        chance=np.where(dated, chance[:, 0], np.nan),
        out_of_reach=np.nan_to_num(chance[:, 1], nan=1.0) < OUT_OF_REACH,
    )


def _times(strides: Floats, seconds: Floats) -> Floats:
    """Return strides times seconds per stride; 0 strides take 0 seconds even at infinite seconds each."""
    with np.errstate(invalid="ignore"):
        return np.where(strides == 0.0, 0.0, strides * seconds)
