"""Laws of normalised loss and of the time to reach a share of a job's reduction."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.quality import best_so_far, first_and_best, normalised, reduction, time_to, times_to

LOSSES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
# Differences that survive being shifted and scaled.
COARSE = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=30)
SHARES = (0.0, 0.25, 0.5, 0.9, 1.0)


@given(LOSSES)
def test_reduction_goes_from_0_to_1_and_never_falls(losses: list[float]) -> None:
    """The reduction so far is that of the best loss so far, also if losses rise in between."""
    curve = np.array(losses)
    first, best = first_and_best(curve)
    shares = reduction(curve, first, best)
    assert shares[-1] == 1.0
    assert np.all(np.diff(shares) >= 0)
    if first > best:
        assert shares[0] == 0.0


@given(COARSE, st.sampled_from([0.25, 1.0, 1024.0]), st.integers(-5, 5))
def test_scaling_and_shifting_a_loss_changes_nothing(losses: list[float], scale: float, shift: int) -> None:
    """a * loss + b with a > 0 has the same normalised losses and the same times."""
    curve = np.array(losses)
    moved = scale * curve + shift
    times = np.arange(float(len(losses)))
    assert normalised(moved, *first_and_best(moved)) == pytest.approx(
        normalised(curve, *first_and_best(curve))
    )
    assert times_to(times, moved, SHARES).tolist() == times_to(times, curve, SHARES).tolist()


@given(LOSSES, st.floats(0, 1))
def test_a_share_is_reached_at_the_first_loss_that_reached_it(losses: list[float], share: float) -> None:
    """The time equals the one found by a plain search through the curve."""
    curve = np.array(losses)
    reached = reduction(curve, *first_and_best(curve)) >= share - 1e-9
    assert time_to(np.arange(float(len(curve))), curve, share) == float(np.flatnonzero(reached)[0])


def test_the_example_by_hand() -> None:
    """10 falls to 0 with a rise in between: 50% at 4 (reached at 1 s), 90% at 1 (reached at 3 s)."""
    times, losses = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([10.0, 4.0, 6.0, 1.0, 0.0])
    assert times_to(times, losses, [0.5, 0.6, 0.61, 0.9, 1.0]).tolist() == [1.0, 1.0, 3.0, 3.0, 4.0]
    assert normalised(losses, 10.0, 0.0).tolist() == [1.0, 0.4, 0.6, 0.1, 0.0]


def test_a_constant_curve_has_reached_everything_at_once() -> None:
    """A constant curve, or one that only rises, reaches every share at once."""
    times = np.array([2.0, 3.0, 4.0])
    for losses in ([7.0, 7.0, 7.0], [7.0, 8.0, 9.0]):
        assert times_to(times, np.array(losses), [0.5, 1.0]).tolist() == [2.0, 2.0]
        assert normalised(np.array(losses), 7.0, 7.0).tolist() == [0.0, 0.0, 0.0]


def test_what_is_not_finite_is_passed_over() -> None:
    """NaN and infinities neither count as a first or best loss nor hide those after them."""
    losses = np.array([math.nan, 4.0, -math.inf, math.nan, 2.0, math.inf, 0.0])
    assert first_and_best(losses) == (4.0, 0.0)
    assert best_so_far(losses)[1:].tolist() == [4.0, 4.0, 4.0, 2.0, 2.0, 0.0]
    assert math.isnan(best_so_far(losses)[0])
    assert times_to(np.arange(7.0), losses, [0.5, 1.0]).tolist() == [4.0, 6.0]


def test_without_a_loss_nothing_is_reached() -> None:
    """A curve without a finite loss never reaches a share."""
    assert time_to(np.empty(0), np.empty(0), 0.0) == math.inf
    assert time_to(np.array([1.0]), np.array([math.nan]), 0.0) == math.inf
    assert all(map(math.isnan, first_and_best(np.empty(0))))


def test_a_curve_cut_short_is_measured_against_its_whole_reduction() -> None:
    """Of a fall to 0, a curve that stops at 5 has reached half, and 90% never."""
    times, losses = np.array([0.0, 1.0]), np.array([10.0, 5.0])
    assert times_to(times, losses, [0.5, 0.9], best=0.0).tolist() == [1.0, math.inf]
    assert times_to(times, np.array([8.1, 5.0]), [0.9], best=8.0).tolist() == [1.0]
    assert times_to(np.arange(3.0), np.array([10.0, 8.1, 5.0]), [0.9], best=8.0).tolist() == [2.0]


def test_the_largest_losses_do_not_overflow() -> None:
    """The largest losses that count are normalised like all others; larger ones are passed over."""
    losses = np.array([0.99e100, 0.0, -0.99e100])
    assert normalised(losses, *first_and_best(losses)).tolist() == [1.0, 0.5, 0.0]
