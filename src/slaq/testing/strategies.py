"""Hypothesis strategies for the candidates that policies decide on, and the settings of every law."""

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from slaq.core.allocation import Candidates
from slaq.core.arrays import Floats, Integers

#: Several classes run one law, which hypothesis would take for a mistake; and a busy machine is no defect.
shared_law = settings(
    deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow]
)

#: Gains are drawn in steps of this size, so that sums of them are exact and ties are real ties.
STEP = 2.0**-10


@st.composite
def grids(draw: st.DrawFn, largest: int = 12) -> Integers:
    """Draw strictly increasing unit counts from 0."""
    points = draw(st.sets(st.integers(1, largest), min_size=1, max_size=5))
    return np.array([0, *sorted(points)], dtype=np.int64)


@st.composite
def gains(draw: st.DrawFn, grid: Integers) -> Floats:
    """Draw one job's gain at the points of the grid: 0 first, concave, non-decreasing."""
    per_unit = draw(st.lists(st.integers(0, 16), min_size=grid.size - 1, max_size=grid.size - 1))
    steps = np.array(sorted(per_unit, reverse=True)) * np.diff(grid) * STEP
    return np.concatenate(([0.0], np.cumsum(steps)))


@st.composite
def finals(draw: st.DrawFn, jobs: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Draw the forecasts of the jobs' best losses; some jobs have told no loss, and some groups have a record."""

    def column(elements: st.SearchStrategy[float]) -> Floats:
        return np.array(draw(st.lists(elements, min_size=jobs, max_size=jobs)), dtype=np.float64)

    losses, widths = st.integers(0, 32).map(float), st.sampled_from([0.0, 0.0, 1.0, 4.0])
    final = np.where(column(st.sampled_from([1.0, 1.0, 1.0, 0.0])) > 0, column(losses), np.inf)
    heard = np.isfinite(final)
    low, high = np.where(heard, np.where(heard, final, 0.0) - column(widths), -np.inf), final + column(widths)
    return final, low, high, column(st.sampled_from([np.inf, np.inf, 8.0]))


@st.composite
def candidates(
    draw: st.DrawFn,
    *,
    least: int = 0,
    most: int = 7,
    others: bool = True,
    minima: bool = True,
    owners: int = 3,
) -> Candidates:
    """Draw the candidates of one decision, from `least` to `most` jobs.

    With `others` some jobs do not compete, and with `minima` some hold minima; their owners are `owners` in number.
    """
    jobs = draw(st.integers(least, most))

    def column(elements: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(elements, min_size=jobs, max_size=jobs))

    grid = draw(grids())
    final, final_low, final_high, record = draw(finals(jobs))
    rows = [draw(gains(grid)) for _ in range(jobs)]
    gain = np.array(rows).reshape(jobs, grid.size)
    return Candidates(
        ids=tuple(f"job-{i}" for i in range(jobs)),
        order=np.array(draw(st.permutations(range(jobs))), dtype=np.int64),
        competes=np.array(column(st.booleans() if others else st.just(True)), dtype=np.bool_),
        weight=np.array(column(st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 3.0, 0.1])), dtype=np.float64),
        min_units=np.array(column(st.integers(0, 3) if minima else st.just(0)), dtype=np.int64),
        max_units=np.array(column(st.integers(1, 12)), dtype=np.int64),
        reserved_units=np.array(column(st.sampled_from([-1, -1, 0, 1, 5])), dtype=np.int64),
        held=np.array(column(st.integers(0, 12)), dtype=np.int64),
        loss=gain[:, -1] + np.array(column(st.integers(0, 64)), dtype=np.float64) * STEP,
        grid=grid,
        gain=gain,
        attained=np.array(column(st.floats(0, 1e6)), dtype=np.float64),
        remaining=np.array(column(st.floats(0, 1e6)), dtype=np.float64),
        credit=np.array(column(st.integers(-9, 10)), dtype=np.float64) / 10,
        owners=tuple(f"owner-{i}" for i in range(owners)),
        owner=np.array(column(st.integers(0, owners - 1)), dtype=np.int64),
        owner_credit=np.zeros(owners),
        needed=np.array(column(st.sampled_from([0.0, 0.0, np.inf, 0.5, 2.0, 4.5, 9.0])), dtype=np.float64),
        seconds_left=np.array(column(st.sampled_from([np.inf, np.inf, -1.0, 5.0, 60.0])), dtype=np.float64),
        group=np.array(column(st.integers(0, 2)), dtype=np.int64),
        searches=np.array(column(st.booleans()), dtype=np.bool_),
        waited=np.array(column(st.sampled_from([0, 0, 1, 50, 500])), dtype=np.int64),
        final=final,
        final_low=final_low,
        final_high=final_high,
        record=record,
    )


def equal_jobs(gain: Floats, grid: list[int]) -> Candidates:
    """Return candidates that differ in nothing but their gain, each for as many units as the grid ends with."""
    jobs = len(gain)
    return Candidates(
        ids=tuple(f"job-{i}" for i in range(jobs)),
        order=np.arange(jobs),
        competes=np.ones(jobs, dtype=np.bool_),
        weight=np.ones(jobs),
        min_units=np.zeros(jobs, dtype=np.int64),
        max_units=np.full(jobs, grid[-1], dtype=np.int64),
        reserved_units=np.full(jobs, -1, dtype=np.int64),
        held=np.zeros(jobs, dtype=np.int64),
        loss=np.ones(jobs),
        grid=np.array(grid, dtype=np.int64),
        gain=gain,
        attained=np.zeros(jobs),
        remaining=np.ones(jobs),
        credit=np.zeros(jobs),
        owners=("",),
        owner=np.zeros(jobs, dtype=np.int64),
        owner_credit=np.zeros(1),
        seconds_left=np.full(jobs, np.inf),
        needed=np.zeros(jobs),
        group=np.zeros(jobs, dtype=np.int64),
        searches=np.zeros(jobs, dtype=np.bool_),
        final=np.zeros(jobs),
        final_low=np.zeros(jobs),
        final_high=np.zeros(jobs),
        record=np.full(jobs, np.inf),
        waited=np.zeros(jobs, dtype=np.int64),
    )
