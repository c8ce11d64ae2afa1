"""Laws of the forecasts: finite, equivariant, monotone, honest about what they left out."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import slaq
from slaq.core import curves
from slaq.core.errors import ForecastError, UnknownNameError
from slaq.core.forecast import METHODS, CurveForecaster

ALL_METHODS = sorted(METHODS)
HORIZONS = [1, 2, 5, 10, 50, 1000]
finite = st.floats(-1e300, 1e300)
modest = st.floats(-1e3, 1e3).map(lambda loss: round(loss, 3))


def sublinear(count: int) -> np.ndarray:
    k = np.arange(count)
    return 1.0 / (0.02 * k**2 + 0.3 * k + 1.0) + 0.5


def linear_rate(count: int) -> np.ndarray:
    return 3.0 * 0.9 ** np.arange(count) + 1.0


@pytest.mark.parametrize("method", ALL_METHODS)
@given(losses=st.lists(finite, min_size=1, max_size=90))
def test_any_finite_history_gives_finite_forecasts(method: str, losses: list[float]) -> None:
    """For any finite losses, every predicted number is finite and inside its interval."""
    assume(np.ptp(losses) < 1e300)
    found = slaq.forecast(losses, HORIZONS, method=method)
    assert np.isfinite([found.mean, found.low, found.high]).all()
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()


@pytest.mark.parametrize("method", ALL_METHODS)
@given(
    losses=st.lists(modest, min_size=2, max_size=40),
    scale=st.floats(0.01, 100.0),
    shift=st.floats(-100.0, 100.0),
)
def test_scaling_and_shifting_the_losses_does_so_to_the_forecast(
    method: str, losses: list[float], scale: float, shift: float
) -> None:
    """Scaling or shifting the losses scales or shifts the forecast."""
    plain = slaq.forecast(losses, HORIZONS, method=method)
    moved = slaq.forecast(scale * np.array(losses) + shift, HORIZONS, method=method)
    tolerance = 1e-5 * (1 + scale * np.abs(losses).max() + abs(shift))
    np.testing.assert_allclose(moved.mean, scale * plain.mean + shift, atol=tolerance, rtol=1e-5)


@given(losses=st.lists(modest, min_size=1, max_size=80))
def test_forecasts_fall_and_flatten(losses: list[float]) -> None:
    """The mean never rises with the horizon, and never falls faster than it did before."""
    mean = slaq.forecast(losses, list(range(1, 30))).mean
    steps = np.diff(mean)
    slack = 1e-9 * (1 + np.abs(losses).max())
    assert (steps <= slack).all()
    assert (np.diff(steps) >= -slack).all()


@pytest.mark.parametrize("curve", [sublinear, linear_rate])
def test_the_papers_families_are_foreseen(curve: "type") -> None:
    """On curves of the paper's two families the forecast ten ahead is off by under 1% of the range."""
    truth = curve(80)
    for known in (15, 30, 60):
        found = slaq.forecast(truth[:known], 10)
        assert abs(found.mean[0] - truth[known + 9]) < 0.01 * np.ptp(truth)


def test_noise_is_smoothed() -> None:
    """For a constant plus noise, the forecast is nearer to the constant than the last loss usually is."""
    rng = np.random.default_rng(3)
    off, last = [], []
    for _ in range(40):
        losses = 2.0 + rng.normal(0, 0.1, 60)
        off.append(abs(slaq.forecast(losses, 10).mean[0] - 2.0))
        last.append(abs(losses[-1] - 2.0))
    assert np.mean(off) < 0.5 * np.mean(last)


def test_one_loss_gives_a_wide_interval() -> None:
    """After a single loss the mean is that loss, and the interval reaches down by the whole loss."""
    found = slaq.forecast([4.0], [1, 10])
    np.testing.assert_allclose(found.mean, 4.0)
    assert (found.low <= 0.0).all()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_constant_losses_stay(method: str) -> None:
    """A constant loss is predicted to stay constant."""
    found = slaq.forecast([0.7] * 30, HORIZONS, method=method)
    np.testing.assert_allclose(found.mean, 0.7)


def test_rising_losses_are_not_forecast_to_fall() -> None:
    """A loss that has only risen is not predicted to fall."""
    losses = np.linspace(1.0, 2.0, 30)
    found = slaq.forecast(losses, [1, 10, 100])
    assert np.ptp(found.mean) < 0.02


@given(st.integers(9, 60), st.floats(20.0, 1000.0))
def test_an_outlier_is_passed_over(place: int, size: float) -> None:
    """One outlier in a smooth curve hardly changes the forecast."""
    clean = sublinear(64)
    dirty = clean.copy()
    dirty[place] += size
    expected, found = slaq.forecast(clean, 10), slaq.forecast(dirty, 10)
    assert abs(found.mean[0] - expected.mean[0]) < 0.1 * np.ptp(clean)


def test_a_drop_is_found_and_the_forecast_starts_anew() -> None:
    """After a drop of the learning rate the forecast reports the place and follows the new curve."""
    before = 2.0 + 0.3 * 0.9 ** np.arange(60)
    after = 1.0 + 0.5 * 0.8 ** np.arange(15)
    losses = np.concatenate((before, after))
    found = slaq.forecast(losses, 10)
    assert found.restarts
    assert abs(found.restarts[0] - 60) <= 1
    assert abs(found.mean[0] - 1.0) < 0.02


def test_an_announced_bend_restarts_the_forecast() -> None:
    """The forecast starts anew at a place that the caller announces."""
    losses = np.concatenate((linear_rate(40), 1.0 + 0.2 * 0.7 ** np.arange(8)))
    assert slaq.forecast(losses, 5, announced=[40]).restarts == (40,)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_left_out_and_reported(bad: float) -> None:
    """NaN and infinity change no number of the forecast; their places are reported."""
    losses = sublinear(20)
    with_gaps = np.insert(losses, [5, 12], bad)
    found = slaq.forecast(with_gaps, HORIZONS)
    assert found.ignored == (5, 13)
    np.testing.assert_array_equal(found.mean, slaq.forecast(losses, HORIZONS).mean)


def test_old_losses_do_not_matter() -> None:
    """A forecast uses a bounded window: much longer histories give the same forecast."""
    tail = sublinear(400)[10:]
    longer = np.concatenate((np.linspace(9.0, 8.0, 3000), tail))
    np.testing.assert_allclose(slaq.forecast(longer, 10).mean, slaq.forecast(tail, 10).mean, rtol=1e-9)


@pytest.mark.parametrize(
    ("losses", "horizons", "message"),
    [
        ([], 10, "no finite number"),
        ([float("nan")], 10, "no finite number"),
        ([[1.0, 2.0]], 10, "one list"),
        ([1.0], 0, "whole numbers from 1"),
        ([1.0], [], "whole numbers from 1"),
        ([1.0], 2.5, "whole numbers from 1"),
    ],
)
def test_bad_input_says_what_to_give(losses: list[float], horizons: int, message: str) -> None:
    """Invalid input is refused with what to give instead."""
    with pytest.raises(ForecastError, match=message):
        slaq.forecast(losses, horizons)


def test_unknown_method_lists_the_known() -> None:
    """The error about an unknown method lists the known ones."""
    with pytest.raises(UnknownNameError, match="weighted-fit"):
        slaq.forecast([1.0], 1, method="weighted_fit")


@given(st.data())
def test_jobs_do_not_touch_each_other(data: st.DataObject) -> None:
    """Many rows at once, in any order and of any age, get the forecasts that each gets alone."""
    histories = data.draw(
        st.lists(st.lists(modest, min_size=1, max_size=70), min_size=2, max_size=6), label="histories"
    )
    together = CurveForecaster(len(histories))
    for step in range(max(map(len, histories))):
        rows = np.array([row for row, losses in enumerate(histories) if step < len(losses)])
        rows = data.draw(st.permutations(rows.tolist()).map(np.array))
        news = np.array([[histories[row][step]] for row in rows])
        together.observe(rows, news, np.ones(len(rows), dtype=np.int64))
    forecasts = together.forecasts(np.arange(len(histories)), (1.0, 10.0))
    for row, losses in enumerate(histories):
        alone = slaq.forecast(losses, [1, 10])
        np.testing.assert_allclose(forecasts.mean[row], alone.mean, rtol=1e-9, atol=1e-9)


def test_filters_are_least_squares() -> None:
    """A filter gives the level and slope that weighted least squares finds."""
    rng = np.random.default_rng(0)
    for column, curve in enumerate(curves.CURVES):
        if curve.anchored or curve.family == "flat":
            continue
        for count in (3, 17, curves.WINDOW):
            losses = rng.normal(size=count)
            lags = np.arange(count - 1.0, -1.0, -1.0)
            design = np.stack((curve.shape(-lags, count), np.ones(count)), axis=1)
            root = np.sqrt(curve.decay**lags)
            slope, level = np.linalg.lstsq(design * root[:, None], losses * root, rcond=None)[0]
            bank = curves.filters()[count].reshape(curves.WINDOW, 3, -1)[-count:]
            assert losses @ bank[:, 0, column] == pytest.approx(slope, rel=1e-4, abs=1e-8)
            assert losses @ bank[:, 1, column] == pytest.approx(level, rel=1e-4, abs=1e-8)


def test_an_announcement_among_losses_left_out_counts_from_the_next() -> None:
    """A change announced at a NaN loss applies from the next loss on."""
    losses = [*linear_rate(30), float("nan"), 0.9, 0.8, 0.7]
    assert slaq.forecast(losses, 5, announced=[30]).restarts == (31,)


@pytest.mark.parametrize("place", [-1, 3])
def test_an_announcement_outside_the_history_is_refused(place: int) -> None:
    """A change can only be announced at a place that has a loss."""
    with pytest.raises(ForecastError, match="from 0 to 2"):
        slaq.forecast([3.0, 2.0, 1.0], 1, announced=[place])


def test_words_are_no_losses() -> None:
    """A value that is not a number is refused with an example of a valid one."""
    with pytest.raises(ForecastError, match="list of numbers"):
        slaq.forecast(["a"], 1)  # type: ignore[list-item]


def test_a_single_zero_is_uncertain_too() -> None:
    """A single loss of exactly 0, which has no scale, still gets an interval of positive width."""
    found = slaq.forecast([0.0], 1)
    assert found.low[0] <= -0.5
    assert found.high[0] >= 0.5
