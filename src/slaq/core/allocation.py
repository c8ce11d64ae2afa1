"""The values that a policy reads and returns (candidates, allocation), and the grant made from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, Self

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The active jobs of one decision as arrays, one row per job.

    Every array below has one element, or one row, per job unless its note says otherwise.
    """

    ids: tuple[str, ...]
    #: Cores in one unit.
    unit: float = 1.0
    #: Position in the order of submission, unique. It breaks every tie, so a permutation of the rows permutes
    #: the allocation in the same way.
    order: Integers
    #: False for jobs that do not compete by their gain and hold their fair share or reservation.
    competes: Booleans
    weight: Floats
    min_units: Integers
    #: The most units the job can use: at least 1; may exceed the capacity.
    max_units: Integers
    #: Units reserved by a job that does not compete; -1 for its fair share.
    reserved_units: Integers
    #: Units each job holds now.
    held: Integers
    #: Normalised loss now: 1 at the start, falling towards 0.
    loss: Floats
    #: Unit counts at which gains are tabulated: shape (points,), strictly increasing integers from 0.
    grid: Integers
    #: Predicted fall of normalised loss over the coming epoch with `grid` units: shape (jobs, points),
    #: 0 in the first column, concave and non-decreasing; linear between two points of the grid.
    gain: Floats
    #: Core seconds held so far.
    attained: Floats
    #: Predicted CPU seconds until nearly converged.
    remaining: Floats
    #: Fractions of a unit owed to the job from earlier rounding: between -1 and 1.
    credit: Floats
    #: The names of the owners, in any order; an owner may have no job here.
    owners: tuple[str, ...]
    #: The owner of the job, as an index into `owners`.
    owner: Integers
    #: Fractions of a unit owed to each owner from earlier rounding: one element per owner.
    owner_credit: Floats
    #: Seconds until the deadline, negative after it; infinite without a deadline.
    seconds_left: Floats
    #: Units, a real number, that make the target likely if the job holds them until its deadline; 0 if there is
    #: no deadline or the target is reached; infinite if the target cannot be reached in time.
    needed: Floats
    #: The group of the job, as a number above 0 of which a group has one; 0 for no group.
    group: Integers
    #: Whether the job is one of a search: the best job of its group is wanted soon.
    searches: Booleans
    #: The best loss that the job is forecast to have had at its end, with an 80% interval, turned so that less is
    #: better. Before the second loss it is infinite, with a low end of minus infinity; of a job that has diverged
    #: it is infinite, low end included.
    final: Floats
    final_low: Floats
    final_high: Floats
    #: The best loss of the jobs of its group that have completed; infinite without any.
    record: Floats
    #: Epochs since the job last held a unit, or since its start.
    waited: Integers
    #: By row, for jobs that cannot run with every unit count: the counts they can run with, ascending.
    sizes: Mapping[int, Integers] = field(default_factory=dict)
    #: Units owed to each job because its size was below its allocation; 0 for jobs that can run with any count.
    size_credit: Floats = field(default_factory=lambda: np.empty(0))
    #: Core seconds until each job ends, NaN where its end is not known; empty if no end is looked at.
    work: Floats = field(default_factory=lambda: np.empty(0))

    def take(self, rows: slice | Integers) -> Self:
        """Return only the jobs of these rows, in that order and without their sizes."""
        ids = self.ids[rows] if isinstance(rows, slice) else tuple(self.ids[row] for row in rows.tolist())
        work = self.work[rows] if len(self.work) else self.work
        return replace(
            self, ids=ids, sizes={}, work=work, **{name: getattr(self, name)[rows] for name in _BY_JOB}
        )

    def within(self, budget: int) -> Self:
        """Return the same jobs with gains up to this budget of units."""
        columns = max(int(self.grid.searchsorted(budget)) + 1, 2)
        return replace(self, grid=self.grid[:columns], gain=self.gain[:, :columns])


#: The arrays of `Candidates` that have one element, or one row, per job.
_BY_JOB = (
    *("order", "competes", "weight", "min_units", "max_units", "reserved_units", "held", "loss", "gain"),
    *("attained", "remaining", "credit", "owner", "seconds_left", "needed"),
    *("group", "searches", "final", "final_low", "final_high", "record", "waited"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Units per job for the coming epoch."""

    ids: tuple[str, ...]
    units: Integers
    #: Fractions of a unit now owed to each job: `Candidates.credit` of the next decision.
    credit: Floats
    #: The job's fair share of the capacity (a real number) and its guarantee in units; empty if not computed.
    fair_share: Floats = field(default_factory=lambda: np.empty(0))
    sure: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    #: One element per owner if the capacity was shared between owners, else empty: fractions of a unit now owed
    #: to the owner, and the owner's share in units (a real number).
    owner_credit: Floats = field(default_factory=lambda: np.empty(0))
    owner_share: Floats = field(default_factory=lambda: np.empty(0))
    #: The loss below which the best job of each job's search is forecast to end, turned as `Candidates.final` is;
    #: NaN for a job of no search; empty if there is no search.
    best_high: Floats = field(default_factory=lambda: np.empty(0))

    def as_dict(self) -> dict[str, int]:
        """Return the units by job id."""
        return dict(zip(self.ids, self.units.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Cores per job for the coming epoch: the allocation converted from units to cores."""

    ids: tuple[str, ...]
    cores: Floats
    #: Cores owed to each job because of rounding to units and to sizes.
    credit: Floats
    size_credit: Floats
    #: Cores owed to each owner if the capacity was shared between owners; else empty.
    owner_credit: Floats = field(default_factory=lambda: np.empty(0))

    def as_dict(self) -> dict[str, float]:
        """Return the cores by job id."""
        return dict(zip(self.ids, self.cores.tolist(), strict=True))


class Policy(Protocol):
    """Divides the capacity among the candidates.

    Deterministic and stateless between calls. A policy never hands out more than `capacity` units in all or a
    job's maximum to a job, and leaves no unit idle while any job can use more. Jobs hold their minima and
    reservations if all of them fit. `slaq.testing.PolicyContract` tests these laws.
    """

    #: For explanations: whether the policy gives units to the jobs that gain the most.
    by_gain: ClassVar[bool] = False
    #: For explanations: whether the policy first serves jobs that need units to meet their deadlines.
    by_need: ClassVar[bool] = False
    #: Whether every competing job gets units from time to time, however many jobs there are.
    serves_all: ClassVar[bool] = False

    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        """Return the allocation for the coming epoch."""
        ...
