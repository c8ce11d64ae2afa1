"""Laws of best-first: a search holds a fair share, and who may become the best is first."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slaq.core.allocation import Candidates
from slaq.core.policies import BestFirst, BetweenOwners, Fair, Fifo, TotalQuality
from slaq.core.searches import DECISIONS, Losers, best_high, contenders, settled
from slaq.testing import candidates, equal_jobs

capacities = st.integers(0, 40)
RESTS = [TotalQuality(), Fair(), Fifo()]
every_rest = pytest.mark.parametrize("rest", RESTS, ids=lambda policy: type(policy).__name__)


def search(final: list[float], width: list[float] | float = 0.0, *, most: int = 1) -> Candidates:
    """The jobs of one search with these forecasts; NaN for a job of which nothing is known."""
    jobs = equal_jobs(np.zeros((len(final), 2)), grid=[0, most])
    mean = np.array(final)
    known = ~np.isnan(mean)
    return replace(
        jobs,
        group=np.ones(len(final), dtype=np.int64),
        searches=np.ones(len(final), dtype=np.bool_),
        final=np.where(known, mean, np.inf),
        final_low=np.where(known, mean - width, -np.inf),
        final_high=np.where(known, mean + width, np.inf),
    )


def served(jobs: Candidates, capacity: int) -> list[int]:
    """The rows that hold units, each job being able to use one."""
    return np.flatnonzero(BestFirst().allocate(jobs, capacity).units).tolist()


@every_rest
@given(jobs=candidates(others=False), capacity=capacities)
def test_a_search_holds_the_fair_share_of_those_that_may_win(
    rest: TotalQuality, jobs: Candidates, capacity: int
) -> None:
    """Fair sharing, in which those that cannot win count a twentieth, says what searches and the others hold."""
    searching = jobs.competes & jobs.searches
    assume(searching.any())
    weight = jobs.weight.copy()
    searches = [
        np.flatnonzero(searching & (jobs.group == group)) for group in np.unique(jobs.group[searching])
    ]
    for rows in searches:
        weight[rows] *= np.where(contenders(jobs.take(rows)), 1.0, 0.05)
    fair = Fair().allocate(replace(jobs, weight=weight), capacity).units
    made = BestFirst(rest).allocate(jobs, capacity).units
    for rows in (*searches, np.flatnonzero(~searching)):
        assert made[rows].sum() == fair[rows].sum()


@every_rest
@given(jobs=candidates(), capacity=capacities)
def test_without_a_search_the_other_policy_decides_alone(
    rest: TotalQuality, jobs: Candidates, capacity: int
) -> None:
    """Where no job searches, the allocation is that of the policy of the rest."""
    jobs = replace(jobs, searches=np.zeros(len(jobs.ids), dtype=np.bool_))
    made, alone = BestFirst(rest).allocate(jobs, capacity), rest.allocate(jobs, capacity)
    assert made.as_dict() == alone.as_dict()
    np.testing.assert_array_equal(made.credit, alone.credit)


@given(jobs=candidates(minima=False, others=False), capacity=capacities)
def test_who_cannot_become_the_best_gets_nothing_while_another_can_use_it(
    jobs: Candidates, capacity: int
) -> None:
    """A job whose forecast lies wholly above the best's holds units only if all that may win hold their most."""
    jobs = replace(jobs, waited=np.zeros_like(jobs.waited))
    units = BestFirst().allocate(jobs, capacity).units
    for group in np.unique(jobs.group):
        rows = np.flatnonzero(jobs.group == group)
        members = jobs.take(rows)
        able = contenders(members)
        if units[rows][~able].any():
            assert (units[rows] == members.max_units)[able].all()


@given(
    final=st.lists(st.integers(0, 9).map(float), min_size=2, max_size=6),
    data=st.data(),
)
def test_uncertainty_counts_in_a_jobs_favour(final: list[float], data: st.DataObject) -> None:
    """A job whose forecast becomes wider below is never served later than before."""
    who = data.draw(st.integers(0, len(final) - 1))
    capacity = data.draw(st.integers(1, len(final)))
    surer = search(final, 1.0)
    wider = replace(surer, final_low=surer.final_low - np.eye(len(final))[who] * 3)
    assert who not in served(surer, capacity) or who in served(wider, capacity)


def test_the_lowest_end_is_served_first() -> None:
    """Of jobs that may all win, those that may end lowest hold the units."""
    assert served(search([3.0, 1.0, 2.0], [2.5, 0.2, 0.1]), 1) == [0]
    assert served(search([3.0, 1.0, 2.0], 0.0), 1) == [1]
    assert served(search([1.0, 1.0, 1.0], 0.0), 2) == [0, 1]


def test_what_is_unknown_is_tried_until_one_stands_out() -> None:
    """Jobs without losses come first while little is known of the others, and later than a very good one."""
    nothing = float("nan")
    assert served(search([1.0, 2.0, nothing, nothing]), 2) == [2, 3]
    alike = [1.0, 1.1, 1.2, 1.3]
    assert served(search([*alike, nothing]), 1) == [4]
    assert served(search([*alike, -5.0, nothing]), 1) == [4]


def test_a_completed_job_counts() -> None:
    """Jobs that cannot beat one that has completed wait like others that cannot win."""
    jobs = search([2.0, 2.5], 0.5)
    assert contenders(jobs).tolist() == [True, True]
    after = replace(jobs, record=np.array([1.0, 1.0]))
    assert contenders(after).tolist() == [False, False]
    assert best_high(after) == 1.0


def test_a_diverged_job_is_no_contender() -> None:
    """A job that has diverged waits for all others, and is not what others are compared with."""
    jobs = search([5.0, 3.0], 0.5)
    lost = np.array([True, False])
    final, low, high = (np.where(lost, np.inf, end) for end in (jobs.final, jobs.final_low, jobs.final_high))
    jobs = replace(jobs, final=final, final_low=low, final_high=high)
    assert contenders(jobs).tolist() == [False, True]
    assert served(jobs, 1) == [1]


@settings(max_examples=20)
@given(
    final=st.lists(st.integers(0, 3).map(float), min_size=2, max_size=5),
    capacity=st.integers(1, 2),
)
def test_nobody_who_may_win_waits_for_ever(final: list[float], capacity: int) -> None:
    """Where nothing changes but the waiting, each job that may still win holds units from time to time."""
    jobs = search(final, 2.0)
    able, held = contenders(jobs), np.zeros(len(final))
    for _ in range(40 * len(final) + 2):
        units = BestFirst().allocate(jobs, capacity).units
        held += units
        jobs = replace(jobs, waited=np.where(units > 0, 0, jobs.waited + 1))
    assert (held[able] > 0).all()


def test_searches_of_two_owners_are_two() -> None:
    """Between owners, what the best of a search ends at is told for each job of it."""
    jobs = replace(search([1.0, 2.0, 7.0, 9.0]), owners=("ann", "bob"), owner=np.array([0, 0, 1, 1]))
    jobs = replace(jobs, group=np.array([1, 1, 2, 2]), owner_credit=np.zeros(2))
    made = BetweenOwners(BestFirst(TotalQuality())).allocate(jobs, 2)
    assert made.units.tolist() == [1, 0, 1, 0]
    assert made.best_high.tolist() == [1.0, 1.0, 7.0, 7.0]


def lost(jobs: Candidates, known: list[bool] | None = None, often: int = DECISIONS) -> list[str]:
    """The losers after so many decisions."""
    losers = Losers()
    found: list[str] = []
    for _ in range(often):
        found = losers.find(jobs, np.array(known or [True] * len(jobs.ids)), lambda job_id: True)
    return found


def test_losers_are_those_far_above_the_best() -> None:
    """A job loses once its forecast, four times as wide, lies above the best, three times running."""
    jobs = search([1.0, 2.5, 4.0], 0.5)
    assert lost(jobs) == ["job-2"]
    assert lost(jobs, often=DECISIONS - 1) == []


def test_nobody_loses_before_enough_is_known() -> None:
    """Neither a job of which little is known loses, nor any job to one of which little is known."""
    jobs = search([1.0, 9.0], 0.1)
    assert lost(jobs, [True, False]) == []
    assert lost(jobs, [False, True]) == []
    few, many = (
        settled(np.array([3, 4, 9, 10]), np.full(4, 8.0)),
        settled(np.array([19, 20]), np.full(2, np.nan)),
    )
    assert few.tolist() == [False, True, True, True]
    assert many.tolist() == [False, True]
    assert settled(np.array([24, 25]), np.full(2, 50.0)).tolist() == [False, True]


@given(final=st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=6), width=st.floats(0, 2))
def test_the_best_never_loses(final: list[float], width: float) -> None:
    """Somebody is left, the best by its forecast among them."""
    found = lost(search(final, width))
    assert len(found) < len(final)
    assert f"job-{int(np.argmin(final))}" not in found


def test_only_those_lose_who_asked_for_it() -> None:
    """A job whose owner did not ask for it is never a loser."""
    losers, jobs = Losers(), search([1.0, 9.0, 9.0], 0.1)
    known = np.ones(3, dtype=np.bool_)
    found = [losers.find(jobs, known, lambda job_id: job_id == "job-1") for _ in range(DECISIONS)]
    assert found[-1] == ["job-1"]
