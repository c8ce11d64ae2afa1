"""Deadlines first: jobs that can meet their deadlines get the units they need, and gain divides the rest."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Integers
from slaq.core.policies.total_quality import steepest, with_last_to_end
from slaq.core.sharing import DECIMALS, Guarantee, guarantee, spread


@dataclass(frozen=True, slots=True)
class Deadline(Policy):
    """Meets as many deadlines as it can, and maximises the sum of weight x gain with the remaining units.

    After the guarantees, the job that needs the fewest units per weight to meet its deadline gets them, then
    the next, as long as a job's whole need fits. A job whose need does not fit, or that cannot meet its deadline
    with the most units it can use, competes by its gain like a job without a deadline.
    """

    by_gain: ClassVar[bool] = True
    by_need: ClassVar[bool] = True
    serves_all: ClassVar[bool] = True
    #: Every job keeps this fraction of its fair share, so that it goes on reporting losses.
    floor: float = 0.05

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        sure = with_last_to_end(candidates, guarantee(candidates, capacity, self.floor), capacity)
        left = capacity - int(sure.lower.sum())
        units = sure.lower
        if left > 0:
            units = units + _favoured(candidates, sure, left)
            units = steepest(candidates, units, sure.upper, capacity)
            units = spread(candidates, units, sure.credit, capacity)
        return sure.allocation(candidates, units)


def _favoured(candidates: Candidates, sure: Guarantee, left: int) -> Integers:
    """Return the units added for jobs that can meet their deadlines; jobs that need the fewest come first."""
    c = candidates
    able = c.competes & (c.needed > 0) & np.isfinite(c.needed)
    needed = np.where(able, c.needed, 0.0)
    whole = np.ceil(needed.round(DECIMALS)).astype(np.int64)
    missing = (np.minimum(whole, sure.upper) - sure.lower).clip(0, None)
    added = np.zeros_like(missing)
    short = missing.nonzero()[0]
    for row in short[np.lexsort((c.order[short], (needed / c.weight)[short]))].tolist():
        if missing[row] <= left:
            added[row] = missing[row]
            left -= int(missing[row])
    return added
