"""Fit an allocation to the sizes that jobs can run with: whole workers, or listed sizes."""

from dataclasses import replace

import numpy as np

from slaq.core.allocation import Allocation, Candidates
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.demand import Demand
from slaq.core.sharing import least_units, spread

# The rounding error of a sum of fractions.
_DUST = 1e-9


def unit_sizes(demand: Demand, unit: float, capacity: int) -> Integers | None:
    """Return the unit counts that a job can run with, ascending, up to the capacity; None for any count."""
    if demand.sizes == "any":
        return None
    most = capacity if demand.most is None else min(capacity, int(demand.most / unit + _DUST))
    if demand.sizes == "whole":
        step = max(round(1.0 / unit), 1)
        return None if step == 1 else np.arange(step, most + 1, step, dtype=np.int64)
    listed = np.array(sorted({max(round(cores / unit), 1) for cores in demand.sizes}), dtype=np.int64)
    return listed[listed <= most]


def fit_sizes(candidates: Candidates, allocation: Allocation, capacity: int) -> tuple[Allocation, Floats]:
    """Return the allocation with every job at a size it can run with, and the units owed to each job.

    A job gets the largest size within its allocation plus what it is owed; the difference is carried as credit.
    So a job that needs a whole core and has a share of a quarter holds one core in every fourth epoch. Jobs that
    can run with any count give up units for this, down to their minimum, and share the units left over. If they
    cannot use all of these, the jobs that are owed the most get a larger size.
    """
    c = candidates
    if not c.sizes:
        return allocation, np.zeros(len(c.ids))
    rows = np.array(sorted(c.sizes, key=lambda row: (-c.size_credit[row], c.order[row])), dtype=np.int64)
    sized = np.zeros(len(c.ids), dtype=bool)
    sized[rows] = True
    units = allocation.units.copy()
    least = np.minimum(least_units(c), units)
    room = capacity - int(least[~sized].sum())
    due = allocation.units + c.size_credit
    for row in rows.tolist():
        units[row] = _largest(c.sizes[row], min(due[row] + _DUST, room))
        room -= int(units[row])
    units = _make_room(units, least, sized, capacity)
    held = np.where(sized, units, c.max_units)
    units = spread(replace(c, max_units=held), units, allocation.credit, capacity)
    units = _step_up(c, units, rows, capacity)
    owed = np.where(sized, due - units, 0.0)
    for row in rows.tolist():
        largest = float(c.sizes[row].max(initial=0))
        owed[row] = min(max(owed[row], -largest), largest)
    return replace(allocation, units=units), owed


def _largest(sizes: Integers, most: float) -> int:
    """Return the largest size of at most `most`; 0 if there is none."""
    place = int(np.searchsorted(sizes, most, side="right"))
    return int(sizes[place - 1]) if place else 0


def _make_room(units: Integers, least: Integers, sized: Booleans, capacity: int) -> Integers:
    """Return the units that fit: jobs that run with any count lose units above their minima in proportion."""
    over = int(units.sum()) - capacity
    if over <= 0:
        return units
    extra = np.where(sized, 0, units - least)
    cut, rest = np.divmod(extra * over, max(int(extra.sum()), 1))
    cut[np.argsort(-rest, kind="stable")[: over - int(cut.sum())]] += 1
    return units - np.minimum(cut, extra)


def _step_up(candidates: Candidates, units: Integers, rows: Integers, capacity: int) -> Integers:
    """Return the units with idle ones added to jobs that can run with a larger size, in the order of `rows`."""
    units = units.copy()
    for row in rows.tolist():
        idle = capacity - int(units.sum())
        if idle <= 0:
            break
        most = min(units[row] + idle, candidates.max_units[row])
        units[row] = max(int(units[row]), _largest(candidates.sizes[row], most))
    return units
