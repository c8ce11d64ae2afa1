"""An engine whose jobs follow recorded or generated curves on a virtual clock."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from typing_extensions import override

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.errors import CapacityError, DuplicateJobError, UnknownJobError
from slaq.core.events import CapacityChanged, EndForeseen, Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.ports import Clock, Engine
from slaq.simulation.workload import SimulatedJob, Workload

#: A constant number of cores, or (seconds, cores) pairs: the cores from each moment on.
Capacity = float | Sequence[tuple[float, float]]

# An iteration counts as finished within this share of it, because progress is a sum with rounding errors.
_TOLERANCE = 1e-9

# The shortest iteration, so that rates stay finite.
_SHORTEST_SECONDS = 1e-12


class SimulatedEngine(Engine):
    """Runs the jobs of a workload at the speed given by their cores.

    The law of progress: while a job holds n cores it does 1 / (serial + cpu / min(n, most)) iterations per second.
    Where its batch grows with its workers (`Demand.worth`), an iteration takes 1 + (n - 1) / worth times the CPU
    time on n > 1 of them. Progress within an iteration survives every resize. A job that reports no loss is one
    long iteration. If the capacity falls below the cores held, the cores of all jobs shrink at once in proportion,
    until the next grant.

    With `cost_noise` above 0, each iteration costs its job's mean times a log-normal factor of mean 1 with
    that sigma, drawn from `rng`. With `tells_ends` a training job reports with its first loss how many iterations
    it makes, as a program or a script does that knows it.
    """

    def __init__(
        self,
        workload: Workload,
        clock: Clock,
        capacity: Capacity,
        *,
        cost_noise: float = 0.0,
        rng: np.random.Generator | None = None,
        tells_ends: bool = True,
    ) -> None:
        self._clock = clock
        self._tells_ends = tells_ends
        self._time = clock.now()
        self._jobs = _Jobs(workload.jobs, _cost_factors(workload.jobs, cost_noise, rng))
        self._changes = deque(_schedule(capacity, self._time))
        self._capacity = 0.0
        while self._changes and self._changes[0][0] <= self._time:
            self._capacity = self._changes.popleft()[1]
        self._events: list[Event] = []
        self._running: Integers = np.empty(0, dtype=np.int64)

    @override
    def capacity(self) -> float:
        self._advance()
        return self._capacity

    @override
    def start(self, spec: JobSpec) -> None:
        self._advance()
        jobs = self._jobs
        row = jobs.row.get(spec.id)
        if row is None:
            raise UnknownJobError(spec.id)
        if jobs.started[row]:
            raise DuplicateJobError(spec.id)
        jobs.started[row] = jobs.running[row] = True
        jobs.observed_at[row] = self._time
        self._refresh()
        if jobs.reports[row]:
            loss = float(jobs.losses[jobs.first[row]])
            observation = Observation(iteration=0, loss=loss)
            self._events.append(LossObserved(job_id=spec.id, at=self._time, observation=observation))
            if self._tells_ends:
                iterations = int(jobs.last[row] - jobs.first[row])
                self._events.append(EndForeseen(job_id=spec.id, at=self._time, iterations=iterations))

    @override
    def stop(self, job_id: str) -> None:
        self._advance()
        row = self._jobs.row.get(job_id)
        if row is None or not self._jobs.running[row]:
            return
        self._events.append(
            JobEnded(job_id=job_id, at=self._time, state=JobState.CANCELLED, reason="stopped on request")
        )
        self._jobs.running[row] = False
        self._refresh()

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        self._advance()
        ids = self._jobs.ids
        held = [cores.get(ids[row], 0.0) for row in self._running.tolist()]
        self._resize(np.array(held, dtype=np.float64))

    @override
    def poll(self) -> Sequence[Event]:
        self._advance()
        events, self._events = self._events, []
        return events

    def _advance(self) -> None:
        """Advance all jobs to the clock's present time."""
        now = self._clock.now()
        while self._changes and self._changes[0][0] <= now:
            moment, capacity = self._changes.popleft()
            self._run(moment)
            if capacity != self._capacity:
                self._capacity = capacity
                self._events.append(CapacityChanged(at=moment, capacity=capacity))
                self._resize(self._jobs.cores[self._running])
        self._run(now)

    def _resize(self, cores: Floats) -> None:
        """Set the cores of the running jobs, limited by the capacity."""
        jobs, rows = self._jobs, self._running
        total = float(cores.sum())
        jobs.cores[rows] = held = cores if total <= self._capacity else cores * (self._capacity / total)
        width = np.minimum(held, jobs.most[rows])
        jobs.dearer[rows] = dearer = 1.0 + np.maximum(width - 1.0, 0.0) / jobs.worth[rows]
        with np.errstate(divide="ignore", over="ignore"):
            seconds = jobs.serial_seconds[rows] + jobs.cpu_seconds[rows] * dearer / width
            jobs.rate[rows] = 1.0 / np.maximum(seconds, _SHORTEST_SECONDS)

    def _run(self, until: float) -> None:
        """Advance the running jobs to `until` with the cores they hold."""
        jobs, rows = self._jobs, self._running
        elapsed = until - self._time
        if elapsed > 0 and rows.size:
            position = jobs.position[rows]
            after = position + elapsed * jobs.rate[rows]
            jobs.position[rows] = after
            reached = np.searchsorted(jobs.axis, jobs.shift[rows] + after + _TOLERANCE, side="right") - 1
            reached = np.minimum(reached, jobs.last[rows])
            busy = np.flatnonzero(reached > jobs.reached[rows])
            if busy.size:
                self._finish_iterations(rows[busy], position[busy], reached[busy], until)
        self._time = max(self._time, until)

    def _finish_iterations(self, rows: Integers, position: Floats, reached: Integers, until: float) -> None:
        """Report the iterations that these jobs finished between `position` and `reached`."""
        jobs = self._jobs
        count = reached - jobs.reached[rows]
        ends = np.cumsum(count)
        starts = ends - count
        row = np.repeat(rows, count)
        index = np.arange(ends[-1]) - np.repeat(starts - jobs.reached[rows] - 1, count)
        at = self._time + (jobs.work[index] - np.repeat(position, count)) / jobs.rate[row]
        at = np.clip(at, self._time, until)
        before = np.concatenate(([0.0], at[:-1]))
        before[starts] = jobs.observed_at[rows]
        cpu = jobs.cpu_seconds[row] * jobs.dearer[row] * (jobs.work[index] - jobs.work[index - 1])
        jobs.reached[rows] = reached
        jobs.observed_at[rows] = at[ends - 1]
        self._report(np.argsort(at, kind="stable"), row, index, at, cpu, at - before)
        if np.any(ended := reached == jobs.last[rows]):
            jobs.running[rows[ended]] = False
            self._refresh()

    def _report(
        self, order: Integers, row: Integers, index: Integers, at: Floats, cpu: Floats, wall: Floats
    ) -> None:
        jobs = self._jobs
        columns = (
            row,
            index - jobs.first[row],
            jobs.losses[index],
            at,
            cpu,
            wall,
            jobs.reports[row],
            index == jobs.last[row],
        )
        lists = (column[order].tolist() for column in columns)
        for number, iteration, loss, moment, cpu_used, passed, reports, final in zip(*lists, strict=True):
            job_id = jobs.ids[number]
            if reports:
                observation = Observation(
                    iteration=iteration, loss=loss, cpu_seconds=cpu_used, wall_seconds=passed
                )
                self._events.append(LossObserved(job_id=job_id, at=moment, observation=observation))
            if final:
                self._events.append(JobEnded(job_id=job_id, at=moment, state=JobState.COMPLETED))

    def _refresh(self) -> None:
        self._running = np.flatnonzero(self._jobs.running)


class _Jobs:
    """All jobs of a workload as arrays: a job is a row, and its curve a slice of the flat arrays.

    Work is counted in iterations of mean cost. The work of all jobs is laid end to end on one ascending axis, so
    that one search finds the last loss reached by every job.
    """

    def __init__(self, jobs: Sequence[SimulatedJob], factors: Iterable[Floats]) -> None:
        self.ids = tuple(job.spec.id for job in jobs)
        self.row = {job_id: row for row, job_id in enumerate(self.ids)}

        # Flat: shape (losses of all jobs,).
        curves = [_curve(job) for job in jobs]
        works = [np.concatenate(([0.0], np.cumsum(factor))) for factor in factors]
        sizes = np.array([len(curve) for curve in curves], dtype=np.int64)
        spans = np.array([work[-1] + 1.0 for work in works], dtype=np.float64)
        self.losses: Floats = np.concatenate([np.empty(0), *curves])
        #: Work done when each loss is reached, from 0 within each job.
        self.work: Floats = np.concatenate([np.empty(0), *works])

        # Shape (jobs,). Where its curve begins and ends in the flat arrays, and its work on the axis.
        self.first: Integers = np.cumsum(sizes) - sizes
        self.last: Integers = self.first + sizes - 1
        self.shift: Floats = np.cumsum(spans) - spans
        self.axis: Floats = self.work + np.repeat(self.shift, sizes)
        self.reports: Booleans = np.array([job.spec.trains for job in jobs], dtype=np.bool_)
        self.cpu_seconds: Floats = np.array(
            [job.cpu_seconds_per_iteration + job.cpu_seconds for job in jobs], dtype=np.float64
        )
        self.serial_seconds: Floats = np.array(
            [job.serial_seconds_per_iteration for job in jobs], dtype=np.float64
        )
        mosts = [job.spec.demand.most for job in jobs]
        self.most: Floats = np.array([np.inf if most is None else most for most in mosts], dtype=np.float64)
        worths = [job.spec.demand.worth for job in jobs]
        self.worth: Floats = np.array([np.inf if one is None else one for one in worths], dtype=np.float64)

        # The changing state; shape (jobs,). Cores, rate and position are valid only while a job runs.
        self.started: Booleans = np.zeros(len(jobs), dtype=np.bool_)
        self.running: Booleans = np.zeros(len(jobs), dtype=np.bool_)
        self.cores: Floats = np.zeros(len(jobs))
        #: How many times the CPU time of one worker an iteration takes.
        self.dearer: Floats = np.ones(len(jobs))
        #: Work per second.
        self.rate: Floats = np.zeros(len(jobs))
        #: Work done.
        self.position: Floats = np.zeros(len(jobs))
        #: The last loss reached, as an index into the flat arrays.
        self.reached: Integers = self.first.copy()
        #: The time of that loss.
        self.observed_at: Floats = np.zeros(len(jobs))


def _curve(job: SimulatedJob) -> Floats:
    return job.losses if job.spec.trains else np.full(2, np.nan)


def _cost_factors(
    jobs: Sequence[SimulatedJob], sigma: float, rng: np.random.Generator | None
) -> Iterable[Floats]:
    """Return the cost of each iteration of each job, relative to the job's mean."""
    lengths = [len(_curve(job)) - 1 for job in jobs]
    if sigma == 0:
        return [np.ones(length) for length in lengths]
    if rng is None:
        raise ValueError("cost_noise needs an rng to draw from")
    # exp(N(-sigma²/2, sigma²)) has mean 1.
    return [rng.lognormal(-(sigma**2) / 2, sigma, length) for length in lengths]


def _schedule(capacity: Capacity, now: float) -> list[tuple[float, float]]:
    if isinstance(capacity, int | float):
        capacity = [(now, capacity)]
    if not capacity:
        raise CapacityError("the schedule of capacity is empty")
    previous = -np.inf
    for moment, cores in capacity:
        if not moment > previous:
            raise CapacityError(f"the schedule of capacity goes from {previous:g} s to {moment:g} s")
        if not 0 <= cores < np.inf:
            raise CapacityError(f"a capacity of {cores} cores was asked for")
        previous = moment
    return list(capacity)
