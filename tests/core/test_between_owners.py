"""Laws of sharing between owners: fair among them, the inner policy inside each share, nothing idle."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Integers
from slaq.core.policies import BetweenOwners, Fair, Fifo, MinQuality, TotalQuality
from slaq.core.sharing import least_units, water_fill
from slaq.testing.strategies import candidates, equal_jobs

INNER = [TotalQuality(), MinQuality(), Fair(), Fifo()]
every_inner = pytest.mark.parametrize("inner", INNER, ids=lambda policy: type(policy).__name__)
capacities = st.integers(0, 40)
weights = st.dictionaries(st.sampled_from(["owner-0", "owner-1"]), st.sampled_from([0.5, 2.0, 3.0]))
limits = st.dictionaries(st.sampled_from(["owner-0", "owner-2"]), st.none() | st.integers(0, 12))
usual = st.none() | st.integers(3, 9)


def held_by(jobs: Candidates, units: Integers) -> Integers:
    """Units by owner."""
    return np.bincount(jobs.owner, weights=units, minlength=len(jobs.owners)).astype(np.int64)


def may_hold(policy: BetweenOwners, jobs: Candidates, capacity: int) -> Integers:
    """Units that each owner's jobs could use and are allowed."""
    allowed = [policy.most.get(name, policy.usual_most) for name in jobs.owners]
    held = held_by(jobs, jobs.max_units)
    return np.minimum(held, [capacity if units is None else units for units in allowed])


def epochs(policy: Policy, jobs: Candidates, capacity: int, count: int) -> Iterator[Allocation]:
    """The allocations of epochs in which nothing but the credits changes."""
    for _ in range(count):
        allocation = policy.allocate(jobs, capacity)
        yield allocation
        jobs = replace(jobs, credit=allocation.credit, owner_credit=allocation.owner_credit)


@every_inner
@given(jobs=candidates(owners=1), capacity=capacities)
def test_one_owner_sees_the_inner_policy(inner: Policy, jobs: Candidates, capacity: int) -> None:
    """With one owner and no limit, units and credits are those of the inner policy."""
    alone, shared = inner.allocate(jobs, capacity), BetweenOwners(inner).allocate(jobs, capacity)
    assert shared.as_dict() == alone.as_dict()
    np.testing.assert_array_equal(shared.credit, alone.credit)


@every_inner
@given(jobs=candidates(), capacity=capacities, most=limits, usual=usual)
def test_uses_all_it_may_and_no_more(
    inner: Policy, jobs: Candidates, capacity: int, most: dict[str, int | None], usual: int | None
) -> None:
    """No job exceeds its maximum, no owner their limit, and no unit is idle that some job could use."""
    policy = BetweenOwners(inner, {"owner-1": 3.0}, most, usual_weight=0.5, usual_most=usual)
    allocation = policy.allocate(jobs, capacity)
    room = may_hold(policy, jobs, capacity)
    assert allocation.ids == jobs.ids
    assert (allocation.units >= 0).all()
    assert (allocation.units <= jobs.max_units).all()
    assert (held_by(jobs, allocation.units) <= room).all()
    assert allocation.units.sum() == min(capacity, room.sum())
    assert (np.abs(allocation.credit) <= 1).all()
    assert (np.abs(allocation.owner_credit) <= 1).all()


@every_inner
@given(jobs=candidates(), capacity=capacities, weight=weights, data=st.data())
def test_rows_do_not_matter(
    inner: Policy, jobs: Candidates, capacity: int, weight: dict[str, float], data: st.DataObject
) -> None:
    """Permuting the jobs permutes the allocation, and changes no owner's credit."""
    by = np.array(data.draw(st.permutations(range(len(jobs.ids)))), dtype=np.int64)
    policy = BetweenOwners(inner, weight)
    one, other = policy.allocate(jobs, capacity), policy.allocate(jobs.take(by), capacity)
    assert one.as_dict() == other.as_dict()
    np.testing.assert_array_equal(one.owner_credit, other.owner_credit)


@given(jobs=candidates(), capacity=capacities, data=st.data())
def test_numbers_of_owners_do_not_matter(jobs: Candidates, capacity: int, data: st.DataObject) -> None:
    """Other numbers for the owners change nothing."""
    to = np.array(data.draw(st.permutations(range(len(jobs.owners)))), dtype=np.int64)
    names = tuple(jobs.owners[place] for place in np.argsort(to))
    renamed = replace(jobs, owners=names, owner=to[jobs.owner])
    policy = BetweenOwners(TotalQuality(), {"owner-1": 2.0}, {"owner-0": 7})
    assert policy.allocate(renamed, capacity).as_dict() == policy.allocate(jobs, capacity).as_dict()


@every_inner
@given(jobs=candidates(), capacity=capacities)
def test_minima_are_held(inner: Policy, jobs: Candidates, capacity: int) -> None:
    """Every job holds its minimum or reservation if they all fit, whatever its owner's share."""
    least = least_units(jobs)
    assume(least.sum() <= capacity)
    assert (BetweenOwners(inner).allocate(jobs, capacity).units >= least).all()


@every_inner
@given(jobs=candidates(least=1, others=False, minima=False), capacity=capacities, weight=weights, most=limits)
def test_owners_hold_their_share_over_time(
    inner: Policy, jobs: Candidates, capacity: int, weight: dict[str, float], most: dict[str, int | None]
) -> None:
    """In each epoch, and over all of them, an owner is within a unit of its weighted max-min share."""
    policy = BetweenOwners(inner, weight, most)
    room = may_hold(policy, jobs, capacity)
    each = np.array([weight.get(name, 1.0) for name in jobs.owners])
    shares = water_fill(each, room, capacity)
    held = np.zeros(len(jobs.owners))
    for epoch, allocation in enumerate(epochs(policy, jobs, capacity, 15), start=1):
        units = held_by(jobs, allocation.units)
        held += units
        assert (np.abs(units - shares) < 1).all()
        assert (np.abs(held - epoch * shares) <= 1 + 1e-6).all()
        np.testing.assert_allclose(allocation.owner_share, shares, atol=1e-9)


def test_many_jobs_are_worth_no_more_than_one() -> None:
    """An owner of nine jobs holds as much as an owner of one job that can use everything."""
    jobs = _equal_jobs([0] * 9 + [1])
    units = BetweenOwners(TotalQuality()).allocate(jobs, 20).units
    assert held_by(jobs, units).tolist() == [10, 10]


def test_more_owners_than_units_take_turns() -> None:
    """Five owners of two jobs each on two units: under the fair policy all jobs get equally many turns."""
    jobs = _equal_jobs([0, 1, 2, 3, 4] * 2)
    held = np.sum([one.units for one in epochs(BetweenOwners(Fair()), jobs, 2, 100)], axis=0)
    assert (np.abs(held - 20) <= 2).all()


def test_nobody_is_there() -> None:
    """Without jobs the allocation is empty."""
    nobody = _equal_jobs([])
    assert BetweenOwners(TotalQuality()).allocate(nobody, 4).units.shape == (0,)


def _equal_jobs(owner: list[int]) -> Candidates:
    jobs = equal_jobs(np.tile([0.0, 0.5, 0.75], (len(owner), 1)), grid=[0, 10, 100])
    return replace(
        jobs,
        owners=tuple(f"owner-{number}" for number in range(max(owner, default=0) + 1)),
        owner=np.array(owner, dtype=np.int64),
        owner_credit=np.zeros(max(owner, default=0) + 1),
    )
