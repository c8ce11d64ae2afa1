"""Searches: groups of jobs of which the best one is wanted soon, and who of them may still become the best."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from slaq.core.allocation import Candidates
from slaq.core.arrays import Booleans, Floats, Integers

#: A job is a loser only after half of the losses that it will report, or so many where that is not known, though
#: never fewer than FEWEST; and only after it was one at so many decisions in a row.
HALF, SETTLED, FEWEST, DECISIONS = 0.5, 20, 4, 3
#: A loser's forecast lies above that of the best even where the interval below it is so many times as wide: five
#: standard deviations.
WIDTHS = 4.0


def by_group(candidates: Candidates, searching: Booleans) -> Iterator[Integers]:
    """Yield the rows of each search, given which jobs are searching."""
    rows = searching.nonzero()[0]
    group = candidates.group[rows]
    for number in np.unique(group):
        yield rows[group == number]


def best_high(jobs: Candidates) -> float:
    """Return the loss below which the best job of one search is forecast to end, or has ended."""
    return float(np.minimum(jobs.final_high, jobs.record).min(initial=np.inf))


def contenders(jobs: Candidates) -> Booleans:
    """Return which jobs of one search may still become the best: whose forecast is not wholly above the best's."""
    return np.asarray((jobs.final_low <= best_high(jobs)) & (jobs.final_low < np.inf))


@dataclass(slots=True)
class Losers:
    """Finds the jobs that have practically no chance to become the best of their search."""

    #: At how many decisions in a row each job was one.
    _found: dict[str, int] = field(default_factory=dict)

    def find(self, jobs: Candidates, settled: Booleans, asked: Callable[[str], bool]) -> list[str]:
        """Return the losers among the jobs that were asked to be ended as such.

        `settled` says of which jobs enough is known. The best of the others is never a loser.
        """
        found = {}
        for rows in by_group(jobs, jobs.competes & jobs.searches):
            search, known = jobs.take(rows), settled[rows]
            best = min(search.final_high[known].min(initial=np.inf), search.record.min())
            with np.errstate(invalid="ignore"):
                lowest = search.final - WIDTHS * (search.final - search.final_low)
            for place in np.flatnonzero(known & np.isfinite(search.final) & (lowest > best)).tolist():
                job_id = search.ids[place]
                if asked(job_id):
                    found[job_id] = self._found.get(job_id, 0) + 1
        self._found = found
        return [job_id for job_id, often in found.items() if often >= DECISIONS]


def settled(observed: Integers, total: Floats) -> Booleans:
    """Return of which jobs enough is known, by their losses so far and in all; NaN where that is not known."""
    enough = np.where(np.isnan(total), SETTLED, np.maximum(HALF * total, FEWEST))
    return np.asarray(observed >= enough)
