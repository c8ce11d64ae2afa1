"""Laws of sizes: every job runs with a size it can use, and over time with what it was due."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.allocation import Allocation, Candidates
from slaq.core.demand import Demand
from slaq.core.policies import Fair
from slaq.core.sizes import fit_sizes, unit_sizes
from slaq.testing.strategies import equal_jobs


def candidates(sizes: dict[int, list[int]], jobs: int, most: int) -> Candidates:
    """Return jobs that differ only in their sizes."""
    return replace(
        equal_jobs(np.ones((jobs, 2)) * [0.0, 1.0], [0, most]),
        sizes={row: np.array(listed, dtype=np.int64) for row, listed in sizes.items()},
        size_credit=np.zeros(jobs),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[Candidates, Allocation, int]:
    """Return candidates, some of them with sizes, their allocation by a policy, and the capacity."""
    jobs, capacity = draw(st.integers(1, 8)), draw(st.integers(0, 40))
    listed = st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True).map(sorted)
    sizes = draw(st.dictionaries(st.integers(0, jobs - 1), listed, max_size=jobs))
    found = candidates(sizes, jobs, 12)
    credit = np.array(draw(st.lists(st.floats(-12, 12), min_size=jobs, max_size=jobs)))
    owed = np.array([credit[row] if row in sizes else 0.0 for row in range(jobs)])
    found = replace(found, size_credit=owed)
    return found, Fair().allocate(found, capacity), capacity


@given(situations())
def test_every_job_holds_a_size_it_can_run_with(case: tuple[Candidates, Allocation, int]) -> None:
    """A job with sizes holds one of them or nothing, and all jobs together no more than the capacity."""
    found, allocation, capacity = case
    fitted, owed = fit_sizes(found, allocation, capacity)
    for row, sizes in found.sizes.items():
        assert fitted.units[row] in (0, *sizes.tolist())
    assert fitted.units.sum() <= capacity
    assert (fitted.units >= 0).all()
    assert (fitted.units <= found.max_units).all()
    assert all(owed[row] == 0.0 for row in range(len(found.ids)) if row not in found.sizes)


@given(situations())
def test_without_sizes_nothing_changes(case: tuple[Candidates, Allocation, int]) -> None:
    """If every job can run with any count, the allocation does not change."""
    found, allocation, capacity = case
    fitted, owed = fit_sizes(replace(found, sizes={}), allocation, capacity)
    assert fitted is allocation
    assert not owed.any()


@given(situations())
def test_no_unit_is_idle_that_a_job_of_any_size_could_use(case: tuple[Candidates, Allocation, int]) -> None:
    """Units that sizes leave over go to the jobs that can run with any count, up to their maximum."""
    found, allocation, capacity = case
    fitted, _ = fit_sizes(found, allocation, capacity)
    flexible = [row for row in range(len(found.ids)) if row not in found.sizes]
    if fitted.units.sum() < capacity:
        assert all(fitted.units[row] == found.max_units[row] for row in flexible)


@pytest.mark.parametrize(("jobs", "size"), [(4, 32), (7, 32), (3, 8), (9, 20)])
def test_over_time_a_job_with_sizes_holds_what_it_was_due(jobs: int, size: int) -> None:
    """Over many epochs, a job that can run with one size only holds on average what it is due."""
    capacity = 32
    found = candidates({0: [size], 1: [size]}, jobs, capacity)
    held, epochs = np.zeros(jobs), 400
    for _ in range(epochs):
        allocation = Fair().allocate(found, capacity)
        fitted, owed = fit_sizes(found, allocation, capacity)
        held += fitted.units
        found = replace(found, credit=allocation.credit, size_credit=owed)
    due = min(capacity / jobs, size)
    assert held[:2] / epochs == pytest.approx([due, due], abs=2 * size / epochs + 0.05 * due)


def test_sizes_are_counted_in_units_up_to_what_there_is() -> None:
    """Whole workers are counted as whole cores; listed sizes are cut to those that fit; any size needs no list."""
    assert unit_sizes(Demand(), 1 / 4, 10) is None
    assert unit_sizes(Demand(sizes="whole"), 1.0, 10) is None
    whole = unit_sizes(Demand(sizes="whole", most=3.0), 1 / 4, 10)
    listed = unit_sizes(Demand(sizes=(0.5, 1.0, 4.0)), 1 / 4, 10)
    assert whole is not None
    assert listed is not None
    assert (whole.tolist(), listed.tolist()) == ([4, 8], [2, 4])
