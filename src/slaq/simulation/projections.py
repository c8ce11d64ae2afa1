"""Project the future losses of started and queued jobs from their forecasts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slaq.core.appraisal import Appraisal, Appraiser
from slaq.core.arrays import Floats
from slaq.core.gain import KNOTS
from slaq.core.job import JobSpec
from slaq.core.roster import STOP_AT, Roster
from slaq.core.trajectories import START_POWER, ends
from slaq.simulation.workload import SimulatedJob, Workload

#: The most losses in a projection; for a job that could report more, one loss stands for several iterations.
MOST_LOSSES = 256
#: The half-width of an 80% interval of a normal distribution, in standard deviations.
_NORMAL_80 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One job with its future losses, beginning with its last loss, and the losses they are normalised by."""

    job: SimulatedJob
    #: Iterations that one of these losses stands for.
    stride: int
    #: First and best loss so far, and the end of the curve; NaN for a job that reports no loss.
    first: float
    best: float
    end: float
    #: The loss at which the target is reached; NaN without a target.
    goal: float

    @property
    def competes(self) -> bool:
        """Whether the job reports losses."""
        return self.job.spec.trains


@dataclass(frozen=True, slots=True, kw_only=True)
class Projections:
    """The projections of all jobs by id: started jobs, then queued jobs."""

    jobs: Mapping[str, Projection]

    @property
    def workload(self) -> Workload:
        """The workload for a simulated engine."""
        return Workload(tuple(projection.job for projection in self.jobs.values()))

    def adapt(self, roster: Roster) -> None:
        """Set the strides of the roster to those of these projections."""
        for job_id, row in roster.ids.items():
            one = np.array([row])
            while roster.stride[row] < self.jobs[job_id].stride:
                roster.widen(one)
            stride = roster.stride[row]
            roster.runtime.cpu[row] *= stride
            roster.runtime.serial[row] *= stride
            roster.observed[row] = math.ceil(roster.observed[row] / stride)
            roster.stride[row] = 1
            roster.begun[row] = 0
            roster.begun_sum[row] = 0.0


def project(
    roster: Roster,
    queued: Sequence[JobSpec],
    *,
    horizon: float,
    capacity: tuple[Appraiser, float],
    ends: tuple[Mapping[str, int], Mapping[str, float]] = ({}, {}),
    rng: np.random.Generator | None = None,
) -> Projections:
    """Return the projections of the jobs, long enough for `horizon` seconds with any part of the capacity.

    `ends` are iterations after which jobs end, and shares of their reduction at which they are ended. With an `rng`
    each job takes a trajectory drawn from its forecast; without, the mean. `capacity` is the most cores that are
    played with, and the appraiser that counts them.
    """
    resumed = roster.paused.copy()
    roster.paused[:] = False
    appraiser, cores = capacity
    appraisal = appraiser.appraise(roster, cores, 0.0)
    roster.paused[:] = resumed
    paths = _paths(roster, appraisal, rng)
    projector = _Projector(roster, appraisal, horizon, ends, rng)
    jobs = {
        job_id: projector.under_way(place, job_id, paths[place])
        for place, job_id in enumerate(appraisal.candidates.ids)
    }
    usual = float(np.median(appraisal.cpu)) if len(appraisal.cpu) else 1.0
    for spec in queued:
        if spec.id not in jobs:
            jobs[spec.id] = projector.queued(spec, usual)
    return Projections(jobs=jobs)


def _paths(roster: Roster, appraisal: Appraisal, rng: np.random.Generator | None) -> Floats:
    """Return each job's losses to come at KNOTS, counted in its strides; never rising."""
    forecasts, rows = appraisal.forecasts, appraisal.rows
    paths = forecasts.mean
    if rng is not None:
        apart = rng.standard_normal((len(rows), 1)) / _NORMAL_80
        half = np.where(
            apart > 0, forecasts.below - forecasts.below[:, :1], forecasts.above - forecasts.above[:, :1]
        )
        paths = paths - apart * half
    fresh = roster.observed[rows] < 2
    start = np.where(roster.observed[rows] > 0, roster.last[rows], 1.0)
    scale = np.where(start == 0.0, 1.0, np.abs(start))
    begun = start[:, None] - scale[:, None] * (1.0 - (1.0 + KNOTS) ** -START_POWER)
    return np.minimum.accumulate(np.where(fresh[:, None], begun, paths), axis=1)


class _Projector:
    """Turns paths into projections."""

    def __init__(
        self,
        roster: Roster,
        appraisal: Appraisal,
        horizon: float,
        ends_given: tuple[Mapping[str, int], Mapping[str, float]],
        rng: np.random.Generator | None,
    ) -> None:
        self.roster = roster
        self.appraisal = appraisal
        self.horizon = horizon
        self.iterations_left, self.stop_at = ends_given
        self.rng = rng
        #: Cores there are.
        self.capacity = appraisal.capacity * appraisal.candidates.unit
        self.ends = ends(roster, appraisal.rows, appraisal.forecasts)

    def under_way(self, place: int, job_id: str, path: Floats) -> Projection:
        """Return the projection of a started job."""
        roster, row = self.roster, int(self.appraisal.rows[place])
        spec = _spec(roster, job_id, row)
        if not spec.trains:
            return self._other(spec)
        cpu, serial = (
            float(self.appraisal.cpu[place]),
            float(roster.runtime.steady_serial(np.array([row]))[0]),
        )
        stride = self._stride(spec, cpu, serial, int(roster.stride[row]))
        noise = self.appraisal.forecasts.below[place, 0] + self.appraisal.forecasts.above[place, 0]
        heard = roster.observed[row] > 0
        first = float(roster.first[row]) if heard else float(path[0])
        best = float(roster.best[row]) if heard else first
        foreseen = roster.observed[row] >= 2
        end = min(float(self.ends[place]) if foreseen else float(path[-1]), best)
        losses = self._losses(spec, stride, path, int(roster.stride[row]), (first, end))
        if self.rng is not None and foreseen:
            losses[1:] += self.rng.normal(0.0, noise / 2 / _NORMAL_80, len(losses) - 1)
        if roster.diverged[row]:
            losses[1:] = np.nan
        return self._projection(spec, losses, stride, (cpu, serial), (first, best, end))

    def queued(self, spec: JobSpec, cpu: float) -> Projection:
        """Return the projection of a queued job: the usual curve of a new job, at the mean cost of the others."""
        if not spec.trains:
            return self._other(spec)
        stride = self._stride(spec, cpu, 0.0, 1)
        path = (1.0 + KNOTS) ** -START_POWER
        losses = self._losses(spec, stride, path, 1, (1.0, float(path[-1])))
        return self._projection(spec, losses, stride, (cpu, 0.0), (1.0, 1.0, float(path[-1])))

    def _stride(self, spec: JobSpec, cpu: float, serial: float, least: int) -> int:
        """Return the iterations per loss, so that the projection has at most MOST_LOSSES losses."""
        most = self.capacity if spec.demand.most is None else min(spec.demand.most, self.capacity)
        iterations = self.horizon / max(serial + cpu / most, 1e-12)
        stride = least
        while iterations / stride > MOST_LOSSES:
            stride *= 2
        return stride

    def _losses(
        self, spec: JobSpec, stride: int, path: Floats, known_in: int, trajectory: tuple[float, float]
    ) -> Floats:
        """Return the future losses, one per stride, until the job ends or the horizon is reached."""
        first, end = trajectory
        count = MOST_LOSSES + 2
        left = self.iterations_left.get(spec.id)
        if left is not None:
            count = min(count, max(math.ceil(left / stride), 1))
        at = np.arange(count + 1) * (stride / known_in)
        losses: Floats = np.interp(at, KNOTS, path)
        share = self.stop_at.get(spec.id)
        if share is not None:
            enough = (losses[1:] <= first - share * (first - end)).nonzero()[0]
            losses = losses[: enough[0] + 2] if len(enough) else losses
        return losses

    def _projection(
        self,
        spec: JobSpec,
        losses: Floats,
        stride: int,
        cost: tuple[float, float],
        trajectory: tuple[float, float, float],
    ) -> Projection:
        first, best, end = trajectory
        goal = math.nan if spec.target_loss is None else spec.target_loss
        share = STOP_AT if spec.stop_at is None and spec.deadline is not None else spec.stop_at
        if spec.target_loss is None and share is not None:
            goal = first - share * (first - end)
        cpu, serial = cost
        job = SimulatedJob(
            spec=spec,
            losses=losses,
            cpu_seconds_per_iteration=cpu * stride,
            serial_seconds_per_iteration=serial * stride,
        )
        return Projection(job=job, stride=stride, first=first, best=best, end=end, goal=goal)

    def _other(self, spec: JobSpec) -> Projection:
        """Return the projection of a job without losses: it runs beyond the horizon, because its end is unknown."""
        lasting = 2.0 * self.capacity * self.horizon + 1.0
        job = SimulatedJob(spec=spec, cpu_seconds=lasting)
        return Projection(job=job, stride=1, first=math.nan, best=math.nan, end=math.nan, goal=math.nan)


def _spec(roster: Roster, job_id: str, row: int) -> JobSpec:
    """Return the spec of a job of the roster."""
    owners = {number: name for name, number in roster.owners.items()}
    reserved, target, stop_at, deadline = (
        float(array[row]) for array in (roster.reserved, roster.target, roster.stop_at, roster.deadline)
    )
    return JobSpec(
        id=job_id,
        trains=bool(roster.competes[row]),
        weight=float(roster.weight[row]),
        demand=roster.demand(job_id),
        target_loss=None if math.isnan(target) else target,
        reserved=None if math.isnan(reserved) else reserved,
        owner=owners[int(roster.owner[row])],
        deadline=None if math.isinf(deadline) else deadline,
        stop_at=None if math.isnan(stop_at) else stop_at,
    )
