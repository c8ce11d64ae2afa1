"""The laws of each policy, beyond those that every policy obeys."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Candidates, Policy
from slaq.core.arrays import Floats, Integers
from slaq.core.policies import Deadline, Fair, Fifo, LeastAttained, MinQuality, ShortestFirst, TotalQuality
from slaq.core.sharing import first, guarantee, water_fill
from slaq.testing.policy_contract import capacities, epochs
from slaq.testing.strategies import STEP, candidates, equal_jobs

# High floors, so that a promise comes due within few epochs.
UNSTARVING = [TotalQuality(floor=0.5), MinQuality(floor=0.5), Deadline(floor=0.5), Fair()]


def gain_of(jobs: Candidates, units: Integers) -> Floats:
    rows = zip(units, jobs.gain, strict=True)
    return np.array([np.interp(n, jobs.grid, row) for n, row in rows], dtype=np.float64)


def total_gain(jobs: Candidates, units: Integers) -> float:
    return float(jobs.weight @ gain_of(jobs, units))


def losses_after(jobs: Candidates, units: Integers) -> Floats:
    """Weighted predicted losses of the competing jobs."""
    return (jobs.weight * (jobs.loss - gain_of(jobs, units)))[jobs.competes]


class TestWaterFill:
    @given(candidates(least=1), st.floats(0, 60))
    def test_uses_what_it_may(self, jobs: Candidates, capacity: float) -> None:
        """No share exceeds its limit, and together they use the capacity or all the limits."""
        shares = water_fill(jobs.weight, jobs.max_units, capacity)
        assert (shares <= jobs.max_units).all()
        assert shares.sum() == pytest.approx(min(capacity, jobs.max_units.sum()))

    @given(candidates(least=2), st.floats(0, 60))
    def test_is_max_min_fair(self, jobs: Candidates, capacity: float) -> None:
        """No job below its limit has less per weight than a job that holds more than its least."""
        least = np.minimum(jobs.min_units, jobs.max_units)
        assume(least.sum() <= capacity)
        shares = water_fill(jobs.weight, jobs.max_units, capacity, least)
        per_weight = shares / jobs.weight
        can_rise, can_fall = shares < jobs.max_units - 1e-9, shares > least + 1e-9
        if can_rise.any() and can_fall.any():
            assert per_weight[can_rise].min() >= per_weight[can_fall].max() - 1e-9
        assert shares.sum() == pytest.approx(min(capacity, jobs.max_units.sum()))

    @given(candidates(least=1), st.lists(st.integers(-100, 100), min_size=7, max_size=7), capacities)
    def test_survives_uneven_weights(self, jobs: Candidates, powers: list[int], capacity: int) -> None:
        """Weights further apart than a float64 sum can hold still use the capacity, and no more."""
        weight = jobs.weight * 10.0 ** np.array(powers[: len(jobs.ids)])
        least = np.minimum(jobs.min_units, jobs.max_units)
        assume(least.sum() <= capacity)
        shares = water_fill(weight, jobs.max_units, capacity, least)
        assert shares.sum() == pytest.approx(min(capacity, jobs.max_units.sum()))

    def test_capacity_ends_where_a_job_is_full(self) -> None:
        """If the capacity just fills the heavy job, the light jobs get their least."""
        weight, limit, least = np.array([8e-26, 8e-3, 5e13]), np.array([2, 2, 6]), np.array([0, 2, 1])
        assert water_fill(weight, limit, 8, least) == pytest.approx([0, 2, 6])


class TestGuarantee:
    @given(candidates(), capacities, st.floats(0, 1))
    def test_is_in_bounds(self, jobs: Candidates, capacity: int, fraction: float) -> None:
        """The guarantees fit into the capacity, and jobs that do not compete get nothing beyond theirs."""
        sure = guarantee(jobs, capacity, fraction)
        assert sure.lower.sum() <= capacity
        assert (sure.lower <= sure.upper).all()
        assert (sure.upper <= jobs.max_units).all()
        assert (sure.lower == sure.upper)[~jobs.competes].all()

    @pytest.mark.parametrize("policy", UNSTARVING, ids=lambda policy: type(policy).__name__)
    @settings(max_examples=20)
    @given(jobs=candidates(least=2, most=12, others=False, minima=False), capacity=st.integers(1, 3))
    def test_nobody_starves(self, policy: Policy, jobs: Candidates, capacity: int) -> None:
        """With more jobs than units a job promised p units holds one at least every 2 / p epochs."""
        assume(len(jobs.ids) > capacity)
        jobs = replace(jobs, credit=np.zeros(len(jobs.ids)), weight=jobs.weight.clip(1, 2))
        fraction = policy.floor if isinstance(policy, TotalQuality | MinQuality | Deadline) else 1.0
        promised = fraction * water_fill(jobs.weight, jobs.max_units, capacity)
        patience = np.ceil(2 / promised)
        waited = np.zeros(len(jobs.ids))
        for units in epochs(policy, jobs, capacity, 120):
            waited = np.where(units > 0, 0, waited + 1)
            assert (waited <= patience).all()

    @settings(max_examples=20)
    @given(jobs=candidates(least=2, most=8, others=False), capacity=st.integers(1, 4))
    def test_nobody_starves_where_minima_do_not_fit(self, jobs: Candidates, capacity: int) -> None:
        """If the minima exceed the capacity, every job holds units in some epochs, also one without minimum."""
        assume(np.minimum(jobs.min_units, jobs.max_units).sum() > capacity)
        jobs = replace(jobs, weight=np.ones(len(jobs.ids)))
        held = np.sum(list(epochs(TotalQuality(floor=0.5), jobs, capacity, 60)), axis=0)
        assert np.all(held > 0)

    @pytest.mark.parametrize("policy", [TotalQuality(0.1), MinQuality(0.1)], ids=["total", "min"])
    def test_floor_is_all_that_jobs_which_cannot_gain_get(self, policy: Policy) -> None:
        """Nine jobs that gain nothing hold a tenth of their share of one unit, the tenth job the rest."""
        jobs = equal_jobs(np.array([[0, 0.5], *[[0, 0]] * 9]), grid=[0, 4])
        held = np.sum(list(epochs(policy, jobs, 1, 300)), axis=0)
        assert np.all(np.abs(held[1:] - 3) <= 1)

    def test_idle_units_rotate(self) -> None:
        """Units from which no job gains are handed out in turn too, so that equal jobs hold equal amounts."""
        jobs = equal_jobs(np.zeros((3, 2)), grid=[0, 4])
        held = np.sum(list(epochs(TotalQuality(0.1), jobs, 1, 90)), axis=0)
        assert np.all(np.abs(held - 30) <= 5), held

    def test_floor_units_are_spaced_out(self) -> None:
        """Equal jobs take their guaranteed units in turn, not all in the same epoch."""
        jobs = equal_jobs(np.zeros((20, 2)), grid=[0, 4])
        credit = jobs.credit
        for _ in range(40):
            sure = guarantee(replace(jobs, credit=credit), 10, 0.1)
            assert sure.lower.sum() == 1
            credit = sure.credit


class TestTotalQuality:
    @given(candidates(most=4), st.integers(0, 14), st.sampled_from([0.0, 0.1, 0.5]))
    def test_is_the_best_of_all(self, jobs: Candidates, capacity: int, floor: float) -> None:
        """Of all allocations within the guarantee none has a larger sum of weighted gains."""
        sure = guarantee(jobs, capacity, floor)
        ranges = [range(low, high + 1) for low, high in zip(sure.lower, sure.upper, strict=True)]
        # The best sum that any choice of units for the jobs so far has, by the units they may use in all.
        best = np.zeros(capacity + 1)
        for row, choices in enumerate(ranges):
            gain = jobs.weight[row] * np.interp(np.arange(capacity + 1), jobs.grid, jobs.gain[row])
            best = np.array(
                [
                    max((best[n - k] + gain[k] for k in choices if k <= n), default=-np.inf)
                    for n in range(capacity + 1)
                ]
            )
        units = TotalQuality(floor).allocate(jobs, capacity).units
        held = np.where(jobs.competes, units, sure.lower)
        assert total_gain(jobs, held) == pytest.approx(float(best[-1]))

    @given(candidates(least=1, others=False), capacities, st.data())
    def test_weight_never_hurts(self, jobs: Candidates, capacity: int, data: st.DataObject) -> None:
        """A job whose weight doubles gets no fewer units."""
        assume(np.minimum(jobs.min_units, jobs.max_units).sum() <= capacity)
        i = data.draw(st.integers(0, len(jobs.ids) - 1))
        heavier = replace(jobs, weight=np.where(np.arange(len(jobs.ids)) == i, 2 * jobs.weight, jobs.weight))
        policy = TotalQuality(floor=0.0)
        useful = jobs.gain[i, -1] > 0
        before, after = (policy.allocate(each, capacity).units[i] for each in (jobs, heavier))
        # The units that bring nobody anything are rounded without regard to weights.
        assert after >= before if useful else after >= before - 1

    def test_who_would_end_last_does_not_wait(self) -> None:
        """A job that takes longer than all work together, with all it can use, holds that; a shorter one waits."""
        jobs = equal_jobs(np.array([[0.0, 0.1, 0.1], [0.0, 4.0, 8.0], [0.0, 4.0, 8.0]]), grid=[0, 4, 8])
        jobs = replace(jobs, max_units=np.array([2, 8, 8]))
        policy = TotalQuality(floor=0.0)
        work = np.array([100.0, 50.0, np.nan])
        assert policy.allocate(replace(jobs, work=work), 8).units.tolist() == [2, 6, 0]
        assert policy.allocate(replace(jobs, work=work / [10, 1, 1]), 8).units.tolist() == [0, 8, 0]

    @given(candidates(least=1, others=False), capacities, st.floats(1e9, 1e300), st.integers(1, 3))
    def test_a_huge_total_holds_nothing(
        self, jobs: Candidates, capacity: int, told: float, tellers: int
    ) -> None:
        """Jobs that tell of so much work that all others hardly delay them are divided by their gains alone."""
        # All can use as much, so that none of those with so much work is among the others of another.
        jobs = replace(jobs, max_units=np.full(len(jobs.ids), jobs.max_units.max()))
        work = np.where(np.arange(len(jobs.ids)) < tellers, told, 1.0)
        found = TotalQuality().allocate(replace(jobs, work=work), capacity)
        assert found.as_dict() == TotalQuality().allocate(jobs, capacity).as_dict()

    @given(candidates(), capacities, st.data())
    def test_half_is_left_to_others(self, jobs: Candidates, capacity: int, data: st.DataObject) -> None:
        """What is held for the sake of the last end is beyond no promise more than half of the capacity."""
        work = st.lists(st.floats(0.0, 1e6) | st.just(np.nan), min_size=len(jobs.ids), max_size=len(jobs.ids))
        jobs = replace(jobs, work=np.array(data.draw(work)))
        promised = guarantee(jobs, capacity, 0.05).lower
        raised = TotalQuality().allocate(jobs, capacity).sure
        more = raised > promised
        assert not more.any() or raised[more].sum() <= capacity / 2

    @given(candidates(), capacities, st.data())
    def test_ends_break_no_promise(self, jobs: Candidates, capacity: int, data: st.DataObject) -> None:
        """Whatever work is left, guarantees and maxima are kept, and all that can be used is handed out."""
        work = st.lists(st.floats(0.0, 1e6) | st.just(np.nan), min_size=len(jobs.ids), max_size=len(jobs.ids))
        jobs = replace(jobs, work=np.array(data.draw(work)))
        by = np.array(data.draw(st.permutations(range(len(jobs.ids)))), dtype=np.int64)
        found = TotalQuality().allocate(jobs, capacity)
        assert (guarantee(jobs, capacity, 0.05).lower <= found.units).all()
        assert (found.sure <= found.units).all()
        assert (found.units <= jobs.max_units).all()
        assert found.units.sum() == min(capacity, jobs.max_units.sum())
        assert TotalQuality().allocate(jobs.take(by), capacity).as_dict() == found.as_dict()

    def test_ties_go_to_the_earlier(self) -> None:
        """Of jobs with equal gains, the one submitted first gets all the units it can use first."""
        jobs = equal_jobs(np.tile([0.0, 0.375, 0.875, 0.875], (3, 1)), grid=[0, 3, 7, 8])
        jobs = replace(jobs, order=np.array([2, 0, 1]), max_units=np.full(3, 8))
        assert TotalQuality(floor=0.0).allocate(jobs, 10).units.tolist() == [0, 7, 3]

    def test_many_jobs_are_cut_alike(self) -> None:
        """Narrowing down by a histogram gives the same allocation as a full sort."""
        chance = np.random.default_rng(0)
        jobs = equal_jobs(chance.random((4000, 1)) * (1 - np.exp(-0.1 * np.arange(6))), grid=list(range(6)))
        units = TotalQuality(floor=0.0).allocate(jobs, 6000).units
        slopes = np.sort(np.diff(jobs.gain, axis=1), axis=None)[::-1]
        assert total_gain(jobs, units) == pytest.approx(slopes[:6000].sum())


@given(st.lists(st.integers(0, 3), max_size=8), st.integers(-1, 9))
def test_the_first_rows_are_those_of_the_smallest_keys(keys: list[int], count: int) -> None:
    """As many rows as asked for, none where none are, the smallest keys first and ties by their order."""
    order = np.arange(len(keys))[::-1]
    found = first(np.array(keys, dtype=np.float64), order, count)
    assert set(found) == set(np.lexsort((order, np.array(keys)))[: max(count, 0)])
    assert found.size == min(max(count, 0), len(keys))


class TestMinQuality:
    @given(candidates(), capacities, st.sampled_from([0.0, 0.1, 0.5]))
    def test_next_unit_goes_to_the_worst(self, jobs: Candidates, capacity: int, floor: float) -> None:
        """The allocation equals handing out units one by one to the highest weighted loss that can fall."""
        sure = guarantee(jobs, capacity, floor)
        units = sure.lower.copy()
        while units.sum() < capacity:
            after = gain_of(jobs, units + 1) - gain_of(jobs, units)
            can_fall = (units < sure.upper) & (after > STEP / 2)
            if not can_fall.any():
                break
            loss = np.where(can_fall, jobs.weight * (jobs.loss - gain_of(jobs, units)), -np.inf)
            units[np.lexsort((jobs.order, -loss.round(9)))[0]] += 1
        found = MinQuality(floor).allocate(jobs, capacity).units
        assert np.sort(losses_after(jobs, found)) == pytest.approx(np.sort(losses_after(jobs, units)))

    @given(candidates(least=1, others=False), capacities)
    def test_capacity_never_hurts(self, jobs: Candidates, capacity: int) -> None:
        """More capacity never raises the highest predicted loss."""
        assume(np.minimum(jobs.min_units, jobs.max_units).sum() <= capacity)
        worst = [
            losses_after(jobs, MinQuality(floor=0.0).allocate(jobs, units).units).max()
            for units in range(capacity, capacity + 6)
        ]
        assert (np.diff(worst) <= 1e-12).all()

    def test_jobs_that_cannot_gain_leave_the_competition(self) -> None:
        """The job with the highest loss gets no unit that would not lower the loss."""
        jobs = equal_jobs(np.array([[0, 0, 0], [0, 0.25, 0.25], [0, 0.25, 0.5]]), grid=[0, 4, 8])
        jobs = replace(jobs, loss=np.array([3.0, 2.0, 1.0]))
        assert MinQuality(floor=0.0).allocate(jobs, 10).units.tolist() == [0, 4, 6]

    def test_many_units_are_levelled_alike(self) -> None:
        """Bisection levels the losses to within the gain of one unit."""
        chance = np.random.default_rng(0)
        start = chance.uniform(0.5, 1.0, (300, 1))
        jobs = equal_jobs(
            start * (1 - np.exp(-0.001 * np.arange(0, 4001, 50))), grid=list(range(0, 4001, 50))
        )
        jobs = replace(jobs, loss=start[:, 0], max_units=np.full(300, 4000))
        units = MinQuality(floor=0.0).allocate(jobs, 200_000).units
        assert units.sum() == 200_000
        worst = losses_after(jobs, units).max()
        assert (losses_after(jobs, units - 1)[units > 0] >= worst - 1e-12).all()

    def test_no_unit_is_left_once_a_level_fits_exactly(self) -> None:
        """Where a level of the bisection takes exactly the capacity, nobody gets a unit more."""
        falls = np.linspace(0.0, 1.0, 41)[None, :].repeat(4, axis=0)
        jobs = equal_jobs(falls, grid=list(range(0, 4001, 100)))
        jobs = replace(jobs, loss=np.ones(4), max_units=np.full(4, 4000))
        assert MinQuality(floor=0.0).allocate(jobs, 8000).units.tolist() == [2000, 2000, 2000, 2000]


class TestDeadline:
    @given(candidates(), capacities, st.sampled_from([0.0, 0.05, 0.5]))
    def test_is_total_quality_without_deadlines(self, jobs: Candidates, capacity: int, floor: float) -> None:
        """If no job can meet a deadline, units go by gain alone."""
        jobs = replace(jobs, needed=np.where(np.isfinite(jobs.needed), 0.0, np.inf))
        found, usual = (policy(floor).allocate(jobs, capacity) for policy in (Deadline, TotalQuality))
        assert found.as_dict() == usual.as_dict()

    @given(candidates(), capacities)
    def test_serves_the_least_needy_first(self, jobs: Candidates, capacity: int) -> None:
        """The job that needs the fewest units per weight gets them if they fit beside all guarantees."""
        able = (jobs.competes & (jobs.needed > 0) & np.isfinite(jobs.needed)).nonzero()[0]
        assume(len(able) > 0)
        head = able[np.lexsort((jobs.order[able], (jobs.needed / jobs.weight)[able]))[0]]
        sure = guarantee(jobs, capacity, Deadline().floor).lower
        wanted = min(int(np.ceil(jobs.needed[head])), jobs.max_units[head])
        assume(wanted - sure[head] <= capacity - sure.sum())
        assert Deadline().allocate(jobs, capacity).units[head] >= wanted

    def test_gets_what_it_needs(self) -> None:
        """Of jobs with equal gains, those that can meet their deadlines get the units this takes, and no more."""
        jobs = equal_jobs(np.tile([0.0, 0.5], (4, 1)), grid=[0, 20])
        jobs = replace(jobs, gain=jobs.gain * np.array([[2.0], [1.0], [1.0], [1.0]]))
        jobs = replace(jobs, needed=np.array([0.0, 3.2, np.inf, 30.0]))
        assert Deadline(floor=0.0).allocate(jobs, 10).units.tolist() == [6, 4, 0, 0]


class TestFair:
    @given(candidates(minima=False), capacities)
    def test_is_exact_over_time(self, jobs: Candidates, capacity: int) -> None:
        """Each epoch a job is within a unit of its fair share, and so is all it has held since the start."""
        jobs = replace(jobs, credit=np.zeros(len(jobs.ids)), competes=np.ones(len(jobs.ids), dtype=np.bool_))
        shares = water_fill(jobs.weight, jobs.max_units, capacity)
        held = np.zeros(len(jobs.ids))
        for epoch, units in enumerate(epochs(Fair(), jobs, capacity, 30), start=1):
            held += units
            assert (np.abs(units - shares) < 1).all()
            assert (np.abs(held - epoch * shares) <= 1 + 1e-6).all()

    def test_large_and_small_shares_mix(self) -> None:
        """A few large shares among many small ones stay within a unit of what they are due."""
        jobs = replace(equal_jobs(np.zeros((7, 2)), grid=[0, 4]), weight=np.array([12.0] * 3 + [1.0] * 4))
        held = np.cumsum(list(epochs(Fair(), jobs, 1, 80)), axis=0)
        shares = np.outer(np.arange(1, 81), jobs.weight / 40)
        assert (np.abs(held - shares) <= 1 + 1e-6).all()

    def test_dust_costs_nobody_a_unit(self) -> None:
        """Shares that are whole but for float dust are handed out whole, and leave no credit."""
        jobs = replace(equal_jobs(np.zeros((30, 2)), grid=[0, 4]), weight=np.full(30, 0.1))
        allocation = Fair().allocate(jobs, 90)
        assert (allocation.units == 3).all()
        assert not allocation.credit.any()

    def test_ten_tenths_are_one(self) -> None:
        """Ten jobs on one unit hold it in turn, each once in ten epochs."""
        jobs = equal_jobs(np.zeros((10, 2)), grid=[0, 4])
        turns = [int(np.argmax(units)) for units in epochs(Fair(), jobs, 1, 30)]
        assert turns == list(range(10)) * 3


class TestServedInTurn:
    def test_fifo(self) -> None:
        """The job submitted first gets all the units it can use, then the next job."""
        jobs = replace(equal_jobs(np.zeros((3, 2)), grid=[0, 4]), order=np.array([1, 2, 0]))
        assert Fifo().allocate(jobs, 6).units.tolist() == [2, 0, 4]

    def test_shortest_first(self) -> None:
        """The job with the least left takes all it can use; one of unknown length comes last."""
        jobs = replace(equal_jobs(np.zeros((3, 2)), grid=[0, 4]), remaining=np.array([np.inf, 5.0, 4.0]))
        assert ShortestFirst().allocate(jobs, 9).units.tolist() == [1, 4, 4]

    def test_least_attained(self) -> None:
        """A lower queue is served first; within a queue the order of submission counts, not the seconds."""
        jobs = replace(equal_jobs(np.zeros((3, 2)), grid=[0, 4]), attained=np.array([100.0, 99.0, 3.0]))
        assert LeastAttained().allocate(jobs, 5).units.tolist() == [0, 4, 1]

    @given(st.floats(0, 1e12), st.floats(0, 1e12))
    def test_queues_follow_service(self, one: float, other: float) -> None:
        """A job that has received less service is never served later."""
        jobs = replace(equal_jobs(np.zeros((2, 2)), grid=[0, 4]), attained=np.array(sorted([one, other])))
        assert LeastAttained().allocate(jobs, 4).units.tolist() == [4, 0]
