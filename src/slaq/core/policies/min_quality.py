"""Max-min on quality: each next unit goes to the job with the highest predicted loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.sharing import first, guarantee, spread

#: Up to this many units (plus this many per job) are sorted directly; more are first reduced by bisection.
FEW = 1000
FEW_PER_JOB = 4


@dataclass(frozen=True, slots=True)
class MinQuality(Policy):
    """Minimises the highest predicted weight x normalised loss, then the next highest, and so on (§4.3).

    This is the paper's heuristic with a correction: the next unit goes to the job whose predicted loss is
    highest, where the paper's text has argmin. A job that gains nothing from another unit gets no more. A weight
    of 2 asks for half the loss. Beyond the guarantees, more capacity never raises the highest predicted loss.
    """

    serves_all: ClassVar[bool] = True
    #: Every job keeps this fraction of its fair share, so that it goes on reporting losses.
    floor: float = 0.05

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        sure = guarantee(candidates, capacity, self.floor)
        units = sure.lower
        if units.sum() < capacity:
            # A job gains nothing from units beyond the point where its gain stops rising.
            gain = candidates.gain
            useful = candidates.grid[np.argmax(gain >= gain[:, -1:], axis=1)]
            most = np.maximum(np.minimum(useful, sure.upper), units)
            units = most if most.sum() <= capacity else _level(candidates, units, most, capacity)
            units = spread(candidates, units, sure.credit, capacity)
        return sure.allocation(candidates, units)


def _level(candidates: Candidates, few: Integers, many: Integers, capacity: int) -> Integers:
    """Return units between `few` and `many`, `capacity` in all, that serve the highest predicted loss first."""
    c = candidates
    loss = c.weight[:, None] * (c.loss[:, None] - c.gain)
    # The jobs reach the level `high` with the `few` units, which fit, and `low` with the `many`, which do not.
    low, high = float(loss.min()), float(loss.max())
    in_doubt = max(FEW, FEW_PER_JOB * few.size)
    while (many - few).sum() > in_doubt:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        units = np.clip(_units_to_reach(middle, loss, c.grid), few, many)
        if units.sum() <= capacity:
            few, high = units, middle
        else:
            many, low = units, middle
    return few + _worst_first(c, few, many - few, capacity - int(few.sum()))


def _units_to_reach(level: float, loss: Floats, grid: Integers) -> Integers:
    """Return the fewest units at which each job's loss is at most `level`; the largest grid point if none does."""
    above = np.count_nonzero(loss > level, axis=1)
    inside = (above > 0) & (above < grid.size)
    k = np.where(inside, above, 1)
    rows = np.arange(k.size)
    start, end = loss[rows, k - 1], loss[rows, k]
    part = np.divide(start - level, start - end, out=np.zeros_like(start), where=inside)
    between = grid[k - 1] + np.ceil(part * (grid[k] - grid[k - 1])).astype(np.int64)
    units: Integers = np.where(inside, between, grid[np.minimum(above, grid.size - 1)])
    return units


def _worst_first(candidates: Candidates, few: Integers, wanted: Integers, left: int) -> Integers:
    """Return how many of its `wanted` units each job gets if each next unit goes to the highest predicted loss."""
    c = candidates
    job = np.repeat(np.arange(few.size), wanted)
    units = few[job] + np.arange(job.size) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    k = np.minimum(np.searchsorted(c.grid, units, side="right"), c.grid.size - 1)
    begin = c.grid[k - 1]
    gain = c.gain[job, k - 1]
    gain += (c.gain[job, k] - gain) * (units - begin) / (c.grid[k] - begin)
    loss_before = c.weight[job] * (c.loss[job] - gain)
    return np.bincount(job[first(-loss_before, c.order[job], left)], minlength=few.size)
