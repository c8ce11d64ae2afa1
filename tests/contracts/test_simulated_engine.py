"""The simulator's own laws: progress is exactly what the cores held allow."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.demand import Demand
from slaq.core.errors import CapacityError, DuplicateJobError, UnknownJobError
from slaq.core.events import CapacityChanged, EndForeseen, Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.simulation.clock import VirtualClock
from slaq.simulation.engine import Capacity, SimulatedEngine
from slaq.simulation.workload import SimulatedJob, Workload

FOREVER = 1e6


def job(
    name: str = "a",
    *,
    cost: float = 6.0,
    serial: float = 0.0,
    iterations: int = 4,
    most: float | None = None,
    worth: float | None = None,
) -> SimulatedJob:
    return SimulatedJob(
        spec=JobSpec(id=name, demand=Demand(most=most, worth=worth)),
        losses=1.0 / np.arange(1.0, iterations + 2.0),
        cpu_seconds_per_iteration=cost,
        serial_seconds_per_iteration=serial,
    )


class Run:
    """A simulated engine with all jobs started, and the events so far."""

    def __init__(
        self, *jobs: SimulatedJob, capacity: Capacity = 1e6, noise: float = 0.0, seed: int = 0
    ) -> None:
        self.clock = VirtualClock()
        self.engine = SimulatedEngine(
            Workload(jobs), self.clock, capacity, cost_noise=noise, rng=np.random.default_rng(seed)
        )
        self.events: list[Event] = []
        for one in jobs:
            self.engine.start(one.spec)

    def grant(self, **cores: float) -> None:
        self.engine.grant(cores)

    def until(self, moment: float) -> list[Event]:
        """Return the events from the last poll to that moment."""
        self.clock.sleep_until(moment)
        events = list(self.engine.poll())
        self.events += events
        return events

    def observations(self, name: str = "a") -> list[LossObserved]:
        return [one for one in self.events if isinstance(one, LossObserved) and one.job_id == name]

    def end(self, name: str = "a") -> float:
        (end,) = [one for one in self.events if isinstance(one, JobEnded) and one.job_id == name]
        return end.at


def test_the_loss_before_the_first_iteration_is_reported_at_the_start() -> None:
    """The loss before the first iteration needs no cores and costs nothing."""
    run = Run(job())
    event, end = run.until(0.0)
    assert isinstance(event, LossObserved)
    assert isinstance(end, EndForeseen)
    assert (event.at, event.observation.iteration, event.observation.loss) == (0.0, 0, 1.0)
    assert (event.observation.cpu_seconds, event.observation.wall_seconds) == (0.0, 0.0)


def test_an_iteration_is_seen_when_it_ends_with_its_exact_time_and_cost() -> None:
    """An iteration of 6 CPU seconds on 2 cores ends at 3 s, whenever it is polled."""
    run = Run(job())
    run.grant(a=2)
    run.until(2.9)
    assert len(run.observations()) == 1
    run.until(7.0)
    assert [one.at for one in run.observations()] == pytest.approx([0.0, 3.0, 6.0])
    assert [one.observation.wall_seconds for one in run.observations()] == pytest.approx([0.0, 3.0, 3.0])
    assert [one.observation.cpu_seconds for one in run.observations()] == [0.0, 6.0, 6.0]


def test_a_part_of_an_iteration_carries_over_a_resize() -> None:
    """Half an iteration on 2 cores and half on 1, after a pause: 1.5 s, then 3 s of work from 4 to 7."""
    run = Run(job())
    run.grant(a=2)
    run.until(1.5)
    run.grant()
    run.until(4.0)
    run.grant(a=1)
    run.until(7.0)
    assert [one.at for one in run.observations()] == pytest.approx([0.0, 7.0])
    assert run.observations()[1].observation.wall_seconds == pytest.approx(7.0)
    assert run.observations()[1].observation.cpu_seconds == 6.0


def test_workers_that_make_the_batch_larger_help_less_and_less() -> None:
    """Three workers that are worth four at most advance a job like two, and use the CPU time of three."""
    run = Run(job(worth=4.0))
    run.grant(a=3)
    run.until(FOREVER)
    assert run.end() == pytest.approx(4 * 6.0 / 2.0)
    assert [one.observation.cpu_seconds for one in run.observations()] == pytest.approx([0.0, *4 * [9.0]])


def test_cores_beyond_the_maximum_do_not_help() -> None:
    """A job limited to 2 cores runs on 5 as it does on 2."""
    run = Run(job(most=2.0))
    run.grant(a=5)
    run.until(FOREVER)
    assert run.end() == pytest.approx(4 * 3.0)


@given(
    cost=st.floats(0.01, 100),
    serial=st.sampled_from([0.0, 0.5]),
    cores=st.floats(0.1, 64),
    iterations=st.integers(1, 50),
)
def test_the_law_of_progress(cost: float, serial: float, cores: float, iterations: int) -> None:
    """At constant cores every iteration takes serial + cpu / cores, and the job ends with the last."""
    run = Run(job(cost=cost, serial=serial, iterations=iterations))
    run.grant(a=cores)
    run.until(FOREVER)
    seconds = serial + cost / cores
    assert [one.at for one in run.observations()] == pytest.approx(
        [seconds * k for k in range(iterations + 1)], rel=1e-6, abs=1e-9
    )
    assert run.end() == run.observations()[-1].at


@given(cost=st.floats(0.01, 100), cores=st.floats(0.1, 64), parts=st.integers(1, 30))
def test_an_iteration_that_ends_as_one_looks_is_seen(cost: float, cores: float, parts: int) -> None:
    """Rounding neither delays an observation nor dates one in the future, however progress is divided."""
    run = Run(job(cost=cost))
    run.grant(a=cores)
    for part in range(1, parts + 1):
        assert all(event.at <= run.clock.now() for event in run.until(cost / cores * part / parts))
    assert len(run.observations()) == 2


def test_the_first_iteration_is_timed_from_the_start_of_its_job() -> None:
    """The first iteration of a job that starts late is timed from its start."""
    clock, late = VirtualClock(), job()
    engine = SimulatedEngine(Workload((late,)), clock, 8)
    clock.sleep_until(5.0)
    engine.start(late.spec)
    engine.grant({"a": 2.0})
    clock.sleep_until(8.0)
    seen = [one for one in engine.poll() if isinstance(one, LossObserved)]
    assert [one.at for one in seen] == pytest.approx([5.0, 8.0])
    assert seen[1].observation.wall_seconds == pytest.approx(3.0)


@given(cores=st.lists(st.floats(0.5, 10), min_size=1, max_size=4), factor=st.integers(2, 5))
def test_times_the_cores_is_a_fraction_of_the_time(cores: list[float], factor: int) -> None:
    """Without a maximum, jobs on twice the cores take half the time."""
    names = [f"job{index}" for index in range(len(cores))]
    ends = []
    for scale in (1, factor):
        run = Run(*(job(name, cost=1.0 + index) for index, name in enumerate(names)))
        run.grant(**{name: scale * held for name, held in zip(names, cores, strict=True)})
        run.until(FOREVER)
        ends.append([run.end(name) for name in names])
    assert [factor * end for end in ends[1]] == pytest.approx(ends[0], rel=1e-6)


@given(
    steps=st.lists(
        st.tuples(st.floats(0.1, 5), st.sampled_from([0.0, 0.25, 1.0, 2.5, 8.0])), min_size=1, max_size=12
    ),
    noise=st.sampled_from([0.0, 0.5]),
)
def test_cpu_delivered_is_cpu_reported(steps: list[tuple[float, float]], noise: float) -> None:
    """Over any resizes, the CPU seconds of the iterations are those that the cores delivered."""
    run = Run(job(cost=7.3, iterations=6), noise=noise)
    granted = []
    moment = 0.0
    for seconds, cores in [*steps, (FOREVER, 3.0)]:
        run.grant(a=cores)
        granted.append((moment, cores))
        moment += seconds
        run.until(moment)
    end = run.end()
    limits = [*(at for at, _ in granted), moment]
    delivered = sum(
        cores * max(min(after, end) - before, 0.0)
        for (before, cores), after in zip(granted, limits[1:], strict=True)
    )
    reported = [one.observation for one in run.observations()]
    assert sum(one.cpu_seconds for one in reported) == pytest.approx(delivered, rel=1e-6)
    assert sum(one.wall_seconds for one in reported) == pytest.approx(end, rel=1e-6)


@given(moments=st.lists(st.floats(0, 60), max_size=20), noise=st.sampled_from([0.0, 0.5]))
def test_when_one_looks_changes_nothing(moments: list[float], noise: float) -> None:
    """Polling at other moments, or more often, gives the same events at the same times."""
    runs = []
    for looks in ([], sorted(moments)):
        run = Run(
            job("a", serial=0.2), job("b", cost=3.1), capacity=[(0.0, 8), (10.0, 3), (20.0, 9)], noise=noise
        )
        run.grant(a=5, b=3)
        for moment in looks:
            run.until(moment)
        run.until(FOREVER)
        runs.append(run.events)
    shape = [[(type(one), getattr(one, "job_id", None)) for one in events] for events in runs]
    assert shape[0] == shape[1]
    assert [one.at for one in runs[1]] == pytest.approx([one.at for one in runs[0]], rel=1e-6, abs=1e-6)


def test_events_of_one_poll_are_in_the_order_they_happened() -> None:
    """The events of jobs of different speed are ordered by time."""
    run = Run(job("slow", cost=5.0), job("fast", cost=2.0))
    run.grant(slow=1, fast=1)
    moments = [one.at for one in run.until(FOREVER)]
    assert moments == sorted(moments)


def test_other_work_ends_when_its_cpu_seconds_are_used() -> None:
    """Other work reports no loss, only its end."""
    run = Run(SimulatedJob(spec=JobSpec(id="a", trains=False), cpu_seconds=12.0))
    run.grant(a=4)
    assert run.until(2.9) == []
    assert run.until(5.0) == [JobEnded(job_id="a", at=3.0, state=JobState.COMPLETED)]


def test_capacity_follows_its_schedule() -> None:
    """Each change of capacity is reported once, at its moment, in the order of events."""
    run = Run(job(), capacity=[(0.0, 8), (4.0, 2), (5.0, 2), (9.0, 16)])
    assert run.engine.capacity() == 8
    run.grant(a=1)
    run.until(10.0)
    changes = [one for one in run.events if isinstance(one, CapacityChanged)]
    assert changes == [CapacityChanged(at=4.0, capacity=2), CapacityChanged(at=9.0, capacity=16)]
    assert [one.at for one in run.events] == sorted(one.at for one in run.events)
    assert run.engine.capacity() == 16


def test_capacity_before_the_first_entry_is_nothing() -> None:
    """Before the first entry of the schedule the capacity is 0."""
    run = Run(job(), capacity=[(5.0, 2)])
    assert run.engine.capacity() == 0
    run.grant(a=2)
    run.until(5.0)
    assert run.engine.capacity() == 2
    assert len(run.observations()) == 1


def test_vanished_cores_are_taken_from_everyone_in_proportion() -> None:
    """When half of 8 cores vanish at 6 s, 6 and 2 become 3 and 1, at once and until the next grant."""
    run = Run(job("a", cost=36.0), job("b", cost=12.0), capacity=[(0.0, 8), (6.0, 4), (7.0, 100)])
    run.grant(a=6, b=2)
    run.until(12.0)
    assert [one.at for one in run.observations("a")] == pytest.approx([0.0, 6.0])
    run.until(18.0)
    assert [one.at for one in run.observations("a")] == pytest.approx([0.0, 6.0, 18.0])
    assert [one.at for one in run.observations("b")] == pytest.approx([0.0, 6.0, 18.0])


@given(cores=st.lists(st.floats(0, 9), min_size=1, max_size=6), capacity=st.integers(0, 30))
def test_no_more_runs_than_the_capacity(cores: list[float], capacity: int) -> None:
    """Whatever is granted, the CPU delivered in a second is the capacity or what was granted, if less."""
    names = [f"job{index}" for index in range(len(cores))]
    run = Run(*(job(name, cost=0.01, iterations=5000) for name in names), capacity=capacity)
    run.grant(**dict(zip(names, cores, strict=True)))
    run.until(1.0)
    used = sum(one.observation.cpu_seconds for name in names for one in run.observations(name))
    assert used == pytest.approx(min(sum(cores), capacity), abs=0.01 * len(cores))


def test_noise_has_the_mean_it_should_and_repeats_with_its_seed() -> None:
    """The same seed gives the same events; over many iterations the mean cost is the requested one."""
    runs = []
    for seed in (1, 1, 2):
        run = Run(job(cost=2.0, iterations=20_000), noise=0.3, seed=seed)
        run.grant(a=1)
        runs.append(run.until(FOREVER))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    assert runs[0][-1].at / 20_000 == pytest.approx(2.0, rel=0.02)


def test_noise_needs_a_source() -> None:
    """Noise without a random generator is refused."""
    with pytest.raises(ValueError, match="rng"):
        SimulatedEngine(Workload((job(),)), VirtualClock(), 1, cost_noise=0.1)


def test_only_the_jobs_of_the_workload_can_start_and_only_once() -> None:
    """Starting an unknown job, or a job twice, raises an error that names the job."""
    run = Run(job())
    with pytest.raises(UnknownJobError, match="'b'"):
        run.engine.start(JobSpec(id="b"))
    with pytest.raises(DuplicateJobError, match="'a'"):
        run.engine.start(JobSpec(id="a"))


@pytest.mark.parametrize("capacity", [-1, [], [(0.0, 4), (0.0, 5)], [(3.0, 4), (1.0, 5)], [(0.0, -2)]])
def test_an_impossible_capacity_is_refused(capacity: Capacity) -> None:
    """A capacity that is negative, or a schedule that is empty or out of order, is refused."""
    with pytest.raises(CapacityError):
        SimulatedEngine(Workload((job(),)), VirtualClock(), capacity)


def test_extreme_costs_neither_overflow_nor_stall() -> None:
    """A job that costs next to nothing ends at once; a job of extreme cost runs on."""
    run = Run(job("a", cost=1e-306), job("b", cost=1e15, serial=1e15), job("c", cost=5e-324))
    run.grant(a=1, b=1, c=4)
    run.until(1000.0)
    assert (run.end("a"), run.end("c")) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert len(run.observations("b")) == 1


def test_a_clock_jumps_and_never_runs_back() -> None:
    """sleep_until moves a virtual clock forwards only."""
    clock = VirtualClock(5.0)
    moments = []
    for moment in (7.5, 3.0, 7.5, 8.0):
        clock.sleep_until(moment)
        moments.append(clock.now())
    assert moments == [7.5, 7.5, 7.5, 8.0]
    assert all(before <= after for before, after in pairwise(moments))
