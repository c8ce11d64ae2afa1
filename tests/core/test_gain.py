"""Laws of gains: concave, exact at their knots, and unmoved by the unit of a loss."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.gain import HORIZONS, concave, gains, unit_grid


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
