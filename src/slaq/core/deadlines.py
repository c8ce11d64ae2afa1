"""The units that jobs must hold, from now to their deadlines, to make their targets in time."""

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.courses import HOPELESS, chances, strides_for, strides_to_target
from slaq.core.forecaster import Outlook
from slaq.core.roster import Roster

#: The probability with which a job should make its target on the units it is said to need.
LIKELY = 0.8


def needed_units(
    roster: Roster, rows: Integers, outlook: Outlook, cpu: Floats, most: Integers, now: float
) -> Floats:
    """Return the fewest units, real numbers, that make each job's target likely if held until its deadline.

    All it can use where even they do not make it likely, but not hopeless either; infinite where they do not, and
    where the deadline has passed; 0 where the target is reached, and for jobs without a deadline.
    """
    needed = np.zeros(len(rows))
    dated = (roster.deadline[rows] < np.inf).nonzero()[0]
    dated = dated[roster.competes[rows[dated]]] if len(dated) else dated
    if not len(dated):
        return needed
    rows, cpu, most = rows[dated], cpu[dated], most[dated]
    strides = strides_to_target(roster, rows, outlook.take(dated))
    left = (roster.deadline[rows] - now).clip(0.0, None)
    stride = roster.stride[rows].astype(np.float64)
    fastest = roster.runtime.steady_seconds(rows, cpu, most[:, None].astype(np.float64))[:, 0] * stride
    chance = chances(strides, (left / np.maximum(fastest, 1e-12))[:, None])[:, 0]

    # With n units an iteration takes serial + cpu / n seconds, and may take as long as the time left allows.
    likely = strides_for(strides, LIKELY) * stride
    allowed = np.divide(left, likely, out=np.full(len(rows), np.inf), where=likely > 0)
    parallel = allowed - roster.runtime.steady_serial(rows)
    with np.errstate(over="ignore"):
        units = np.divide(cpu, parallel, out=most.astype(np.float64), where=parallel > 0).clip(0.0, most)
    # What takes no time at all still takes a unit to be taken.
    units = np.maximum(units, 1e-9)
    needed[dated] = np.where(chance < HOPELESS, np.inf, np.where(strides[:, -1] == 0.0, 0.0, units))
    return needed
