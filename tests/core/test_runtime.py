"""Laws of the runtime model: it learns a cost from few iterations, and a serial part only when there is one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.runtime import RuntimeModel

ROW = np.zeros(1, dtype=np.int64)


def learned(costs: list[float], *, units: float = 4.0, serial: float = 0.0) -> RuntimeModel:
    model = RuntimeModel(1)
    for cost in costs:
        wall = serial + cost / units
        model.observe(ROW, np.array([cost]), np.array([wall]), np.array([wall * units]))
    return model


def seconds(model: RuntimeModel, units: float) -> float:
    return float(model.seconds(ROW, model.cpu, np.array([[units]]))[0, 0])


@given(st.floats(0.01, 1e4), st.integers(1, 64))
def test_cost_over_units(cost: float, units: int) -> None:
    """An iteration at n units takes its CPU time over n, as the paper has it."""
    assert seconds(learned([cost] * 3), units) == pytest.approx(cost / units)


@given(st.floats(1.6, 50.0))
def test_a_slow_first_iteration_is_forgotten(times: float) -> None:
    """The cost of the first iteration is dropped once a second one is known."""
    assert learned([10.0 * times, 10.0]).cpu[0] == pytest.approx(10.0)


@given(st.floats(3.0, 1e6))
def test_an_outlier_moves_the_cost_little(times: float) -> None:
    """One iteration that took far longer moves the estimate by less than half."""
    assert learned([10.0] * 10 + [10.0 * times]).cpu[0] < 15.0


def test_a_change_is_followed() -> None:
    """A cost that has really changed is learned within a few iterations."""
    assert learned([10.0] * 10 + [25.0] * 15).cpu[0] == pytest.approx(25.0, rel=0.05)


@given(st.floats(0.5, 5.0), st.integers(1, 32))
def test_a_serial_part_is_found(serial: float, units: int) -> None:
    """Where iterations take longer than their CPU time explains, more units help less."""
    model = learned([8.0] * 8, serial=serial)
    assert seconds(model, units) == pytest.approx(serial + 8.0 / units, rel=0.02)


def test_without_evidence_there_is_no_serial_part() -> None:
    """A serial part is not estimated from two iterations."""
    assert seconds(learned([8.0] * 2, serial=1.0), 4) == pytest.approx(2.0)


def test_an_iteration_that_seems_to_cost_nothing_can_still_be_learned_from() -> None:
    """If the clock is too coarse for the first iteration, the cost is finite, and later iterations correct it."""
    assert np.isfinite(seconds(learned([0.0]), 1.0))
    assert np.isinf(seconds(learned([0.0]), 0.0))
    assert np.isinf(seconds(learned([1.0]), 5e-324))
    assert learned([0.0] + [10.0] * 200).cpu[0] == pytest.approx(10.0, rel=0.05)


WORTH = st.floats(1.0, 1e3)


@given(WORTH, st.lists(st.floats(0.1, 64.0), min_size=1, max_size=6))
def test_no_number_of_workers_is_worth_more_than_it_says(worth: float, cores: list[float]) -> None:
    """n workers are as fast as worth * n / (worth - 1 + n) single ones; one core, or less, is worth itself."""
    model = learned([10.0] * 3, units=1.0)
    model.waste[0] = 1.0 / worth
    for n in cores:
        speed = seconds(model, 1.0) / seconds(model, n)
        assert speed == pytest.approx(n if n <= 1 else worth * n / (worth - 1 + n))
        assert speed <= max(worth, 1.0) * (1 + 1e-9)


@given(WORTH, st.floats(1.0, 32.0), st.floats(1.0, 32.0))
def test_the_cost_of_one_worker_is_learned_from_any_number(worth: float, first: float, second: float) -> None:
    """An iteration takes more CPU time on more workers; what is learned of one worker does not change by that."""
    model = RuntimeModel(1)
    model.waste[0] = 1.0 / worth
    for n in (first, second):
        cpu = 10.0 * (1.0 + (n - 1.0) / worth)
        model.observe(ROW, np.array([cpu]), np.array([cpu / n]), np.array([cpu]))
        assert model.cpu[0] == pytest.approx(10.0)


@given(WORTH, st.floats(0.05, 64.0))
def test_cores_and_seconds_are_inverse(worth: float, cores: float) -> None:
    """The cores for so many seconds are those with which an iteration takes so many."""
    model = learned([10.0] * 3, units=1.0)
    model.waste[0] = 1.0 / worth
    took = model.steady_seconds(ROW, model.cpu, np.array([[cores]]))[0]
    reached = model.cores_for(ROW, model.cpu, took * (1 + 1e-9))
    assert model.steady_seconds(ROW, model.cpu, reached[:, None])[0, 0] == pytest.approx(took[0], rel=1e-6)


def test_seconds_that_no_number_of_workers_reaches_take_infinitely_many() -> None:
    """Where workers are worth four at most, an eighth of the time of one cannot be reached."""
    model = learned([8.0] * 3, units=1.0)
    model.waste[0] = 0.25
    assert model.cores_for(ROW, model.cpu, np.array([1.0]))[0] == np.inf
