"""The laws of every engine: subclass EngineContract and supply the `bench` fixture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from slaq.core.events import CapacityChanged, Event, JobEnded, JobLost, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.ports import Clock, Engine


@dataclass(kw_only=True)
class Bench:
    """An engine to try, with jobs that it can run: all that differs between one engine and another."""

    engine: Engine
    clock: Clock
    #: At least three jobs that train, each of several iterations, and that end by themselves within `patience`
    #: while each holds one core.
    specs: Sequence[JobSpec]
    #: Seconds between two polls: long enough for a task under way to end and be reported.
    step: float
    #: Seconds after which a job that has not ended counts as stuck.
    patience: float
    #: Makes the engine lose the first job, which runs; None for an engine that loses no jobs.
    lose: Callable[[], None] | None = None
    #: Every event so far.
    seen: list[Event] = field(default_factory=list)

    def poll(self) -> None:
        """Collect the events since the last poll; none may lie in the future."""
        events = self.engine.poll()
        assert all(event.at <= self.clock.now() for event in events)
        self.seen.extend(events)

    def wait(self) -> None:
        """Let one step pass and poll."""
        self.clock.sleep_until(self.clock.now() + self.step)
        self.poll()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let steps pass until the condition holds."""
        deadline = self.clock.now() + self.patience
        while not condition():
            assert self.clock.now() < deadline, f"still waiting after {self.patience} s"
            self.wait()

    def of(self, spec: JobSpec) -> list[Event]:
        """Return the events of one job so far."""
        return [
            event for event in self.seen if not isinstance(event, CapacityChanged) and event.job_id == spec.id
        ]

    def ends(self, spec: JobSpec) -> list[JobEnded]:
        """Return the ends of one job so far; more than one is a defect."""
        return [event for event in self.of(spec) if isinstance(event, JobEnded)]

    def iterations(self, spec: JobSpec) -> list[int]:
        """Return the iterations whose losses one job has reported so far."""
        return [event.observation.iteration for event in self.of(spec) if isinstance(event, LossObserved)]

    def run_to_end(self, *specs: JobSpec) -> None:
        """Start the jobs with one core each and wait until all have ended."""
        for spec in specs:
            self.engine.start(spec)
        self.engine.grant({spec.id: 1.0 for spec in specs})
        self.wait_until(lambda: all(self.ends(spec) for spec in specs))


class EngineContract:
    """The laws of `slaq.ports.Engine`."""

    @pytest.fixture
    def bench(self) -> Bench:
        """Return a fresh engine with no job started."""
        raise NotImplementedError

    def test_capacity_is_there_to_be_handed_out(self, bench: Bench) -> None:
        """An engine with hardware has cores to hand out."""
        assert bench.engine.capacity() > 0

    def test_no_job_runs_before_its_start(self, bench: Bench) -> None:
        """A grant to jobs that were not started does nothing."""
        bench.engine.grant({spec.id: 1.0 for spec in bench.specs})
        bench.wait()
        assert [event for spec in bench.specs for event in bench.of(spec)] == []

    def test_every_job_ends_once_and_reports_nothing_after_it(self, bench: Bench) -> None:
        """The last event of each job is its only JobEnded."""
        bench.run_to_end(*bench.specs)
        bench.wait()
        for spec in bench.specs:
            assert [end.state for end in bench.ends(spec)] == [JobState.COMPLETED]
            assert isinstance(bench.of(spec)[-1], JobEnded)

    def test_observations_come_in_the_order_of_iterations(self, bench: Bench) -> None:
        """Iterations strictly increase, and time never runs backwards, over all jobs together."""
        bench.run_to_end(*bench.specs)
        for spec in bench.specs:
            iterations = bench.iterations(spec)
            assert len(iterations) >= 2
            assert iterations == sorted(set(iterations))
        moments = [event.at for event in bench.seen]
        assert moments == sorted(moments)

    def test_observations_cost_time(self, bench: Bench) -> None:
        """CPU and wall seconds are never negative, and wall seconds add up to no more than the job's time."""
        spec = bench.specs[0]
        started = bench.clock.now()
        bench.run_to_end(spec)
        seen = [event.observation for event in bench.of(spec) if isinstance(event, LossObserved)]
        assert all(one.cpu_seconds >= 0 and one.wall_seconds >= 0 for one in seen)
        assert sum(one.wall_seconds for one in seen) <= bench.clock.now() - started + 1e-9

    def test_a_job_without_cores_does_not_iterate(self, bench: Bench) -> None:
        """From its start to its first grant a job finishes no iteration."""
        bench.engine.start(bench.specs[0])
        for _ in range(3):
            bench.wait()
        assert set(bench.iterations(bench.specs[0])) <= {0}
        assert bench.ends(bench.specs[0]) == []

    def test_a_job_no_longer_named_holds_nothing(self, bench: Bench) -> None:
        """After a grant that leaves it out a job comes to rest; a later grant lets it go on to its end."""
        rested, other = bench.specs[:2]
        bench.engine.start(rested)
        bench.engine.grant({rested.id: 1.0})
        bench.wait_until(lambda: len(bench.iterations(rested)) >= 1)
        bench.engine.start(other)
        bench.engine.grant({other.id: 1.0})
        bench.wait()
        before = bench.iterations(rested)
        for _ in range(3):
            bench.wait()
        assert bench.iterations(rested) == before
        assert bench.ends(rested) == []
        bench.engine.grant({rested.id: 1.0})
        bench.wait_until(lambda: bool(bench.ends(rested)))

    def test_poll_returns_every_event_once(self, bench: Bench) -> None:
        """No event is returned by two polls."""
        bench.run_to_end(*bench.specs)
        seen = [repr(event) for spec in bench.specs for event in bench.of(spec)]
        assert sorted(set(seen)) == sorted(seen)

    def test_a_stopped_job_ends_cancelled(self, bench: Bench) -> None:
        """`stop` leads to one JobEnded, cancelled, whether or not the job holds cores, called once or twice."""
        idle, busy, _ = bench.specs[:3]
        bench.engine.start(idle)
        bench.engine.start(busy)
        bench.engine.grant({busy.id: 1.0})
        for spec in (idle, busy, idle):
            bench.engine.stop(spec.id)
        bench.wait_until(lambda: bool(bench.ends(idle)) and bool(bench.ends(busy)))
        bench.engine.stop(idle.id)
        bench.wait()
        for spec in (idle, busy):
            assert [end.state for end in bench.ends(spec)] == [JobState.CANCELLED]
            assert isinstance(bench.of(spec)[-1], JobEnded)

    def test_a_lost_job_can_be_started_again(self, bench: Bench) -> None:
        """A JobLost is no end: nothing of the job runs until it is started again, and then it runs to its end."""
        if bench.lose is None:
            pytest.skip("this engine loses no jobs")
        spec = bench.specs[0]
        bench.engine.start(spec)
        bench.engine.grant({spec.id: 1.0})
        bench.wait_until(lambda: len(bench.iterations(spec)) >= 2)
        bench.lose()
        bench.wait_until(lambda: isinstance(bench.of(spec)[-1], JobLost))
        before = bench.of(spec)
        bench.wait()
        assert bench.of(spec) == before
        bench.run_to_end(spec)
        assert [end.state for end in bench.ends(spec)] == [JobState.COMPLETED]

    def test_ended_and_unknown_jobs_are_left_alone(self, bench: Bench) -> None:
        """Stopping or granting to such a job changes nothing."""
        spec = bench.specs[0]
        bench.run_to_end(spec)
        before = bench.of(spec)
        bench.engine.stop(spec.id)
        bench.engine.stop("nobody has this id")
        bench.engine.grant({spec.id: 1.0, "nobody has this id": 1.0})
        bench.wait()
        assert bench.of(spec) == before
