"""Sharing between owners: each owner gets a weighted fair share, which an inner policy divides among its jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.sharing import least_units, round_with_credit, water_fill


@dataclass(frozen=True, slots=True)
class BetweenOwners(Policy):
    """Gives each owner with jobs its weighted max-min share, which the inner policy divides among the owner's jobs.

    Units that an owner's jobs cannot use go to the other owners, so no unit is idle while any job can use it.
    Minima and reservations may exceed an owner's share if they all fit into the capacity. Shares are real
    numbers and are rounded with credit, as those of jobs are: with more owners than units, owners take turns.
    For a single owner without a limit, the result is that of the inner policy.
    """

    inner: Policy
    #: Weights by the owner's name, above 0.
    weight: Mapping[str, float] = field(default_factory=dict)
    #: The most cores that an owner's jobs may hold together, by the owner's name; None for no limit.
    most: Mapping[str, float | None] = field(default_factory=dict)
    #: The weight and limit of owners without an entry above.
    usual_weight: float = 1.0
    usual_most: float | None = None

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        c = candidates
        credit, shares = np.zeros((2, len(c.owners)))
        if not c.ids:
            return replace(self.inner.allocate(c, capacity), owner_credit=credit, owner_share=shares)
        # Rows grouped by owner, owners ordered by their earliest job, so that sums do not depend on the row order.
        present, earliest = _owners(c)
        place = np.empty(len(c.owners), dtype=np.int64)
        place[present] = np.arange(len(present))
        by_owner = place[c.owner].argsort(kind="stable")
        starts = np.append(0, np.bincount(place[c.owner]).cumsum())
        grouped = c.take(by_owner)
        shares[present], budget, credit[present] = self._budgets(grouped, capacity, present, earliest, starts)
        units, sure = np.zeros((2, len(c.ids)), dtype=np.int64)
        owed, fair = np.zeros((2, len(c.ids)))
        best = np.full(len(c.ids), np.nan)
        for owner, (start, stop) in enumerate(pairwise(starts.tolist())):
            held = int(budget[owner])
            inside = self.inner.allocate(grouped.take(slice(start, stop)).within(held), held)
            rows = by_owner[start:stop]
            units[rows], owed[rows] = inside.units, inside.credit
            sure[rows], fair[rows] = inside.sure, inside.fair_share
            if len(inside.best_high):
                best[rows] = inside.best_high
        return Allocation(
            ids=c.ids,
            units=units,
            credit=owed,
            fair_share=fair,
            sure=sure,
            owner_credit=credit,
            owner_share=shares,
            best_high=np.empty(0) if np.isnan(best).all() else best,
        )

    def _budgets(
        self, grouped: Candidates, capacity: int, present: Integers, earliest: Integers, starts: Integers
    ) -> tuple[Floats, Integers, Floats]:
        """Return each owner's share, its whole units for this epoch, and the remaining credit."""
        names = [grouped.owners[owner] for owner in present.tolist()]
        weight = np.array([self.weight.get(name, self.usual_weight) for name in names])
        usable = np.add.reduceat(grouped.max_units, starts[:-1])
        allowed = [self.most.get(name, self.usual_most) for name in names]
        limit = np.minimum(usable, [_units(cores, grouped.unit, capacity) for cores in allowed])
        least = np.minimum(np.add.reduceat(least_units(grouped), starts[:-1]), limit)
        share = water_fill(weight, limit, capacity, least if least.sum() <= capacity else None)
        whole, credit = round_with_credit(share, grouped.owner_credit[present], earliest, capacity)
        return share, whole, credit


def _units(cores: float | None, unit: float, capacity: int) -> int:
    """Return a limit in cores as units: the capacity for no limit, and at least one unit for a limit above 0."""
    if cores is None:
        return capacity
    return max(round(cores / unit), 1) if cores > 0 else 0


def _owners(candidates: Candidates) -> tuple[Integers, Integers]:
    """Return the owners that have jobs, ordered by their earliest job, and that job's position in the order."""
    earliest = np.full(len(candidates.owners), np.iinfo(np.int64).max)
    np.minimum.at(earliest, candidates.owner, candidates.order)
    present = np.unique(candidates.owner)
    present = present[earliest[present].argsort()]
    return present, earliest[present]
