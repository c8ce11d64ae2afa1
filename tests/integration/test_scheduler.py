"""Laws of the epoch loop, run whole on the simulator."""

import numpy as np
import pytest
from typing_extensions import override

from slaq.bootstrap import POLICIES, make_forecaster, make_policy, simulate
from slaq.core.appraisal import Appraiser
from slaq.core.errors import UnknownNameError
from slaq.core.events import LossObserved
from slaq.core.job import JobSpec, Kind
from slaq.core.roster import Roster
from slaq.core.sharing import water_fill
from slaq.scheduler import Scheduler
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.generator import Demand, generate
from slaq.simulation.workload import SimulatedJob, Workload
from slaq.stores.memory import MemoryStore


def small(count: int = 12, seed: int = 0) -> Workload:
    return generate(
        count, np.random.default_rng(seed), Demand(mean_arrival=4.0, median_cpu_seconds=200, max_units=16)
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_finishes_every_job(policy: str) -> None:
    """Whatever the policy, all jobs end, and no epoch hands out more than there is."""
    run = simulate(small(), policy=policy, capacity=16, epoch_seconds=1.0)
    assert run.outcome.unfinished == 0
    for decision in run.history.decisions():
        assert decision.units.sum() <= 16


@pytest.mark.parametrize("policy", ["fair", "total-quality", "clairvoyant"])
def test_the_same_workload_gives_the_same_run(policy: str) -> None:
    """Nothing is left to chance: two runs of one workload are alike to the last number."""
    first, second = (simulate(small(), policy=policy, capacity=16).outcome for _ in range(2))
    ours, theirs = first.as_json(), second.as_json()
    ours.pop("decision_ms"), theirs.pop("decision_ms")
    assert ours == theirs


def test_quality_comes_sooner_than_under_fair_sharing() -> None:
    """On a loaded cluster total-quality reaches 90% of the reduction in far less time than fair."""
    workload = generate(60, np.random.default_rng(1), Demand(mean_arrival=10.0))
    fair, ours = (simulate(workload, policy=p, capacity=640).outcome for p in ("fair", "total-quality"))
    assert ours.time_to_90 < 0.6 * fair.time_to_90
    assert ours.mean_normalised_loss < 0.6 * fair.mean_normalised_loss


def test_capacity_that_comes_and_goes() -> None:
    """Units that vanish in mid-run slow the jobs down but lose none of them."""
    steady = simulate(small(), policy="total-quality", capacity=16, epoch_seconds=1.0).outcome
    shaky = simulate(
        small(), policy="total-quality", capacity=[(0, 16), (10, 2), (60, 16)], epoch_seconds=1.0
    )
    assert shaky.outcome.unfinished == 0
    assert shaky.outcome.makespan >= steady.makespan


def test_other_work_holds_its_fair_share_beside_training() -> None:
    """A job that trains nothing gets its fair share of units, to within one, in every epoch it runs."""
    etl = SimulatedJob(spec=JobSpec(id="etl", kind=Kind.OTHER), cpu_seconds=150.0)
    workload = Workload((*small(6).jobs, etl))
    run = simulate(workload, policy="total-quality", capacity=20, epoch_seconds=1.0)
    limits = {spec.id: spec.max_units or 20 for spec in workload.specs}
    for decision in run.history.decisions():
        if "etl" in decision.ids:
            limit = np.array([limits[job_id] for job_id in decision.ids])
            share = water_fill(np.ones(len(limit)), limit, 20)[decision.ids.index("etl")]
            assert abs(decision.units[decision.ids.index("etl")] - share) <= 1


class LateClock(VirtualClock):
    """A clock that oversleeps every third time."""

    naps = 0

    @override
    def sleep_until(self, moment: float) -> None:
        self.naps += 1
        super().sleep_until(moment + (7.3 if self.naps % 3 == 0 else 0.0))


def test_a_late_epoch_is_skipped() -> None:
    """After oversleeping, the next decision is at the next whole epoch; none is made up for."""
    workload, clock = small(4), LateClock()
    store = MemoryStore(workload.specs)
    scheduler = Scheduler(
        engine=SimulatedEngine(workload, clock, 16),
        store=store,
        clock=clock,
        policy=make_policy("fair"),
        appraiser=Appraiser(epoch_seconds=1.0),
        roster=Roster(make_forecaster("slaq")),
    )
    decisions = [decision for decision in scheduler.epochs() if decision is not None]
    assert len(decisions) > 5
    epochs = [decision.epoch for decision in decisions]
    assert epochs == sorted(set(epochs))
    assert all(decision.time >= decision.epoch for decision in decisions)


def test_expectations_are_kept_with_the_decision() -> None:
    """A forecast with its interval for every job that has told a loss, and none for those that have not."""
    run = simulate(small(20), policy="total-quality", capacity=16, epoch_seconds=1.0)
    told = 0
    for decision in run.history.decisions():
        losses = [run.history.events(job_id) for job_id in decision.ids]
        heard = [
            any(isinstance(event, LossObserved) and event.at <= decision.time for event in events)
            for events in losses
        ]
        assert np.isfinite(decision.expected).tolist() == heard
        assert (decision.marginal >= -1e-12).all()
        low, mean, high = decision.expected_low, decision.expected, decision.expected_high
        assert ((low <= mean) & (mean <= high))[heard].all()
        told += sum(heard)
    assert told > 20


@pytest.mark.parametrize("make", [make_policy, make_forecaster])
def test_unknown_names_list_the_known(make: "type") -> None:
    """A misspelt policy or forecaster is answered with the names there are."""
    with pytest.raises(UnknownNameError, match="known:"):
        make("total_quality_")


def test_a_cluster_without_units_waits() -> None:
    """With no capacity at first, jobs wait without harm and run once there is some."""
    run = simulate(small(4), policy="total-quality", capacity=[(0, 0), (20, 8)], epoch_seconds=1.0)
    assert run.outcome.unfinished == 0
    assert [decision.capacity for decision in run.history.decisions()][:3] == [0, 0, 0]
