"""Laws of the paper's predictors, as the rivals of slaq's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.baselines import FEWEST_TO_FIT, Strawman, WeightedFit
from slaq.core.forecast import ROW, feed
from slaq.core.forecaster import Forecaster, ForecastTable

HORIZONS = (0.0, 1.0, 5.0, 10.0)
modest = st.floats(-1e3, 1e3).map(lambda loss: round(loss, 3))


def said(forecaster: Forecaster, losses: list[float]) -> ForecastTable:
    feed(forecaster, np.array(losses), np.arange(len(losses)))
    return forecaster.forecasts(ROW, HORIZONS)


def assert_same(one: ForecastTable, other: ForecastTable) -> None:
    for name in ("level", "fall", "below", "above"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), err_msg=name)


@given(st.lists(modest, min_size=1, max_size=FEWEST_TO_FIT - 1))
def test_before_there_is_something_to_fit_the_paper_s_fit_is_a_straight_line(losses: list[float]) -> None:
    """With too few losses for a curve the weighted fit forecasts what the strawman does, interval and all."""
    assert_same(said(WeightedFit(1), losses), said(Strawman(1), losses))


@given(st.lists(modest, min_size=2, max_size=FEWEST_TO_FIT, unique=True))
def test_a_job_that_has_fallen_throughout_is_never_forecast_flat(losses: list[float]) -> None:
    """The weighted fit forecasts a fall from the second of ever lower losses on."""
    falling = sorted(losses, reverse=True)
    if np.ptp(falling) >= 0.01:
        assert said(WeightedFit(1), falling).fall[0, 1] > 0.0


def test_losses_that_no_curve_can_follow_are_continued_as_a_line() -> None:
    """Where no curve of the families fits, the weighted fit forecasts what the strawman does."""
    losses = [4.0, 1.0, 1.0, 0.0]
    alone = said(WeightedFit(1, ("sublinear",)), losses)
    assert_same(alone, said(Strawman(1), losses))
    assert alone.fall[0].tolist() == [0.0, 1.0, 5.0, 10.0]
    # The other family can follow them, and flattens.
    assert said(WeightedFit(1), losses).fall[0, -1] < 10.0


@pytest.mark.parametrize("family", ["exponential", "sublinear"])
def test_from_the_third_loss_on_the_curve_counts(family: str) -> None:
    """A curve of a family is continued closely by that family's fit, where the straight line is far off."""
    k = np.arange(23.0)
    curve = 2.0 * 0.8**k + 1.0 if family == "exponential" else 1.0 / (0.02 * k**2 + 0.3 * k + 1.0) + 0.5
    known = curve[:12].tolist()
    truth = curve[11] - curve[11 + 10]
    fitted = said(WeightedFit(1, (family,)), known).fall[0, -1]
    line = said(Strawman(1), known).fall[0, -1]
    assert abs(fitted - truth) < 0.2 * abs(line - truth)
