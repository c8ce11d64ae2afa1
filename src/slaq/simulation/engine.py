"""An engine whose jobs follow recorded or made-up curves on a virtual clock."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.errors import CapacityError, DuplicateJobError, UnknownJobError
from slaq.core.events import CapacityChanged, Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Kind, Observation
from slaq.ports import Clock, Engine
from slaq.simulation.workload import SimulatedJob, Workload

#: A number of units for ever, or (seconds, units) pairs: so many units from that moment on.
Capacity = int | Sequence[tuple[float, int]]

# An iteration counts as finished within this share of itself: progress is a sum of rounded parts.
_TOLERANCE = 1e-9

# No iteration is shorter, so that rates stay finite.
_SHORTEST_SECONDS = 1e-12

_NO_LIMIT = np.iinfo(np.int64).max


class SimulatedEngine(Engine):
    """Runs the jobs of a workload as fast as their units allow.

    The law of progress: while a job holds n units it does 1 / (serial + cpu / min(n, max_units)) of an
    iteration per second; what it has done of an iteration survives every resize. A job of kind OTHER is one
    long iteration without a loss. When capacity falls below what is held, everyone's units shrink at once
    and in proportion, and stay so until the next grant.

    With `cost_noise` above 0, each iteration costs its job's mean times a log-normal factor of mean 1 with
    that sigma, drawn from `rng`. A simulated job writes no checkpoint, so that it always starts afresh.
    """

    def __init__(
        self,
        workload: Workload,
        clock: Clock,
        capacity: Capacity,
        *,
        cost_noise: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._clock = clock
        self._time = clock.now()
        self._jobs = _Jobs(workload.jobs, _cost_factors(workload.jobs, cost_noise, rng))
        self._changes = deque(_schedule(capacity, self._time))
        self._capacity = 0
        while self._changes and self._changes[0][0] <= self._time:
            self._capacity = self._changes.popleft()[1]
        self._events: list[Event] = []
        self._running: Integers = np.empty(0, dtype=np.int64)

    @override
    def capacity(self) -> int:
        self._advance()
        return self._capacity

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
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
    def grant(self, allocation: Allocation) -> None:
        self._advance()
        rows = np.array([self._jobs.row.get(job_id, -1) for job_id in allocation.ids], dtype=np.int64)
        units = np.zeros(len(self._jobs.ids) + 1, dtype=np.int64)
        # What is granted to unknown jobs lands in the last element.
        units[rows] = allocation.units
        self._resize(units[self._running])

    @override
    def poll(self) -> Sequence[Event]:
        self._advance()
        events, self._events = self._events, []
        return events

    def _advance(self) -> None:
        """Bring everything from where it stood to the clock's present."""
        now = self._clock.now()
        while self._changes and self._changes[0][0] <= now:
            moment, capacity = self._changes.popleft()
            self._run(moment)
            if capacity != self._capacity:
                self._capacity = capacity
                self._events.append(CapacityChanged(at=moment, capacity=capacity))
                self._resize(self._jobs.units[self._running])
        self._run(now)

    def _resize(self, units: Integers) -> None:
        """Set the units of the running jobs, as far as the capacity allows."""
        jobs, rows = self._jobs, self._running
        jobs.units[rows] = held = _shrink(units, self._capacity)
        width = np.minimum(held, jobs.max_units[rows])
        with np.errstate(divide="ignore", over="ignore"):
            seconds = jobs.serial_seconds[rows] + jobs.cpu_seconds[rows] / width
            jobs.rate[rows] = 1.0 / np.maximum(seconds, _SHORTEST_SECONDS)

    def _run(self, until: float) -> None:
        """Let the running jobs work until then with the units they hold."""
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
        """Report the iterations that these jobs finished on their way from `position` to `reached`."""
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
        cpu = jobs.cpu_seconds[row] * (jobs.work[index] - jobs.work[index - 1])
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
    """All jobs of a workload as arrays; a job is a row, and its curve a stretch of the flat arrays.

    Work is counted in iterations of mean cost. All jobs' work lies end to end on one ascending axis, so that
    one search tells for every job which loss it has reached.
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
        self.reports: Booleans = np.array([job.spec.kind is Kind.ML for job in jobs], dtype=np.bool_)
        self.cpu_seconds: Floats = np.array(
            [job.cpu_seconds_per_iteration + job.cpu_seconds for job in jobs], dtype=np.float64
        )
        self.serial_seconds: Floats = np.array(
            [job.serial_seconds_per_iteration for job in jobs], dtype=np.float64
        )
        self.max_units: Integers = np.array(
            [_NO_LIMIT if job.spec.max_units is None else job.spec.max_units for job in jobs], dtype=np.int64
        )

        # What changes; shape (jobs,). Units, rate and position mean something only while a job runs.
        self.started: Booleans = np.zeros(len(jobs), dtype=np.bool_)
        self.running: Booleans = np.zeros(len(jobs), dtype=np.bool_)
        self.units: Integers = np.zeros(len(jobs), dtype=np.int64)
        #: Work per second.
        self.rate: Floats = np.zeros(len(jobs))
        #: Work done.
        self.position: Floats = np.zeros(len(jobs))
        #: The last loss reached, as an index into the flat arrays.
        self.reached: Integers = self.first.copy()
        #: When that was.
        self.observed_at: Floats = np.zeros(len(jobs))


def _curve(job: SimulatedJob) -> Floats:
    return job.losses if job.spec.kind is Kind.ML else np.full(2, np.nan)


def _cost_factors(
    jobs: Sequence[SimulatedJob], sigma: float, rng: np.random.Generator | None
) -> Iterable[Floats]:
    """Return for each job what each of its iterations costs, relative to the job's mean."""
    lengths = [len(_curve(job)) - 1 for job in jobs]
    if sigma == 0:
        return [np.ones(length) for length in lengths]
    if rng is None:
        raise ValueError("cost_noise needs an rng to draw from")
    # exp(N(-sigma²/2, sigma²)) has mean 1.
    return [rng.lognormal(-(sigma**2) / 2, sigma, length) for length in lengths]


def _schedule(capacity: Capacity, now: float) -> list[tuple[float, int]]:
    if isinstance(capacity, int):
        capacity = [(now, capacity)]
    if not capacity:
        raise CapacityError("the schedule of capacity is empty")
    previous = -np.inf
    for moment, units in capacity:
        if not moment > previous:
            raise CapacityError(f"the schedule of capacity goes from {previous:g} s to {moment:g} s")
        if units < 0:
            raise CapacityError(f"a capacity of {units} units was asked for")
        previous = moment
    return list(capacity)


def _shrink(units: Integers, capacity: int) -> Integers:
    """Return the units cut in proportion until they fit; the largest remainders, then the first, keep one."""
    total = int(units.sum())
    if total <= capacity:
        return units
    fitted, remainder = np.divmod(units * capacity, total)
    fitted[np.argsort(-remainder, kind="stable")[: capacity - int(fitted.sum())]] += 1
    return fitted
