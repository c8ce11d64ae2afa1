"""Laws of gains: concave, exact at their knots, and unmoved by the unit of a loss."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.gain import (
    HORIZONS,
    KNOTS,
    concave,
    delayed_gains,
    finishing_gains,
    gains,
    knots_before,
    read_at,
    unit_grid,
)


@given(st.integers(1, 10**6))
def test_the_grid_spans_all_units(limit: int) -> None:
    """The grid rises strictly from 0 over 1 to the limit, with few points."""
    grid = unit_grid(limit)
    assert (grid[0], grid[1], grid[-1]) == (0, 1, limit)
    assert (np.diff(grid) > 0).all()
    assert len(grid) <= 8 + 2 * np.log2(limit)


@given(st.floats(0.05, 3.0), st.lists(st.floats(0.0, 2000.0), min_size=1, max_size=10))
def test_gains_follow_the_falls(power: float, iterations: list[float]) -> None:
    """At a horizon the gain is the fall there; in between it lies between its neighbours."""
    horizons = np.array(HORIZONS)
    falls = (1 - (1 + horizons) ** -power)[None]
    np.testing.assert_allclose(gains(falls, horizons[None]), falls)
    between = gains(falls, np.array([sorted(iterations)]))[0]
    assert (np.diff(between) >= -1e-12).all()
    assert between[-1] <= falls[0, -1] + 1e-12


@given(st.lists(st.one_of(st.floats(0.0, 1e300), st.sampled_from(KNOTS.tolist())), min_size=1))
def test_tables_are_read_as_numpy_does(iterations: list[float]) -> None:
    """A table is linear between the knots that its place tells, at any number of iterations and at the knots."""
    points = np.array(iterations)
    place = knots_before(points)
    near = np.minimum(points, KNOTS[-1]) * (1.0 + 1e-6)
    assert (KNOTS[place] <= near).all()
    assert (near <= KNOTS[place + 1] * (1.0 + 2e-6)).all()
    falls = 1.0 - 1.0 / (1.0 + KNOTS)
    expected = np.interp(points, KNOTS, falls)
    np.testing.assert_allclose(gains(falls[None, 1:], points[None])[0], expected, atol=1e-12)
    (found,) = read_at((np.tile(falls, (len(points), 1)),), points)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=12))
def test_concave_mends_anything(values: list[float]) -> None:
    """For any input, gains start at 0, never fall, and never steepen."""
    grid = unit_grid(2 ** len(values))[: len(values)]
    slopes = np.diff(concave(np.array([values]), grid)[0]) / np.diff(grid)
    assert (slopes >= 0).all()
    assert (np.diff(slopes) <= 1e-12).all()


def test_concave_leaves_concave_gains_alone() -> None:
    """Concave gains are not changed."""
    grid = unit_grid(64)
    gain = 1 - np.exp(-grid / 10.0)[None]
    np.testing.assert_allclose(concave(gain, grid), gain)


@given(
    st.floats(0.05, 3.0),
    st.lists(st.floats(0.0, 2000.0), min_size=3, max_size=10),
    st.floats(0.0, 500.0),
    st.floats(0.0, 500.0),
)
def test_a_longer_delay_gains_less(power: float, iterations: list[float], delay: float, more: float) -> None:
    """A delay leaves a gain concave and above the delayed curve, lowers it, and by more the longer it is."""
    falls = (1 - (1 + np.array(HORIZONS)) ** -power)[None]
    # Where falls are read between two horizons, the touching line is that of a horizon.
    points = np.array([sorted({0.0, *iterations})])
    sooner = delayed_gains(falls, points, np.array([delay]))[0]
    later = delayed_gains(falls, points, np.array([delay + more]))[0]
    assert sooner[0] == 0.0
    assert (later <= sooner + 1e-12).all()
    assert (sooner <= gains(falls, points)[0] + 1e-12).all()
    assert (sooner >= gains(falls, np.maximum(points - delay, 0.0))[0] - 1e-12).all()
    slopes = np.diff(sooner) / np.diff(points[0])
    assert (np.diff(slopes) <= 1e-9).all()


def test_without_a_delay_gains_are_what_they_were() -> None:
    """Jobs that need no start gain to the last digit what they gain beside jobs that do."""
    falls = 1 - (1 + np.array(HORIZONS)) ** -np.array([[0.5], [1.5]])
    points = np.array([[0.0, 0.5, 3.0, 40.0]] * 2)
    np.testing.assert_array_equal(
        delayed_gains(falls, points, np.array([0.0, 7.0]))[0], gains(falls, points)[0]
    )


@given(
    st.floats(0.05, 3.0),
    st.lists(st.integers(0, 2000), min_size=3, max_size=10),
    st.integers(1, 1000),
    st.floats(0.0, 0.5),
)
def test_an_end_is_worth_its_credit(power: float, iterations: list[int], left: int, credit: float) -> None:
    """Up to the end the credit adds something, never more than its even share; with the end it is there in full."""
    falls = (1 - (1 + np.array(HORIZONS)) ** -power)[None]
    points = np.array([sorted({0.0, left, *iterations})], dtype=np.float64)
    plain = gains(falls, np.minimum(points, left))[0]
    found = finishing_gains(falls, points, gains(falls, points), np.array([float(left)]), credit)[0]
    even = np.minimum(points[0] / left, 1.0)
    assert found[0] == 0.0
    assert (found >= plain - 1e-9).all()
    assert (found <= plain + credit * even + 1e-9).all()
    after = points[0] >= left
    np.testing.assert_allclose(found[after], plain[after] + credit, atol=1e-12)
    slopes = np.diff(found) / np.diff(points[0])
    assert (np.diff(slopes) <= 1e-9).all()


@given(st.floats(1.0, 1000.0), st.floats(1.0, 1000.0), st.floats(0.1, 2000.0))
def test_of_two_jobs_with_nothing_to_gain_the_nearer_end_comes_first(
    left: float, more: float, iterations: float
) -> None:
    """Without a fall, iterations are worth their share of those that are left: the fewer, the more."""
    flat, points = np.zeros((2, len(HORIZONS))), np.full((2, 1), iterations)
    near, far = finishing_gains(flat, points, np.zeros((2, 1)), np.array([left, left + more]), 0.01)[:, 0]
    np.testing.assert_allclose(near, 0.01 * min(iterations / left, 1.0))
    assert near >= far
