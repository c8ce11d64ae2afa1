"""Laws of the epoch loop, run whole on the simulator."""

import ast
import queue
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typing_extensions import override

import slaq
from slaq.bootstrap import POLICIES, make_forecaster, make_policy, simulate
from slaq.core.admission import Admission, MostJobs
from slaq.core.appraisal import Appraiser
from slaq.core.demand import Demand
from slaq.core.errors import UnknownNameError
from slaq.core.events import JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.core.roster import Roster
from slaq.core.sharing import water_fill
from slaq.engines.clock import WallClock
from slaq.ports import Clock
from slaq.scheduler import Scheduler
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import SimulatedEngine
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.workload import SimulatedJob, Workload
from slaq.stores.memory import MemoryStore


def small(count: int = 12, seed: int = 0) -> Workload:
    return generate(
        count,
        np.random.default_rng(seed),
        WorkloadShape(mean_arrival=4.0, median_cpu_seconds=200, max_cores=16),
    )


def short(*ids: str) -> Workload:
    """Return jobs that all arrive at once and run for four seconds on the two cores that each can use."""
    return Workload(
        tuple(
            SimulatedJob(
                spec=JobSpec(id=job_id, demand=Demand(most=2.0)),
                losses=1.0 / (1.0 + np.arange(6.0)),
                cpu_seconds_per_iteration=1.6,
            )
            for job_id in ids
        )
    )


def scheduler_of(
    workload: Workload, clock: Clock, *, epoch_seconds: float = 1.0, admission: Admission | None = None
) -> Scheduler:
    """Return a scheduler of these jobs on sixteen simulated cores."""
    return Scheduler(
        engine=SimulatedEngine(workload, clock, 16),
        store=MemoryStore(workload.specs),
        clock=clock,
        policy=make_policy("fair"),
        appraiser=Appraiser(epoch_seconds=epoch_seconds),
        roster=Roster(make_forecaster("slaq")),
        admission=admission or Admission(),
    )


def ends(scheduler: Scheduler, workload: Workload) -> list[tuple[str, JobState]]:
    """Return which jobs have ended and how, by the moments of their ends."""
    assert isinstance(scheduler.store, MemoryStore)
    events = [event for spec in workload.specs for event in scheduler.store.events(spec.id)]
    ended = [event for event in events if isinstance(event, JobEnded)]
    return [(event.job_id, event.state) for event in sorted(ended, key=lambda event: event.at)]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_finishes_every_job(policy: str) -> None:
    """Whatever the policy, all jobs end, and no epoch hands out more than there is."""
    run = simulate(small(), policy=policy, capacity=16, epoch_seconds=1.0)
    assert run.outcome.unfinished == 0
    for decision in run.history.decisions():
        assert decision.cores.sum() <= 16


@pytest.mark.parametrize("policy", ["fair", "total-quality", "clairvoyant"])
def test_the_same_workload_gives_the_same_run(policy: str) -> None:
    """Nothing is left to chance: two runs of one workload are alike to the last number."""
    first, second = (simulate(small(), policy=policy, capacity=16).outcome for _ in range(2))
    ours, theirs = first.as_json(), second.as_json()
    ours.pop("decision_ms"), theirs.pop("decision_ms")
    assert ours == theirs


def test_quality_comes_sooner_than_under_fair_sharing() -> None:
    """On a loaded cluster total-quality reaches 90% of the reduction in far less time than fair, with less loss."""
    workload = generate(60, np.random.default_rng(1), WorkloadShape(mean_arrival=10.0))
    fair, ours = (simulate(workload, policy=p, capacity=640).outcome for p in ("fair", "total-quality"))
    assert ours.time_to_90 < 0.6 * fair.time_to_90
    # Summed over the jobs of all epochs: the mean over active jobs also rises as jobs that have converged end.
    held = [np.nansum(each.loss * each.active) for each in (ours, fair)]
    assert held[0] < 0.6 * held[1]


def test_capacity_that_comes_and_goes() -> None:
    """Cores that vanish in mid-run slow the jobs down but lose none of them."""
    steady = simulate(small(), policy="total-quality", capacity=16, epoch_seconds=1.0).outcome
    shaky = simulate(
        small(), policy="total-quality", capacity=[(0, 16), (10, 2), (60, 16)], epoch_seconds=1.0
    )
    assert shaky.outcome.unfinished == 0
    assert shaky.outcome.makespan >= steady.makespan


def test_other_work_holds_its_fair_share_beside_training() -> None:
    """A job that trains nothing gets its fair share, to within one unit, in every epoch it runs."""
    etl = SimulatedJob(spec=JobSpec(id="etl", trains=False), cpu_seconds=150.0)
    workload = Workload((*small(6).jobs, etl))
    run = simulate(workload, policy="total-quality", capacity=20, epoch_seconds=1.0)
    limits = {spec.id: spec.demand.most or 20 for spec in workload.specs}
    for decision in run.history.decisions():
        if "etl" in decision.ids:
            limit = np.array([limits[job_id] for job_id in decision.ids])
            share = water_fill(np.ones(len(limit)), limit, 20)[decision.ids.index("etl")]
            assert abs(decision.cores[decision.ids.index("etl")] - share) <= decision.unit


class LateClock(VirtualClock):
    """A clock that oversleeps every third time."""

    naps = 0

    @override
    def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
        self.naps += 1
        super().sleep_until(moment + (7.3 if self.naps % 3 == 0 else 0.0))


def test_a_late_epoch_is_skipped() -> None:
    """After a late decision, the next one is at the next multiple of the epoch length; none is caught up."""
    decisions = [one for one in scheduler_of(small(4), LateClock()).epochs() if one is not None]
    assert len(decisions) > 5
    epochs = [decision.epoch for decision in decisions]
    assert epochs == sorted(set(epochs))
    slots = [int(decision.time) for decision in decisions]
    assert slots == sorted(set(slots))
    overslept = [decision.time % 1.0 > 0.0 for decision in decisions]
    assert any(overslept)
    assert not any(first and second for first, second in pairwise(overslept))


class ScriptedTime:
    """The module `time` for a clock of its own: time passes only where someone sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the present."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def test_a_woken_scheduler_decides_early_but_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the clock is woken, a tenth of an epoch passes between two decisions, and no more."""
    monkeypatch.setattr("slaq.engines.clock.time", ScriptedTime())
    clock = WallClock()
    scheduler = scheduler_of(small(4), clock, epoch_seconds=10.0)
    began: list[float] = []
    for _ in scheduler.epochs(stop=lambda: len(began) == 25):
        began.append(scheduler.began)
        clock.wake()
        clock.wake()
    assert began == pytest.approx([float(moment) for moment in range(25)])
    assert scheduler.epoch == 25


def test_whoever_sleeps_is_woken_from_another_thread() -> None:
    """A call of `wake` ends one sleep, whether it comes during that sleep or before it."""
    clock, slept = WallClock(), queue.Queue[int]()

    def sleep() -> None:
        for nap in range(2):
            clock.sleep_until(clock.now() + 3600.0)
            slept.put(nap)

    clock.wake()
    sleeper = threading.Thread(target=sleep, daemon=True)
    sleeper.start()
    assert slept.get(timeout=60) == 0
    assert slept.empty()
    clock.wake()
    assert slept.get(timeout=60) == 1
    sleeper.join(60)
    assert not sleeper.is_alive()


def test_the_lock_is_free_between_epochs() -> None:
    """The lock is held while an epoch is decided and dealt with, and free while the next one is waited for."""
    lock = threading.Lock()
    locked: list[bool] = []

    class WatchedClock(VirtualClock):
        @override
        def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
            locked.append(lock.locked())
            super().sleep_until(moment, earliest=earliest)

    for _ in scheduler_of(small(3), WatchedClock()).epochs(lock=lock):
        assert lock.locked()
    assert len(locked) > 3
    assert not any(locked)


def test_a_held_job_is_started_once_its_rule_lets_it() -> None:
    """With two jobs at a time, the others wait in order of arrival, each with a reason, and all complete."""
    workload = short("a", "b", "c", "d")
    rules = [MostJobs(lambda: 2)]
    scheduler = scheduler_of(workload, VirtualClock(), admission=Admission(rules))
    held: list[set[str]] = []
    for decision in scheduler.epochs():
        assert decision is None or len(decision.ids) <= 2
        assert set(scheduler.held().values()) <= {"waits because 2 jobs may run at a time"}
        held.append(set(scheduler.held()))
    waited = [group for group, before in zip(held, [set(), *held], strict=False) if group != before]
    assert waited == [{"c", "d"}, set()]
    assert [state for _, state in ends(scheduler, workload)] == [JobState.COMPLETED] * 4


def test_rules_are_evaluated_in_every_epoch() -> None:
    """Rules are evaluated in every epoch: a job starts in the first one in which no rule holds it back."""
    workload = short("a")
    most = [0]
    scheduler = scheduler_of(workload, VirtualClock(), admission=Admission([MostJobs(lambda: most[0])]))
    epochs = scheduler.epochs()
    for _ in range(3):
        assert next(epochs) is None
        assert scheduler.held() == {"a": "waits because no jobs may run now (concurrent is 0)"}
    most[0] = 1
    decision = next(epochs)
    assert decision is not None
    assert (decision.ids, scheduler.held()) == (("a",), {})
    assert len(list(epochs)) > 2
    assert ends(scheduler, workload) == [("a", JobState.COMPLETED)]


def test_a_job_starts_after_those_it_waits_for() -> None:
    """A job with `after` starts once all the named jobs have ended; its reason names the one it waits for."""
    first, second, last = short("first", "second", "last").jobs
    last = replace(last, spec=replace(last.spec, after=("first", "second")))
    second = replace(second, spec=replace(second.spec, after=("first",)))
    workload = Workload((last, second, first))
    scheduler = scheduler_of(workload, VirtualClock())
    said: list[str] = []
    together: set[tuple[str, ...]] = set()
    for decision in scheduler.epochs():
        together |= {decision.ids} if decision is not None else set()
        said += [scheduler.held()["last"]] if "last" in scheduler.held() else []
    assert together == {("first",), ("second",), ("last",)}
    assert list(dict.fromkeys(said)) == [
        "waits for job 'first' to complete",
        "waits for job 'second' to complete",
    ]
    assert [job_id for job_id, _ in ends(scheduler, workload)] == ["first", "second", "last"]


def test_a_job_does_not_wait_for_one_that_nobody_knows() -> None:
    """A name in `after` that is neither queued nor running is of a job that has ended."""
    (job,) = short("a").jobs
    workload = Workload((replace(job, spec=replace(job.spec, after=("long gone",))),))
    run = simulate(workload, policy="fair", capacity=4, epoch_seconds=1.0)
    assert run.outcome.unfinished == 0


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


def test_a_cluster_without_cores_waits() -> None:
    """With no capacity at first, jobs wait without harm and run once there is some."""
    run = simulate(small(4), policy="total-quality", capacity=[(0, 0), (20, 8)], epoch_seconds=1.0)
    assert run.outcome.unfinished == 0
    assert [decision.capacity for decision in run.history.decisions()][:3] == [0, 0, 0]


def test_there_is_one_loop() -> None:
    """Epochs are run by `Scheduler.epochs` alone: the service, clusters, simulations and replays use that."""
    source = Path(slaq.__file__).parent
    callers = [
        (path.relative_to(source).as_posix(), function.name)
        for path in sorted(source.rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr == "run_epoch"
    ]
    assert callers == [("scheduler.py", "epochs")]
