"""Best first: of the jobs of a search, those that may still become the best go first."""

from dataclasses import dataclass, replace

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.policies.fair import Fair
from slaq.core.searches import best_high, by_group, contenders
from slaq.core.sharing import guarantee, in_turn, least_units

#: A job of which too little is known is taken to end as low as so many spreads below the median of the others. The
#: spread is that of the better half: from the median down to where a sixth of them lie lower, which is one standard
#: deviation of a normal distribution.
SPREADS, SIXTH = 1.6, 0.16
#: Jobs of which something must be known before anything is said of one of which nothing is.
FEW = 3
#: The part of its weight that a job counts which can hardly become the best.
HOPELESS = 0.05
#: A job that may still become the best gets an epoch after it has waited for so many times the epochs that a round
#: of all such jobs would take: no more than a twentieth of the time goes there. A job of which too little is known
#: waits for one such round only.
PATIENCE, PATIENCE_OF_UNKNOWN = 20, 1


@dataclass(frozen=True, slots=True)
class BestFirst(Policy):
    """Finds the best job of each search soon: a search holds the fair share of those of its jobs that may win it.

    The jobs of one group that ask for it are a search, and `rest` divides what the other jobs hold in fair sharing.
    Without `rest`, all jobs of a group are a search, and those without a group are one together. In fair sharing a
    job that can hardly become the best counts only a twentieth of its weight, so that a search which has found its
    best leaves the cores to others.

    Within a search the jobs that may still become the best come first: those whose forecast does not lie wholly
    above that of the best. Of these the one that may end lowest, by the low end of its forecast, is served first,
    up to its maximum: so uncertainty counts in a job's favour. The others wait, and use what is left.
    """

    rest: Policy | None = None

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        c = candidates
        searching = c.competes & c.searches
        if self.rest is None:
            searching = c.competes
        elif not searching.any():
            return self.rest.allocate(c, capacity)
        weight, searches = c.weight.copy(), list(by_group(c, searching))
        for rows in searches:
            weight[rows[~contenders(c.take(rows))]] *= HOPELESS
        shared = _shared(c, weight, capacity)
        units, sure, credit = shared.units.copy(), shared.sure.copy(), shared.credit.copy()
        least = np.minimum(least_units(c), units)
        best = np.full(len(c.ids), np.nan)
        for rows in searches:
            jobs, held = c.take(rows), least[rows]
            left = int((units[rows] - held).sum())
            units[rows] = held + in_turn(jobs.max_units - held, jobs.order, left, places(jobs))
            sure[rows], best[rows] = held, best_high(jobs)
        others = (c.competes & ~searching).nonzero()[0]
        if self.rest is not None and len(others):
            budget = int(units[others].sum())
            inside = self.rest.allocate(c.take(others).within(budget), budget)
            units[others], sure[others], credit[others] = inside.units, inside.sure, inside.credit
        return replace(shared, units=units, sure=sure, credit=credit, best_high=best)


def _shared(c: Candidates, weight: Floats, capacity: int) -> Allocation:
    """Return fair sharing by these weights between the jobs that compete; the others hold what their own brings."""
    usual = guarantee(c, capacity, fraction=1.0)
    others = ~c.competes
    if not others.any():
        return Fair().allocate(replace(c, weight=weight), capacity)
    if least_units(c).sum() > capacity:
        return Fair().allocate(c, capacity)
    fixed = np.where(others, usual.lower, c.reserved_units)
    shared = Fair().allocate(replace(c, weight=weight, reserved_units=fixed), capacity)
    return replace(
        shared,
        credit=np.where(others, usual.credit, shared.credit),
        fair_share=np.where(others, usual.fair, shared.fair_share),
    )


def places(jobs: Candidates) -> Integers:
    """Return the place of each job of one search among them, from 0 on: who is served before whom."""
    low = lows(jobs)
    able = contenders(jobs)
    patience = np.where(jobs.final_low == -np.inf, PATIENCE_OF_UNKNOWN, PATIENCE)
    overdue = able & (jobs.waited >= patience * np.count_nonzero(able))
    ranked = np.lexsort((jobs.order, low, ~able, ~overdue))
    place = np.empty_like(ranked)
    place[ranked] = np.arange(len(ranked))
    return place


def lows(jobs: Candidates) -> Floats:
    """Return how low each job of one search may end: like a good one of the others where little is known.

    Minus infinity where little is known of the others either.
    """
    known = jobs.final[np.isfinite(jobs.final)]
    usual = -np.inf
    if len(known) >= FEW:
        median, sixth = np.quantile(known, (0.5, SIXTH))
        usual = median - SPREADS * (median - sixth)
    return np.where(jobs.final_low == -np.inf, usual, jobs.final_low)


def searching(policy: Policy) -> Policy:
    """Return the policy with searches beside it: the jobs of those are divided best first."""
    return policy if isinstance(policy, BestFirst) else BestFirst(policy)
