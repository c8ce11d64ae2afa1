"""Laws of a simulation with everything about it chosen: objects for names, a referee, forecasts made wrong."""

from collections.abc import Iterable

import numpy as np
import pytest

from slaq.bootstrap import Simulation, make_forecaster, simulate
from slaq.core.baselines import WeightedFit
from slaq.core.decision import Decision
from slaq.core.errors import UnknownNameError
from slaq.core.events import JobEnded
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobState
from slaq.core.policies import TotalQuality
from slaq.ports import History
from slaq.simulation.distortion import DistortedForecaster
from slaq.simulation.generator import WorkloadShape, generate

JOBS = generate(12, np.random.default_rng(3), WorkloadShape(mean_arrival=5.0))


def test_a_name_and_its_object_run_alike() -> None:
    """A policy and a forecaster given as objects decide as those of the same name do."""
    named = simulate(JOBS, policy="total-quality", capacity=64).outcome
    given = Simulation(
        workload=JOBS, capacity=64, policy=TotalQuality(), forecaster=make_forecaster("slaq")
    ).run()
    np.testing.assert_array_equal(named.loss, given.outcome.loss)
    assert given.outcome.policy == "TotalQuality"


def test_the_worst_job_is_no_better_than_the_mean() -> None:
    """In every epoch the worst job's normalised loss is at least the mean."""
    outcome = simulate(JOBS, policy="fair", capacity=64).outcome
    known = np.isfinite(outcome.loss)
    assert (outcome.worst_loss[known] >= outcome.loss[known] - 1e-12).all()
    assert np.isnan(outcome.worst_loss[~known]).all()


def test_a_referee_stops_jobs() -> None:
    """A job that the referee names ends as cancelled, in the epoch it was named in, and reports nothing after."""
    victim = JOBS.jobs[0].spec.id

    def referee(decision: Decision, history: History) -> Iterable[str]:
        return (victim,) if decision.epoch == 3 else ()

    run = Simulation(workload=JOBS, capacity=64, policy="fair", referee=referee).run()
    last = run.history.events(victim)[-1]
    assert isinstance(last, JobEnded)
    assert last.state is JobState.CANCELLED
    assert last.at == pytest.approx(9.0)
    assert not any(victim in decision.ids for decision in run.history.decisions() if decision.epoch > 3)


def test_what_can_be_chosen_changes_decisions() -> None:
    """Optimism, normaliser and noise of costs each lead to another run; the same choice to the same."""

    def losses(**chosen: object) -> list[float]:
        run = Simulation(workload=JOBS, capacity=64, policy="total-quality", **chosen).run()  # type: ignore[arg-type]
        return list(run.outcome.loss)

    plain = losses()
    assert losses() == plain
    assert losses(optimism=3.0) != plain
    assert losses(by_largest_fall=True) != plain
    noisy = losses(cost_noise=0.5, rng=np.random.default_rng(1))
    assert noisy != plain
    assert losses(cost_noise=0.5, rng=np.random.default_rng(1)) == noisy


def test_a_distortion_of_nothing_changes_nothing() -> None:
    """With sigma 0 the distorted forecaster is the other one; with more, each job has a factor."""
    rows = np.arange(3)
    losses = np.array([[5.0, 4.0, 3.5], [9.0, 8.0, 7.5], [1.0, 0.5, 0.4]])
    tables = []
    for sigma in (None, 0.0, 1.0):
        forecaster = CurveForecaster()
        chosen = (
            forecaster if sigma is None else DistortedForecaster(forecaster, sigma, np.random.default_rng(0))
        )
        chosen.resize(3)
        chosen.observe(rows, losses, np.full(3, 3))
        tables.append(chosen.forecasts(rows, (1.0, 10.0)))
        assert (chosen.bends == 0).all()
    true, same, distorted = tables
    np.testing.assert_array_equal(true.fall, same.fall)
    factors = distorted.fall / true.fall
    np.testing.assert_allclose(factors[:, 0], factors[:, 1])
    assert len(set(np.round(factors[:, 0], 6))) == 3


@pytest.mark.parametrize("kind", [CurveForecaster, WeightedFit])
def test_families_can_be_left_out(kind: type[CurveForecaster] | type[WeightedFit]) -> None:
    """A forecaster of one family is another forecaster, still finite; a family that is not known is refused."""
    rows, count = np.arange(1), np.array([12])
    losses = 1.0 / (1.0 + np.arange(12.0))[None]
    falls = []
    for families in (None, ("exponential",)):
        forecaster = kind() if families is None else kind(0, families)
        forecaster.resize(1)
        forecaster.observe(rows, losses, count)
        falls.append(forecaster.forecasts(rows, (20.0,)).fall[0, 0])
    assert np.isfinite(falls).all()
    assert falls[0] != falls[1]
    with pytest.raises(UnknownNameError, match="exponential"):
        kind(0, ("linear",))
