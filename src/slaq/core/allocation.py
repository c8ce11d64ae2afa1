"""Candidates in, allocation out: the values a policy reads and returns."""

from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The active jobs of one decision as arrays, one row per job.

    Every array below has one element, or one row, per job unless its note says otherwise.
    """

    ids: tuple[str, ...]
    #: Place in the order of submission, unique; breaks every tie, so that permuting the rows permutes
    #: the allocation.
    order: Integers
    #: False for jobs that hold their fair share or reservation outside the competition.
    competes: Booleans
    weight: Floats
    min_units: Integers
    #: At least 1, at most the capacity or more.
    max_units: Integers
    #: Units reserved by a job that does not compete; -1 for its fair share.
    reserved_units: Integers
    #: Normalised loss now: 1 at the start, towards 0.
    loss: Floats
    #: Unit counts at which gains are given: shape (points,), strictly increasing integers from 0.
    grid: Integers
    #: Predicted fall of normalised loss over the coming epoch with `grid` units: shape (jobs, points),
    #: 0 in the first column, concave and non-decreasing; linear between two points of the grid.
    gain: Floats
    #: Unit seconds held so far.
    attained: Floats
    #: Predicted CPU seconds until nearly converged.
    remaining: Floats
    #: Fractions of a unit owed from earlier rounding; below one unit either way.
    credit: Floats
    #: The names of the owners: one element each, in any order; some may have no job here.
    owners: tuple[str, ...]
    #: Whose job it is: a place in `owners`.
    owner: Integers
    #: Fractions of a unit owed to each owner from earlier rounding: one element per owner.
    owner_credit: Floats
    #: Seconds until its deadline, below 0 where that has passed; infinite where it has none.
    seconds_left: Floats
    #: Units, a real number, that make its target likely if it holds them until its deadline; 0 where it has none
    #: or its target is reached, infinite where it cannot be made.
    needed: Floats

    def take(self, rows: slice | Integers) -> Self:
        """Return the jobs of these rows alone, in that order."""
        ids = self.ids[rows] if isinstance(rows, slice) else tuple(self.ids[row] for row in rows.tolist())
        return replace(self, ids=ids, **{name: getattr(self, name)[rows] for name in _BY_JOB})


#: The arrays of `Candidates` that have one element, or one row, per job.
_BY_JOB = (
    *("order", "competes", "weight", "min_units", "max_units", "reserved_units", "loss", "gain", "attained"),
    *("remaining", "credit", "owner", "seconds_left", "needed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Units per job for the coming epoch."""

    ids: tuple[str, ...]
    units: Integers
    #: What each job is now owed: the candidates' `credit` of the next decision.
    credit: Floats
    #: Its fair share of the capacity, a real number, and the units it was sure of; empty where nobody asked.
    fair_share: Floats = field(default_factory=lambda: np.empty(0))
    sure: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    #: One element per owner of the candidates, where the capacity was shared between owners; else empty.
    #: What each is now owed, and the units, a real number, that were its share.
    owner_credit: Floats = field(default_factory=lambda: np.empty(0))
    owner_share: Floats = field(default_factory=lambda: np.empty(0))

    def as_dict(self) -> dict[str, int]:
        """Return the units by job id."""
        return dict(zip(self.ids, self.units.tolist(), strict=True))


class Policy(Protocol):
    """Divides the capacity among the candidates.

    Deterministic and stateless between calls. Never hands out more than `capacity` units, nor more than a
    job's maximum; hands out all of it while any job can use more.
    """

    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        """Return the allocation for the coming epoch."""
        ...
