"""Laws of what the experiments are made of: successive halving, the mix, the trace, the arms."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from replication.experiment import Settings, recorded_curves
from replication.optuna_pruners import PRUNERS, OptunaPruner
from replication.other_work import mixed, one
from replication.philly import DAY, busiest_day
from replication.real_search import summary
from replication.search import Search
from replication.simulated import UNASKING, UNITS, Arm, Load, binned, forecaster_for, loads
from replication.successive_halving import SuccessiveHalving
from replication.watched_job import accuracy_marks, sooner
from slaq.bootstrap import Simulation
from slaq.core.demand import Demand
from slaq.core.events import JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.simulation.workload import SimulatedJob, Workload

CURVES = Settings().curves


def flat_jobs(levels: list[float]) -> Workload:
    """Return jobs that stand at these losses from their first iteration on, all alike otherwise."""
    return Workload(
        tuple(
            SimulatedJob(
                spec=JobSpec(id=f"job-{k}", arrival=k * 3.0, demand=Demand(most=1.0)),
                losses=np.append(10.0, np.full(30, level)),
                cpu_seconds_per_iteration=1.5,
            )
            for k, level in enumerate(levels)
        )
    )


def iterations_of(workload: Workload, halving: SuccessiveHalving) -> dict[str, int]:
    """Return how far each job came under successive halving, with units for all."""
    history = Simulation(workload=workload, policy="fair", capacity=64, referee=halving).run().history
    return {
        job.spec.id: max(
            event.observation.iteration
            for event in history.events(job.spec.id)
            if isinstance(event, LossObserved)
        )
        for job in workload
    }


def test_successive_halving_stops_the_worse_and_keeps_the_best() -> None:
    """Once others have passed a rung, a job goes on from it only if it is among the best third there."""
    reached = iterations_of(flat_jobs([5.0, 4.0, 3.0, 9.0, 8.0, 2.0]), SuccessiveHalving(first_rung=3, eta=3))
    assert reached["job-3"] < 9  # of the four that came to the first rung, three were better
    assert reached["job-4"] < 9
    assert reached["job-5"] == 30  # the best of all
    assert reached["job-0"] >= 9  # the first to come had nobody to be worse than


def test_a_job_stopped_at_a_rung_ends_as_cancelled() -> None:
    """Successive halving ends jobs as a user would: cancelled, not failed, and nothing of them goes on."""
    workload = flat_jobs([1.0, 2.0, 3.0])
    run = Simulation(workload=workload, policy="fair", capacity=64, referee=SuccessiveHalving()).run()
    ends = {
        job.spec.id: event.state
        for job in workload
        for event in run.history.events(job.spec.id)
        if isinstance(event, JobEnded)
    }
    assert ends == {"job-0": JobState.COMPLETED, "job-1": JobState.CANCELLED, "job-2": JobState.CANCELLED}


@pytest.mark.parametrize("name", PRUNERS)
def test_a_pruner_of_optuna_stops_jobs(name: str) -> None:
    """Optuna's pruners learn from jobs that complete, stop later ones that are worse, and never the best."""
    workload = flat_jobs([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    referee = OptunaPruner.of(name, 30, seed=1)
    run = Simulation(workload=workload, policy="fifo", capacity=1, referee=referee).run()
    ends = [
        event.state
        for job in workload
        for event in run.history.events(job.spec.id)
        if isinstance(event, JobEnded)
    ]
    assert ends[0] is JobState.COMPLETED
    assert JobState.CANCELLED in ends[1:]


def test_a_real_search_is_measured_by_its_best_variant() -> None:
    """The variant with the lowest loss in any way is the best; it counts as found within 1% of its range."""
    losses = {"a": [(1.0, 1.0), (2.0, 0.2), (3.0, 0.1)], "b": [(1.0, 1.0), (5.0, 0.005), (6.0, 0.0)]}
    later = {name: [(10 + at, loss) for at, loss in curve[:2]] for name, curve in losses.items()}
    ways = {"queue": {"losses": losses}, "slaq, best-first": {"losses": later}}
    found = summary([{"ways": ways}], 2)
    assert found["best"] == "b"
    assert [way["found"] for way in found["orders"][0]["ways"].values()] == [5.0, 15.0]


@pytest.mark.parametrize("policy", UNASKING)
def test_policies_that_ask_no_forecast_do_the_same_with_any(policy: str) -> None:
    """Under a policy named as unasking, slaq's forecaster and the cheapest one give the same run."""
    workload = Load(seed=7, jobs=12, mean_arrival=2.0, curves=CURVES).workload()
    assert forecaster_for(policy) != "slaq"
    cheap, dear = (
        Simulation(workload=workload, policy=policy, capacity=UNITS, forecaster=forecaster).run().outcome
        for forecaster in (forecaster_for(policy), "slaq")
    )
    assert cheap.mean_active > 2
    assert {**cheap.as_json(), "decision_ms": None} == {**dear.as_json(), "decision_ms": None}
    assert cheap.loss.tolist() == dear.loss.tolist()


def test_the_same_seed_gives_the_same_jobs() -> None:
    """A load and a search are decided by their seeds alone."""
    load = Load(seed=7, jobs=5, curves=CURVES)
    assert load.workload() == load.workload()
    assert load.workload() != Load(seed=8, jobs=5, curves=CURVES).workload()
    search = Search(seed=3, count=4, recorded=None)
    assert search.workload() == search.workload()
    assert len(search.workload()) == 4


def test_loads_follow_the_recorded_curves_or_generated_ones(tmp_path: Path) -> None:
    """Jobs follow the curves recorded beside the experiments; where there are none, generated ones."""
    recorded = {tuple(curve.losses) for curve in recorded_curves(CURVES)}
    jobs = Load(seed=1, jobs=9, curves=CURVES).workload()
    assert all(tuple(job.losses) in recorded for job in jobs)
    without = Load(seed=1, jobs=9, curves=tmp_path).workload()
    assert not any(tuple(job.losses) in recorded for job in without)
    assert len({load.seed for load in loads(Settings(seeds=(1, 2)))}) == 2


def test_noise_spares_the_first_loss_and_nothing_else() -> None:
    """Noise on losses changes every loss but the one before the first iteration."""
    load = Load(seed=2, jobs=3, curves=CURVES)
    plain = load.workload()
    history = Arm(policy="fair", loss_noise=0.05).run(plain, load.seed).history
    for job in plain:
        events = [e for e in history.events(job.spec.id) if isinstance(e, LossObserved)]
        seen = np.array([event.observation.loss for event in events])
        assert seen[0] == job.losses[0]
        assert (seen[1:] != job.losses[1:]).all()


def test_other_work_keeps_the_cost_of_what_it_replaces() -> None:
    """The mix has as many jobs and as much work as what it is made of; every second has a reservation."""
    plain = Load(seed=1, jobs=16, curves=CURVES).workload()
    mix = mixed(plain)
    assert len(mix) == 16
    assert sum(job.total_cpu_seconds for job in mix) == pytest.approx(
        sum(job.total_cpu_seconds for job in plain)
    )
    other = [job.spec for job in mix if not job.spec.trains]
    assert [spec.reserved for spec in other] == [24, None, 24, None]


@pytest.mark.parametrize("policy", ["fair", "total-quality"])
def test_other_work_holds_what_it_is_due(policy: str) -> None:
    """Over its run, other work holds its fair share or reservation to within a few percent."""
    found = one((Load(seed=1, jobs=24, mean_arrival=3.0, curves=CURVES), policy))
    deviations = np.abs([*found["fair share"], *found["reservation"]])
    assert len(deviations) >= 4
    assert deviations.max() < 0.05


def test_the_busiest_day_is_read_from_the_trace(tmp_path: Path) -> None:
    """The day with most jobs is chosen; arrivals count from its midnight, and no job is longer than a day."""
    text = (
        "timestamp,duration,num_gpus,cluster\n"
        "2017-10-01 00:00:10,50.0,1,a\n"
        "2017-10-02 01:00:00,100000.0,2,a\n"
        "2017-10-02 00:00:05,60.0,4,b\n"
        "2017-10-02 09:00:00,0.0,1,b\n"
    )
    with gzip.open(tmp_path / "philly_jobs.csv.gz", "wt") as file:
        file.write(text)
    date, requests = busiest_day(tmp_path)
    assert date == "2017-10-02"
    assert [(r.arrival, r.gpus, r.seconds) for r in requests] == [(5.0, 4, 60.0), (3600.0, 2, DAY)]


def test_a_binned_series_keeps_its_mean() -> None:
    """Means over equal spans of evenly spaced values have the mean of the values, and NaN does not count."""
    times = np.arange(100.0)
    values = np.where(times == 3, np.nan, times)
    series = binned(times, values, points=10)
    assert len(series["values"]) == 10
    assert np.mean(series["values"]) == pytest.approx(49.5, abs=0.2)
    assert binned(np.empty(0), np.empty(0)) == {"times": [], "values": []}


def probed(*runs: dict[int, float]) -> dict[str, dict[str, dict[str, list[float | None]]]]:
    """Return one seed's times to whole percents of accuracy, under fair sharing and under slaq."""
    return {
        policy: {"probe": {"percents": [run.get(mark) for mark in range(101)]}}
        for policy, run in zip(("fair", "total-quality"), runs, strict=True)
    }


def test_accuracy_is_told_as_far_as_every_run_came() -> None:
    """The last mark is the most that every run reached, at most the paper's; those before it are known in all."""
    to_88 = {mark: float(mark) for mark in range(89)}
    to_95 = {mark: 2.0 * mark for mark in range(96)}
    assert accuracy_marks([probed(to_88, to_95), probed(to_95, to_95)]) == [60, 70, 80, 85, 86, 87, 88]
    assert accuracy_marks([probed(to_95, to_95)])[-1] == 90
    low = accuracy_marks([probed(dict.fromkeys(range(43), 1.0), to_88)])
    assert low == [42]
    assert sooner([probed(to_88, to_95), probed(to_88, to_88)], 80)["mean"] == pytest.approx(0.5)
