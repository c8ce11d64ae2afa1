"""Fair shares and their rounding to whole units, used by every policy."""

from dataclasses import dataclass

import numpy as np

from slaq.core.allocation import Allocation, Candidates
from slaq.core.arrays import Booleans, Floats, Integers

#: Shares are rounded to this many decimals, so that float errors do not change a job's units.
DECIMALS = 9
#: Added to the due time of a job that has already received more than its share.
NOT_YET = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The units that every job holds before its policy hands out the rest; one element per job."""

    #: Units that the job holds in any case; their sum never exceeds the capacity.
    lower: Integers
    #: The most units that the job may get; equal to `lower` for a job that does not compete.
    upper: Integers
    #: Fractions of a unit owed to each job after `lower`, between -1 and 1: the `credit` of the next decision.
    credit: Floats
    #: The job's fair share of the capacity, a real number.
    fair: Floats

    def allocation(self, candidates: Candidates, units: Integers) -> Allocation:
        """Return the allocation of these units."""
        return Allocation(
            ids=candidates.ids, units=units, credit=self.credit, fair_share=self.fair, sure=self.lower
        )


def water_fill(
    weight: Floats, limit: Floats | Integers, capacity: float, least: Floats | Integers | None = None
) -> Floats:
    """Return the weighted max-min fair shares: clip(level * weight, least, limit) for one common level.

    The shares sum to `capacity`, or to the sum of the limits if that is less. Weights are positive, and
    0 <= least <= limit. If the sum of `least` exceeds the capacity, `least` is returned.
    """
    if least is None:
        least = np.zeros_like(limit)
    used = least.sum()
    if limit.sum() <= capacity:
        return limit.astype(np.float64)
    if used >= capacity:
        return least.astype(np.float64)
    # The sum of the shares is piecewise linear in the level: a job adds its weight to the slope at the level where
    # it rises above its least, and subtracts it at the level where it reaches its limit.
    rises, full = least / weight, limit / weight
    level = np.concatenate((rises, full))
    # The stable sort is the fastest if most jobs rise from 0.
    by = level.argsort(kind="stable")
    level = level[by]
    # Sum from the highest level down, where the small weights are, so that large weights add no rounding error.
    slope = np.concatenate((-weight, weight))[by[::-1]].cumsum()[::-1]
    total = used + (slope[1:] * (level[1:] - level[:-1])).cumsum()
    k = min(int(total.searchsorted(capacity)), total.size - 1)
    # Solve again from the jobs that rise between these two levels, because the running sums have rounding errors.
    rising = (rises <= level[k]) & (full >= level[k + 1])
    rate = float(weight @ rising)
    fixed = float(np.where(full <= level[k], limit, least) @ ~rising)
    common = max((capacity - fixed) / rate, level[k]) if rate > 0 else level[k]
    shares: Floats = (weight * common).clip(least, limit)
    return shares


def guarantee(candidates: Candidates, capacity: int, fraction: float) -> Guarantee:
    """Return every job's guarantee: for a competing job its minimum or `fraction` of its fair share.

    A job that does not compete holds its reservation, or its fair share. The fair share is weighted max-min
    over all jobs, after reservations and minima. If these alone exceed the capacity, they and the fractions of
    the others are scaled down fairly.

    Guarantees are real numbers. In each epoch a job holds its guarantee rounded down or up, and the difference is
    carried as credit: over time the job holds its guarantee to within about a unit. So with more jobs than units,
    a job with a guarantee of a hundredth of a unit holds one unit in every hundredth epoch.
    """
    c = candidates
    least = least_units(c)
    limit = np.where(_reserved(c), least, c.max_units)
    fits = bool(least.sum() <= capacity)
    fair = water_fill(c.weight, limit, capacity, least if fits else None)
    promised = np.maximum(least, np.where(c.competes, fraction, 1.0) * fair)
    if not fits:
        promised = water_fill(c.weight, promised, capacity)
    lower, credit = round_with_credit(promised, c.credit, c.order, capacity)
    upper = np.where(c.competes, c.max_units, lower)
    return Guarantee(lower=lower, upper=upper, credit=credit, fair=fair)


def least_units(candidates: Candidates) -> Integers:
    """Return the units each job holds before the capacity is divided: its reservation, else its minimum."""
    c = candidates
    return np.minimum(np.where(_reserved(c), c.reserved_units, c.min_units), c.max_units)


def _reserved(candidates: Candidates) -> Booleans:
    return np.asarray(~candidates.competes & (candidates.reserved_units >= 0))


def round_with_credit(
    promised: Floats, credit: Floats, order: Integers, capacity: int
) -> tuple[Integers, Floats]:
    """Return the guarantees rounded down or up to whole units, and the remaining credit.

    The jobs to round up are chosen as in proportionate-fair scheduling (Baruah et al., 1996), and for one unit as
    in Tijdeman's chairman assignment (1980): among the jobs with positive credit, the one that would first be owed
    a whole unit.
    """
    promised = promised.round(DECIMALS)
    whole = np.floor(promised)
    part = promised - whole
    lower = whole.astype(np.int64)
    room = capacity - int(lower.sum())
    owed = (credit + part).round(DECIMALS)
    live = part > 0
    dust = 1e-6 + part.size * 10.0**-DECIMALS
    in_all = float(part.sum()) + max(float(credit @ live), 0.0)
    count = min(int(in_all + dust), room, int(np.count_nonzero(live)))
    if count > 0:
        due = np.full_like(part, np.inf)
        np.divide(1.0 - owed, part, out=due, where=live)
        due += NOT_YET * (owed <= 0)
        up = first(due, order, count)
        lower[up] += 1
        owed[up] -= 1
    return lower, owed.clip(-1.0, 1.0)


def first(key: Floats, order: Integers, count: int) -> Integers:
    """Return the rows of the `count` smallest keys, none if it is negative; ties go to the earliest in order."""
    if count <= 0:
        return np.arange(0)
    if count >= key.size:
        return np.arange(key.size)
    cut = np.partition(key, count - 1)[count - 1]
    below = (key < cut).nonzero()[0]
    ties = (key == cut).nonzero()[0]
    chosen = ties[order[ties].argsort()[: count - below.size]]
    return np.concatenate((below, chosen))


def in_turn(room: Integers, order: Integers, left: int, key: Floats | Integers | None = None) -> Integers:
    """Return the units each job gets if jobs are served by ascending key and order, each up to its room."""
    by = order.argsort() if key is None else np.lexsort((order, key))
    wanted = room[by]
    before = wanted.cumsum() - wanted
    units = np.empty_like(room)
    units[by] = (left - before).clip(0, wanted)
    return units


def serve(candidates: Candidates, capacity: int, key: Floats | Integers) -> Allocation:
    """Return the allocation that serves competing jobs by ascending key, each up to its maximum."""
    sure = guarantee(candidates, capacity, fraction=0.0)
    left = capacity - int(sure.lower.sum())
    units = sure.lower + in_turn(sure.upper - sure.lower, candidates.order, left, key)
    units = spread(candidates, units, sure.credit, capacity)
    return sure.allocation(candidates, units)


def spread(candidates: Candidates, units: Integers, credit: Floats, capacity: int) -> Integers:
    """Return the units with idle capacity added, so that no unit is idle while any job can use it.

    Competing jobs come first; jobs that do not compete get what is left. Within each group the units are shared
    fairly. These units change no credit, and go first to the jobs that are owed the most.
    """
    for open_to in (candidates.competes, True):
        if units.sum() >= capacity:
            break
        limit = np.where(open_to, candidates.max_units, units)
        total = min(capacity, int(limit.sum()))
        share = water_fill(candidates.weight, limit, total, units).round(DECIMALS)
        units = share.astype(np.int64)
        rest = total - int(units.sum())
        if rest > 0:
            part = share - units
            owed = np.where(part > 0, (part + credit).round(DECIMALS), -np.inf)
            units[first(-owed, candidates.order, rest)] += 1
    return units
