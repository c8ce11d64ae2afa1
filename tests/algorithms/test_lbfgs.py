"""Laws of L-BFGS, apart from what it is used for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import rosen, rosen_der

from slaq.algorithms import KMeans, lbfgs
from slaq.algorithms.inputs import Floats
from slaq.algorithms.training import TrainingRun
from slaq.jobs.inline import InlineContext


def run_of(iterations: int) -> tuple[TrainingRun, InlineContext]:
    """Return a run of so many iterations, and where it reports."""
    ctx = InlineContext()
    algorithm: Any = KMeans(iterations=iterations)
    return TrainingRun(ctx, algorithm), ctx


def rosenbrock(point: Floats) -> tuple[float, Floats]:
    return float(rosen(point)), np.asarray(rosen_der(point))


@given(st.integers(1, 6), st.integers(0, 1000))
def test_the_recursion_is_the_bfgs_update(pairs: int, seed: int) -> None:
    """The product equals that of the inverse Hessian built up as a matrix, pair by pair."""
    generator = np.random.default_rng(seed)
    root = generator.standard_normal((7, 7))
    hessian = root @ root.T + np.eye(7)
    steps = generator.standard_normal((pairs, 7))
    kept = [(s, hessian @ s) for s in steps]
    s, y = kept[-1]
    inverse = np.eye(7) * (s @ y) / (y @ y)
    for s, y in kept:
        left = np.eye(7) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    gradient = generator.standard_normal(7)
    np.testing.assert_allclose(
        lbfgs.inverse_hessian_product(gradient, kept), inverse @ gradient, rtol=1e-6, atol=1e-6
    )


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6))
def test_the_loss_never_rises(start: list[float]) -> None:
    """From anywhere on Rosenbrock's valley, every iteration is at or below the one before."""
    run, ctx = run_of(30)
    lbfgs.minimise(run, rosenbrock, np.array(start))
    assert np.all(np.diff(ctx.losses) <= 0)


def test_it_finds_the_end_of_rosenbrocks_valley() -> None:
    """The minimum (1, ..., 1) is found to seven digits, and the search ends there by itself."""
    run, ctx = run_of(500)
    point = lbfgs.minimise(run, rosenbrock, np.full(6, -1.0))
    np.testing.assert_allclose(point, 1.0, rtol=1e-7)
    assert len(ctx.losses) < 200


def test_a_minimum_is_where_it_stays() -> None:
    """Started at the minimum there is nothing to do: one report, no iteration."""
    run, ctx = run_of(10)
    point = lbfgs.minimise(run, rosenbrock, np.ones(3))
    assert point.tolist() == [1.0, 1.0, 1.0]
    assert ctx.losses == [0.0]


def test_a_loss_that_is_infinite_ahead_is_kept_away_from() -> None:
    """The line search takes a loss that is not finite as too far."""

    def barrier(point: Floats) -> tuple[float, Floats]:
        if np.any(point <= 0):
            return float("nan"), np.full_like(point, np.nan)
        return float(np.sum(point - np.log(point))), 1.0 - 1.0 / point

    run, ctx = run_of(50)
    point = lbfgs.minimise(run, barrier, np.array([5.0, 0.01]))
    np.testing.assert_allclose(point, 1.0, rtol=1e-6)
    assert np.all(np.isfinite(ctx.losses))


def test_wolfes_conditions_hold_where_the_line_search_ends() -> None:
    """The loss has fallen enough and the slope has flattened."""
    loss, gradient = rosenbrock(np.array([-1.2, 1.0]))
    here = lbfgs.Iterate(point=np.array([-1.2, 1.0]), loss=loss, gradient=gradient)
    for first in (1e-6, 1e-3, 1.0, 100.0):
        there = lbfgs.line_search(rosenbrock, here, -gradient, first)
        assert there is not None
        step = (there.point - here.point)[0] / -gradient[0]
        slope = -float(gradient @ gradient)
        assert there.loss <= loss + lbfgs.ARMIJO * step * slope
        assert -float(gradient @ there.gradient) >= lbfgs.CURVATURE * slope
    assert lbfgs.line_search(rosenbrock, here, gradient, 1.0) is None


def test_the_memory_bounds_what_is_kept() -> None:
    """A checkpoint holds no more pairs than the memory."""
    run, ctx = run_of(20)
    lbfgs.minimise(run, rosenbrock, np.full(4, -1.0), memory=3)
    assert len(ctx.kept["state"]["pairs"]) == 3
    assert ctx.losses[-1] == pytest.approx(rosen(ctx.kept["state"]["point"]))
