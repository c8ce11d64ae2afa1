"""When jobs are expected to be good enough, and how likely they are to be so by their deadlines."""

from dataclasses import dataclass

import numpy as np

from slaq.core.appraisal import Appraisal
from slaq.core.arrays import Booleans, Floats
from slaq.core.courses import COURSES, HOPELESS, chances, reductions, strides_to_shares, strides_to_target
from slaq.core.roster import Roster

#: Shares of the whole reduction whose times are foreseen.
SHARES = (0.9, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What each active job may hope for with the units it was assumed to hold; one row per job."""

    ids: tuple[str, ...]
    #: The share of its whole reduction made so far, as far as is foreseen.
    reduction: Floats
    #: Expected seconds from now until each of SHARES is made: (jobs, 2). 0 where it has been, infinite where that
    #: is not foreseen, NaN where nothing can be said yet.
    seconds_to: Floats
    #: Expected seconds from now to its own target; NaN also where it has none.
    seconds_to_target: Floats
    #: The probability of making its target by its deadline; NaN where it has no deadline.
    chance: Floats
    #: It would not make its target even with all it could use; False where it has none.
    hopeless: Booleans


def foresee(roster: Roster, appraisal: Appraisal, units: Floats) -> Prospects:
    """Return the prospects of the jobs appraised, were they to hold so many units each from now on.

    More units, or more time, never lower a chance.
    """
    rows, outlook, candidates = appraisal.rows, appraisal.outlook, appraisal.candidates
    most = np.minimum(candidates.max_units, appraisal.capacity).astype(np.float64)
    pace = np.stack((np.minimum(units, most), most), axis=1)
    seconds = roster.runtime.steady_seconds(rows, appraisal.cpu, pace) * roster.stride[rows, None]
    expected = strides_to_shares(roster, rows, outlook, SHARES)
    strides = np.full((len(rows), COURSES), np.nan)
    aimed = (~np.isnan(roster.target[rows]) | ~np.isnan(roster.wanted[rows])).nonzero()[0]
    strides[aimed] = strides_to_target(roster, rows[aimed], outlook.take(aimed))
    left = candidates.seconds_left.clip(0.0, None)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        chance = chances(strides, np.nan_to_num(left / seconds, nan=0.0, posinf=np.finfo(float).max))
    middle = strides[:, COURSES // 2 - 1 : COURSES // 2 + 1].mean(axis=1)
    chance[(left[:, 0] <= 0) & (chance[:, 0] < 1)] = 0.0
    dated = np.isfinite(left[:, 0])
    return Prospects(
        ids=candidates.ids,
        reduction=reductions(roster, rows, outlook),
        seconds_to=_times(expected, seconds[:, :1]),
        seconds_to_target=_times(middle[:, None], seconds[:, :1])[:, 0],
        chance=np.where(dated, chance[:, 0], np.nan),
        hopeless=np.nan_to_num(chance[:, 1], nan=1.0) < HOPELESS,
    )


def _times(strides: Floats, seconds: Floats) -> Floats:
    """Return strides times seconds each, where no strides take no time whatever each takes."""
    with np.errstate(invalid="ignore"):
        return np.where(strides == 0.0, 0.0, strides * seconds)
