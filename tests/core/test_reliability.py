"""Laws of the tables of chances and times: what is fitted to cases says of them what came."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.prospect_calibration import (
    Chances,
    Times,
    corrected,
    ends_of,
    fit_chances,
    fit_times,
    joined,
    table,
    where,
)
from slaq.core.reliability import CHANCES, KNOTS, TIMES, corrected_chances


def asked(rng: np.random.Generator, count: int) -> Chances:
    """Questions of every kind whose answers come true as often as the present tables say."""
    kind, said, time, made = (
        rng.integers(0, 3, count), rng.uniform(0, 1, count) ** 2, np.exp(rng.normal(-1, 1, count)),
        rng.uniform(0, 1, count),
    )  # fmt: skip
    known = np.exp(rng.uniform(1, 5, count))
    chance = corrected_chances(kind, said[:, None], time[:, None], made, known)[:, 0]
    came = (rng.uniform(0, 1, count) < chance).astype(float)
    return Chances(kind, said, time, made, known, came, np.zeros(count, dtype=np.int64))


def test_fitted_chances_are_what_comes_true() -> None:
    """Tables fitted to some questions say of others, in each tenth of chances, what share of them comes true."""
    rng = np.random.default_rng(0)
    fitted = fit_chances(asked(rng, 20_000), np.ones(20_000))
    assert fitted.shape == CHANCES.shape
    others = asked(rng, 40_000)
    for kind in range(len(CHANCES)):
        chosen = others.kind == kind
        said = corrected(others, fitted)[chosen]
        for row in table(said, others.came[chosen], np.ones(len(said))):
            spread = 0.5 / np.sqrt(row["cases"])
            assert row["said"] == pytest.approx(row["came_true"], abs=0.02 + 4 * spread)


def test_fitted_chances_rise() -> None:
    """Even where fewer come true the more trajectories say so, no table makes a chance fall."""
    rng = np.random.default_rng(1)
    odd = asked(rng, 4000)
    fitted = fit_chances(replace(odd, came=1.0 - odd.came), np.ones(4000))
    assert (np.diff(fitted[:, : len(KNOTS)], axis=1) >= 0).all()
    assert (fitted[:, len(KNOTS) : -1] >= 0).all()


@pytest.mark.parametrize("whole", [False, True])
def test_fitted_intervals_hold_eight_of_ten(whole: bool) -> None:
    """Of times that are off by a factor drawn at random, 80% lie inside of the fitted intervals."""
    rng = np.random.default_rng(2)
    count = 20_000
    known, expected = np.exp(rng.uniform(1, 4, count)), np.exp(rng.uniform(0, 4, count))
    took = expected * np.exp(rng.normal(0, 1.5, count))
    left = np.maximum(took, expected) * np.exp(rng.uniform(0.5, 3, count))
    times = Times(
        np.full(count, whole), left, known, expected, took, np.full(count, 0.9), np.zeros(count, dtype=int)
    )
    half = np.arange(count) % 2 == 0
    some, others = where(times, half), where(times, ~half)
    fitted = fit_times(joined([some, replace(some, whole=~some.whole)]), np.ones(count))
    assert fitted.shape == TIMES.shape
    low, high = ends_of(others, fitted)
    assert (low <= others.expected).all()
    assert (others.expected <= high).all()
    assert np.mean((low <= others.took) & (others.took <= high)) == pytest.approx(0.8, abs=0.04)
