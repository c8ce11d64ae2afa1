"""The paper's policy: each next unit goes to the job whose loss it is predicted to reduce the most."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.sharing import Guarantee, guarantee, in_turn, spread

#: Up to this many segments are sorted directly; more are first reduced by a histogram.
FEW = 8_000
#: A job ends last if it needs this many times as long as all the work there is; below, quality would pay for it.
MARGIN = 1.2
#: It does so unless waiting for all the others would make its end later by no more than this share of its own time.
PATIENCE = 0.03
#: What is held for the sake of the last end is no more than this share of the capacity, so that all other jobs
#: together are never slowed down by more than a factor of two.
HELD = 0.5


@dataclass(frozen=True, slots=True)
class TotalQuality(Policy):
    """Maximises the sum of weight x gain over all jobs (§4.3, Algorithm 1).

    Gains are concave, so the paper's heap, which hands out units one by one, is equal to a sort of all segments
    of all jobs by their gain per unit, cut at the capacity. For equal gains the earlier job comes first. Units
    that no job gains from are shared fairly.
    """

    by_gain: ClassVar[bool] = True
    serves_all: ClassVar[bool] = True
    #: Every job keeps this fraction of its fair share, so that it goes on reporting losses.
    floor: float = 0.05

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        sure = with_last_to_end(candidates, guarantee(candidates, capacity, self.floor), capacity)
        units = steepest(candidates, sure.lower, sure.upper, capacity)
        if units is not sure.lower:
            units = spread(candidates, units, sure.credit, capacity)
        return sure.allocation(candidates, units)


def with_last_to_end(candidates: Candidates, sure: Guarantee, capacity: int) -> Guarantee:
    """Return the guarantee, raised towards the maximum for jobs that would end last even so.

    The capacity needs some time for all the work there is. A job that takes MARGIN times as long by itself, with
    all the units that it can use, would run on alone while the other units are idle: each moment that it waits, the
    end of the last job comes later. The job that takes the longest comes first.

    What a job tells of its end is believed, however large it is, so what is held for it is bounded twice: by HELD,
    and by PATIENCE, as what a job can lose by waiting is no more than the time that the others need.
    """
    c = candidates
    if not len(c.work) or np.isnan(c.work).all():
        return sure
    # Sorted, so that the sum does not depend on the order of the rows.
    work = np.where(np.isnan(c.work), c.remaining, c.work)
    alone = c.work / np.minimum(c.max_units, max(capacity, 1))
    last = c.competes & (alone > MARGIN * np.sort(work).sum() / max(capacity, 1))
    others = np.sort(work[~last]).sum() / max(capacity, 1)
    held = (last & (others > PATIENCE * alone)).nonzero()[0]
    if not len(held):
        return sure
    room = np.zeros_like(sure.lower)
    room[held] = (sure.upper - sure.lower)[held]
    longest = -np.nan_to_num(alone)
    left = capacity - int(sure.lower.sum())
    most = int(HELD * capacity) - int(sure.lower[held].sum())
    more = in_turn(room, c.order, max(min(left, most), 0), longest)
    return replace(sure, lower=sure.lower + more)


def steepest(candidates: Candidates, units: Integers, upper: Integers, capacity: int) -> Integers:
    """Return the units plus those, up to the capacity, that add the most weighted gain."""
    left = capacity - int(units.sum())
    if left <= 0:
        return units
    # One row per segment of the grid: the units left in it, and the gain of each.
    grid, gain = candidates.grid[:, None], candidates.gain.T
    held: Integers = np.clip(grid, units, upper)
    width = held[1:] - held[:-1]
    slope = gain[1:] - gain[:-1]
    slope *= candidates.weight
    slope /= grid[1:] - grid[:-1]
    return units + _steepest(slope, width, candidates.order, left)


def _steepest(slope: Floats, width: Integers, order: Integers, left: int) -> Integers:
    """Return the units per job in the steepest segments: `left` units in all, or fewer if fewer segments rise."""
    cut = _cut(slope.ravel(), width.ravel(), left)
    units: Integers = np.einsum("ij,ij->j", width, slope > cut)
    if cut > 0:
        level = np.einsum("ij,ij->j", width, slope == cut)
        rows = level.nonzero()[0]
        units[rows] += in_turn(level[rows], order[rows], left - int(units.sum()))
    return units


def _cut(slope: Floats, width: Integers, left: int) -> float:
    """Return the slope of the last segment to be served; 0 if all rising segments are."""
    if slope.size > FEW:
        # The leading bits of a positive float64 have the order of the number: 64 buckets per power of two.
        bucket = np.maximum(slope, np.finfo(np.float64).tiny).view(np.int64) >> 46
        beyond = np.bincount(bucket, weights=width)[::-1].cumsum()[::-1]
        last = int((-beyond).searchsorted(-left, side="right")) - 1
        if last < 0:
            return 0.0
        rows = np.flatnonzero(bucket == last)
        slope, width = slope[rows], width[rows]
        left -= int(beyond[last + 1]) if last + 1 < beyond.size else 0
    by = (-slope).argsort()
    held = width[by].cumsum()
    k = int(held.searchsorted(left))
    return max(float(slope[by[k]]), 0.0) if k < held.size else 0.0
