"""The best loss that each job is forecast to have had at its end: what the jobs of a search are compared by.

The end is the job's last iteration where that is known, as most programs tell it; without one, it is the horizon
at which curves are taken to end. All losses are turned, so that less is better.
"""

from typing import Any

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.forecaster import ForecastTable
from slaq.core.gain import KNOTS
from slaq.core.roster import Roster
from slaq.core.trajectories import FORESIGHT


def search_columns(roster: Roster, rows: Integers, forecasts: ForecastTable) -> dict[str, Any]:
    """Return the columns of `Candidates` that a search is divided by."""
    final, low, high = finals(roster, rows, forecasts)
    names = ("group", "searches", "record", "waited")
    asked = {name: getattr(roster, name)[rows] for name in names}
    return {**asked, "final": final, "final_low": low, "final_high": high}


def finals(roster: Roster, rows: Integers, forecasts: ForecastTable) -> tuple[Floats, Floats, Floats]:
    """Return the best loss of each job at its end as forecast, and the low and the high end of its 80% interval.

    What a job has reached it keeps: none of the three is above its best loss so far, and all are that loss where no
    iteration is left. Before the second loss the forecast and the high end are infinite, and the low end is minus
    infinity. Of a job that has diverged all three are infinite.
    """
    stride = np.maximum(roster.stride[rows], 1)
    known = roster.observed[rows] / stride
    left = roster.losses_left(rows) / stride
    ahead = np.where(np.isnan(left), FORESIGHT * known, left).clip(0.0, KNOTS[-1])
    place = (np.searchsorted(KNOTS, ahead, side="right") - 1).clip(0, len(KNOTS) - 2)
    share = (ahead - KNOTS[place]) / (KNOTS[place + 1] - KNOTS[place])
    each = np.arange(len(rows))
    fall, below, above = (
        table[each, place] * (1.0 - share) + table[each, place + 1] * share
        for table in (forecasts.fall, forecasts.below, forecasts.above)
    )
    mean = forecasts.level - fall
    best = roster.best[rows]
    heard = roster.observed[rows] >= 2
    final, low, high = (
        np.where(left <= 0.0, best, np.minimum(end, best)) for end in (mean, mean - below, mean + above)
    )
    low = np.where(heard, low, -np.inf)
    lost = roster.diverged[rows]
    return (
        np.where(heard & ~lost, final, np.inf),
        np.where(lost, np.inf, low),
        np.where(heard & ~lost, high, np.inf),
    )
