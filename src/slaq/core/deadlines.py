"""The cores that jobs must hold until their deadlines to reach their targets in time."""

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.forecaster import ForecastTable
from slaq.core.reliability import probabilities, strides_for
from slaq.core.roster import Roster
from slaq.core.trajectories import OUT_OF_REACH, strides_to_target

#: The probability with which a job should reach its target on the cores that it needs.
LIKELY = 0.8


def needed_cores(
    roster: Roster, rows: Integers, forecasts: ForecastTable, cpu: Floats, most: Floats, now: float
) -> Floats:
    """Return the fewest cores that make each job's target likely if held until its deadline.

    `most` holds the most cores that each job can use. If these do not make the target likely but possible, the
    result is `most`. If they do not make it possible, or the deadline has passed, the result is infinite. For
    jobs whose target is reached, and for jobs without a deadline, the result is 0.
    """
    needed = np.zeros(len(rows))
    dated = (roster.deadline[rows] < np.inf).nonzero()[0]
    dated = dated[roster.competes[rows[dated]]] if len(dated) else dated
    if not len(dated):
        return needed
    rows, cpu, most = rows[dated], cpu[dated], most[dated]
    found = forecasts.take(dated)
    strides = strides_to_target(roster, rows, found)
    left = (roster.deadline[rows] - now).clip(0.0, None)
    stride = roster.stride[rows].astype(np.float64)
    fastest = roster.runtime.steady_seconds(rows, cpu, most[:, None])[:, 0] * stride
    arrive = np.where(np.isfinite(strides), strides, 0.0)
    available = np.column_stack((arrive, left / np.maximum(fastest, 1e-12)))
    probability = probabilities(roster, rows, found, strides, available)
    chance = probability[:, -1]

    # With n cores an iteration takes serial + cpu / n seconds; the time left gives the longest it may take.
    likely = strides_for(strides, probability[:, :-1], LIKELY) * stride
    allowed = np.divide(left, likely, out=np.full(len(rows), np.inf), where=likely > 0)
    parallel = allowed - roster.runtime.steady_serial(rows)
    cores = roster.runtime.cores_for(rows, cpu, parallel).clip(0.0, most)
    # A job needs a part of a core even if its iterations take no measurable time.
    cores = np.maximum(cores, 1e-9)
    needed[dated] = np.where(chance < OUT_OF_REACH, np.inf, np.where(strides[:, -1] == 0.0, 0.0, cores))
    return needed
