"""Laws of finishing: a job whose end is known gets there, and nobody else pays much for it."""

import numpy as np
import pytest

from slaq.bootstrap import Simulation
from slaq.core.appraisal import FINISH
from slaq.core.events import EndForeseen
from slaq.core.outcome import Outcome
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.workload import Workload


@pytest.fixture(scope="module")
def crowd() -> Workload:
    """Jobs of which twice as many arrive as the cores can serve."""
    shape = WorkloadShape(mean_arrival=6.0, median_cpu_seconds=1600.0, max_cores=160)
    return generate(25, np.random.default_rng(3), shape)


def outcome(jobs: Workload, *, finish: float = FINISH, tells_ends: bool = True) -> Outcome:
    simulation = Simulation(
        workload=jobs, policy="total-quality", capacity=160, finish=finish, tells_ends=tells_ends
    )
    return simulation.run().outcome


def test_a_worth_of_the_end_brings_jobs_to_it(crowd: Workload) -> None:
    """The more the end is worth, the sooner jobs complete; without it, or unless jobs tell it, they wait."""
    nothing, some, much = (outcome(crowd, finish=worth).completion for worth in (0.0, 0.006, 0.1))
    assert much < some < nothing
    assert some < outcome(crowd, tells_ends=False).completion


def test_what_it_costs_is_small(crowd: Workload) -> None:
    """Jobs are good enough hardly later for it, and good in a part of the time that fair sharing takes."""
    without, with_ends = outcome(crowd, finish=0.0), outcome(crowd)
    fair = Simulation(workload=crowd, policy="fair", capacity=160).run().outcome
    assert with_ends.time_to_90 - without.time_to_90 < 0.05 * fair.time_to_90
    assert with_ends.completion < without.completion


def test_simulated_jobs_tell_their_end(crowd: Workload) -> None:
    """A simulated job tells the number of its last iteration, once and with its first loss."""
    history = Simulation(workload=crowd, policy="fair", capacity=160).run().history
    for job in crowd:
        told = [event for event in history.events(job.spec.id) if isinstance(event, EndForeseen)]
        assert [event.iterations for event in told] == [job.iterations]
