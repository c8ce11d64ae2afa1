"""The laws of every policy: subclass PolicyContract and list the policies to try."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.sharing import water_fill
from slaq.testing.strategies import candidates, equal_jobs, shared_law

capacities = st.integers(0, 40)


def epochs(policy: Policy, jobs: Candidates, capacity: int, count: int) -> Iterator[Integers]:
    """Yield the units of each of `count` epochs, between which nothing but the credit changes."""
    for _ in range(count):
        allocation = policy.allocate(jobs, capacity)
        assert (np.abs(allocation.credit) <= 1).all()
        yield allocation.units
        jobs = replace(jobs, credit=allocation.credit)


def fair_shares(jobs: Candidates, capacity: int) -> Floats:
    """Return the real shares of jobs without minima, where the reservations fit into the capacity."""
    reserved = ~jobs.competes & (jobs.reserved_units >= 0)
    shares = np.minimum(jobs.reserved_units, jobs.max_units).astype(np.float64)
    rest = capacity - float(shares[reserved].sum())
    assume(rest > 0)
    shares[~reserved] = water_fill(jobs.weight[~reserved], jobs.max_units[~reserved], rest)
    return shares


class PolicyContract:
    """The laws of `slaq.core.allocation.Policy`."""

    #: The policies to try, each with the parameters to try it with.
    policies: ClassVar[Sequence[Policy]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each law once for each policy, and the last one for those that promise to serve all jobs."""
        policies = self.policies
        if metafunc.function.__name__ == "test_no_job_starves":
            policies = [policy for policy in policies if policy.serves_all]
        if "policy" in metafunc.fixturenames:
            metafunc.parametrize("policy", policies, ids=lambda policy: type(policy).__name__)

    @shared_law
    @given(jobs=candidates(), capacity=capacities)
    def test_hands_out_all_that_can_be_used_and_no_more(
        self, policy: Policy, jobs: Candidates, capacity: int
    ) -> None:
        """No job exceeds its maximum, and together jobs hold the capacity, or all the maxima if that is less."""
        allocation = policy.allocate(jobs, capacity)
        assert allocation.ids == jobs.ids
        assert allocation.units.dtype == np.int64
        assert (allocation.units >= 0).all()
        assert (allocation.units <= jobs.max_units).all()
        assert allocation.units.sum() == min(capacity, jobs.max_units.sum())

    @shared_law
    @given(jobs=candidates(), capacity=capacities)
    def test_credit_stays_within_a_unit(self, policy: Policy, jobs: Candidates, capacity: int) -> None:
        """Each job has one credit, and is owed one unit at most, either way."""
        credit = policy.allocate(jobs, capacity).credit
        assert credit.shape == (len(jobs.ids),)
        assert (np.abs(credit) <= 1).all()

    @shared_law
    @given(jobs=candidates(), capacity=capacities)
    def test_minima_and_reservations_are_held(self, policy: Policy, jobs: Candidates, capacity: int) -> None:
        """Every job holds its minimum or its reservation where all of them fit into the capacity."""
        reserved = ~jobs.competes & (jobs.reserved_units >= 0)
        least = np.minimum(np.where(reserved, jobs.reserved_units, jobs.min_units), jobs.max_units)
        assume(least.sum() <= capacity)
        assert (policy.allocate(jobs, capacity).units >= least).all()

    @shared_law
    @given(jobs=candidates(minima=False), capacity=capacities)
    def test_jobs_that_do_not_compete_hold_their_share(
        self, policy: Policy, jobs: Candidates, capacity: int
    ) -> None:
        """A job that does not compete is within a unit of its fair share or reservation, each epoch and in sum.

        Units that no competing job can use may come on top.
        """
        jobs = replace(jobs, credit=np.zeros(len(jobs.ids)))
        shares = fair_shares(jobs, capacity)
        others = ~jobs.competes
        idle_goes_to_competitors = jobs.max_units[jobs.competes].sum() >= capacity
        held = np.zeros(others.sum())
        for epoch, units in enumerate(epochs(policy, jobs, capacity, 12), start=1):
            held += units[others]
            assert (units[others] > shares[others] - 1).all()
            assert (held > epoch * shares[others] - 1 - 1e-6).all()
            if idle_goes_to_competitors:
                assert (units[others] < shares[others] + 1).all()
                assert (held < epoch * shares[others] + 1 + 1e-6).all()

    @shared_law
    @given(jobs=candidates(), capacity=capacities, data=st.data())
    def test_permuting_the_rows_permutes_the_allocation(
        self, policy: Policy, jobs: Candidates, capacity: int, data: st.DataObject
    ) -> None:
        """The place of a job's row decides nothing; `order` breaks ties."""
        by = np.array(data.draw(st.permutations(range(len(jobs.ids)))), dtype=np.int64)
        units = policy.allocate(jobs, capacity).as_dict()
        assert policy.allocate(jobs.take(by), capacity).as_dict() == units

    @shared_law
    @given(jobs=candidates(), capacity=capacities, others=candidates())
    def test_keeps_nothing_between_calls(
        self, policy: Policy, jobs: Candidates, capacity: int, others: Candidates
    ) -> None:
        """The same candidates give the same allocation, whatever was decided in between; they stay unchanged."""
        before = _columns(jobs)
        first = policy.allocate(jobs, capacity)
        assert _same(policy.allocate(jobs, capacity), first)
        policy.allocate(others, capacity + 1)
        assert _same(policy.allocate(jobs, capacity), first)
        assert all(np.array_equal(column, before[name]) for name, column in _columns(jobs).items())

    def test_without_jobs_nothing_is_handed_out(self, policy: Policy) -> None:
        """An epoch without jobs has an empty allocation."""
        assert policy.allocate(equal_jobs(np.zeros((0, 2)), grid=[0, 4]), 8).units.shape == (0,)

    def test_without_capacity_nothing_is_handed_out(self, policy: Policy) -> None:
        """Without capacity no job gets a unit, and no job's credit is lost."""
        jobs = equal_jobs(np.array([[0, 1.0], [0, 2.0]]), grid=[0, 4])
        allocation = policy.allocate(replace(jobs, credit=np.array([0.25, -0.5])), 0)
        assert allocation.units.tolist() == [0, 0]
        assert allocation.credit.tolist() == [0.25, -0.5]

    @settings(shared_law, max_examples=10)
    @given(jobs=candidates(least=2, most=5, minima=False, others=False), capacity=st.integers(1, 3))
    def test_no_job_starves(self, policy: Policy, jobs: Candidates, capacity: int) -> None:
        """Under a policy that promises to serve all jobs, each holds units within 200 epochs, and again after.

        There are five jobs of one weight at most: a twentieth of a fair share is then one unit in 100 epochs.
        """
        jobs = replace(jobs, credit=np.zeros(len(jobs.ids)), weight=np.ones(len(jobs.ids)))
        units = np.array(list(epochs(policy, jobs, capacity, 400)))
        assert (units[:200].sum(axis=0) > 0).all()
        assert (units[200:].sum(axis=0) > 0).all()


def _columns(jobs: Candidates) -> dict[str, Floats | Integers]:
    """Return copies of the arrays."""
    names = (name for name in jobs.__dataclass_fields__ if isinstance(getattr(jobs, name), np.ndarray))
    return {name: getattr(jobs, name).copy() for name in names}


def _same(one: Allocation, other: Allocation) -> bool:
    return np.array_equal(one.units, other.units) and np.array_equal(one.credit, other.credit)
