"""Laws of the forecasts: finite, equivariant, monotone, honest about what they left out."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import slaq
from slaq.core import curves
from slaq.core.errors import ForecastError, UnknownNameError
from slaq.core.forecast import METHODS, ROW, CurveForecaster
from slaq.core.history import read

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
    """On curves of the paper's two families the forecast ten ahead is off by under 1% of the range, or 3%."""
    truth = curve(80)
    for known, most in ((15, 0.03), (30, 0.01), (60, 0.001)):
        found = slaq.forecast(truth[:known], 10)
        assert abs(found.mean[0] - truth[known + 9]) < most * np.ptp(truth)


@given(growth=st.floats(1.25, 1.4), left=st.integers(14, 20))
def test_a_fall_that_grows_is_foreseen_to_go_on(growth: float, left: int) -> None:
    """Where each fall is larger than the one before, more of it is foreseen to come than by the paper's fit."""
    truth = -(growth ** np.arange(left + 1.0))
    ours, paper = (
        truth[-1] - slaq.forecast(truth, 10, method=method).mean[0] for method in ("slaq", "weighted-fit")
    )
    assert ours > paper


@given(first=modest, second=modest)
def test_two_losses_show_no_growth(first: float, second: float) -> None:
    """From two losses no fall is foreseen that is faster than the one between them."""
    mean = slaq.forecast([first, second], HORIZONS).mean
    fall = max(first - second, 0.0) * np.array(HORIZONS)
    assert (min(first, second) - mean <= 1.0001 * fall + 1e-6 * (1 + abs(first) + abs(second))).all()


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
        # In single precision, sums depend a little on how many rows are multiplied at once.
        tolerance = 1e-4 * (1.0 + np.ptp(losses))
        np.testing.assert_allclose(forecasts.mean[row], alone.mean, rtol=1e-6, atol=tolerance)
        np.testing.assert_allclose(forecasts.mean[row] - forecasts.below[row], alone.low, atol=10 * tolerance)


def test_filters_are_least_squares() -> None:
    """A filter gives the mean and the slope that weighted least squares finds, now and some losses ago."""
    rng = np.random.default_rng(0)
    for place, curve in enumerate(curves.CURVES):
        if curve.anchored or curve.family == "flat":
            continue
        for count in (4, 16, curves.WINDOW):
            losses = rng.normal(size=count)
            bank = curves.filters(int(curves.keys(np.array([count]))[0]))
            assert bank.shape == (curves.ROWS, count)
            fitted = bank @ np.float32(losses)
            (run,) = (run for run in curves.RUNS if place in range(*run.curves.indices(curves.MANY)))
            for number, past in enumerate(curves.TIMES):
                if count - past < 2:
                    assert not fitted[curves.AHEAD[number]].any()
                    continue
                known = losses[: count - past]
                lags = np.arange(len(known) - 1.0, -1.0, -1.0)
                shape = curve.shape(-lags, count - past)
                design = np.stack((shape, np.ones(len(known))), axis=1)
                root = np.sqrt(curve.decay**lags)
                slope, level = np.linalg.lstsq(design * root[:, None], known * root, rcond=None)[0]
                mean = level + slope * np.average(shape, weights=root**2)
                ahead = level + slope * curve.shape(np.array([float(past)]), count - past)[0]
                if not past:
                    assert fitted[curves.SLOPES][place] == pytest.approx(slope, rel=1e-2, abs=1e-4)
                assert fitted[curves.MEAN[number]][run.mean] == pytest.approx(mean, rel=1e-3, abs=1e-4)
                far = 1e-3 * (1 + abs(slope))
                assert fitted[curves.AHEAD[number]][place] == pytest.approx(ahead, rel=1e-2, abs=far)


@given(losses=st.lists(modest, min_size=1, max_size=200), data=st.data())
def test_a_history_is_read_at_once_as_it_is_loss_by_loss(losses: list[float], data: st.DataObject) -> None:
    """A history read at once gives the forecasts, and the bends, that reading it loss by loss gives."""
    place = data.draw(st.integers(0, len(losses) - 1))
    losses[place:] = [loss / data.draw(st.sampled_from([1.0, 50.0])) for loss in losses[place:]]
    at_once, one_by_one = CurveForecaster(1), CurveForecaster(1)
    read(at_once, np.array(losses))
    for loss in losses:
        one_by_one.observe(ROW, np.array([[loss]]), np.ones(1, dtype=np.int64))
    expected, found = (forecaster.forecasts(ROW, (1.0, 10.0)) for forecaster in (one_by_one, at_once))
    assert at_once.bends == one_by_one.bends
    tolerance = 1e-3 * (1.0 + np.ptp(losses))
    np.testing.assert_allclose(found.mean, expected.mean, atol=tolerance)
    np.testing.assert_allclose(found.below, expected.below, rtol=0.01, atol=tolerance)


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_intervals_follow_a_jobs_own_past(spread: float) -> None:
    """Where a job's noise is much the same for long, about 80 of 100 losses lie in the interval."""
    rng = np.random.default_rng(2)
    losses = 5.0 + rng.standard_t(spread * 4, 700) * spread
    forecaster, inside = CurveForecaster(1), []
    for place, loss in enumerate(losses):
        if place > 100:
            table = forecaster.forecasts(ROW, (1.0,))
            off = loss - table.mean[0, 0]
            inside.append(-table.below[0, 0] <= off <= table.above[0, 0])
        forecaster.observe(ROW, np.array([[loss]]), np.ones(1, dtype=np.int64))
    assert 0.72 < np.mean(inside) < 0.88


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
