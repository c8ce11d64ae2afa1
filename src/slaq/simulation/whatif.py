"""Simulate the present jobs under other policies or capacities, with losses as forecast."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from slaq.core.allocation import Policy
from slaq.core.appraisal import Appraiser
from slaq.core.direction import minimizing
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec
from slaq.core.roster import Roster
from slaq.scheduler import Scheduler
from slaq.simulation.clock import VirtualClock
from slaq.simulation.projections import Projection, Projections, project
from slaq.simulation.replayed import ReplayedEngine, Tally

#: The most decisions in a replay; a horizon with more epochs is simulated with longer epochs.
MOST_EPOCHS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The present state of a cluster, in a form that can be sent to another process."""

    #: What `Roster.dump` returned.
    roster: bytes
    #: Seconds on the scheduler's clock.
    now: float
    epoch_seconds: float
    units_per_core: int = 1
    #: Queued jobs; each starts at its arrival, once the jobs that it comes after have ended.
    queued: tuple[JobSpec, ...] = ()
    #: If known: the iterations after which a job ends, and the share of its reduction at which it is stopped.
    iterations_left: Mapping[str, int] = field(default_factory=dict)
    stop_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One policy and capacity to simulate."""

    name: str
    policy: Policy
    #: Cores.
    capacity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReplay:
    """The results of one job; seconds count from now, None if beyond the horizon."""

    id: str
    owner: str
    seconds_to_90: float | None
    seconds_to_95: float | None
    #: When the job ends by itself.
    seconds_to_end: float | None
    #: Whether the job meets its deadline; None without a deadline, or if it lies beyond the horizon.
    in_time: bool | None
    #: The share of the whole reduction reached by the horizon.
    reduction: float
    #: Mean over the horizon.
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The results of all jobs under one alternative."""

    name: str
    #: Cores.
    capacity: float
    horizon: float
    #: Mean over time and over the started jobs of (best loss − end) / (first − end).
    mean_normalised_loss: float
    #: Jobs that have reached 90% and 95% of their reduction by the horizon, including those that already have.
    made_90: int
    made_95: int
    #: Mean seconds to 90% and 95% over the jobs that reach them under every alternative; None if there are none.
    mean_seconds_to_90: float | None
    mean_seconds_to_95: float | None
    #: Deadlines within the horizon, and how many of them are met.
    deadlines: int
    deadlines_made: int
    jobs: tuple[JobReplay, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "jobs"}
        jobs = [{name: getattr(job, name) for name in job.__slots__} for job in self.jobs]
        return plain | {"jobs": jobs}


def replay(
    situation: Situation, alternatives: Sequence[Alternative], *, horizon: float, seed: int | None = None
) -> list[Replay]:
    """Simulate the situation up to the horizon under each alternative, all with the same projections.

    Without a seed, every job follows the mean of its forecast. With a seed, each follows a random trajectory drawn
    from its forecast, with noise.
    """
    situation = replace(situation, queued=tuple(minimizing(spec) for spec in situation.queued))
    most = max((alternative.capacity for alternative in alternatives), default=1.0)
    rng = None if seed is None else np.random.default_rng(seed)
    projections = project(
        _restored(situation),
        situation.queued,
        horizon=horizon,
        capacity=(
            Appraiser(epoch_seconds=1.0, units_per_core=situation.units_per_core),
            max(most, 1.0 / situation.units_per_core),
        ),
        ends=(situation.iterations_left, situation.stop_at),
        rng=rng,
    )
    tallies = [_play(situation, projections, alternative, horizon) for alternative in alternatives]
    both = [_everywhere([tally.reached[share] for tally in tallies]) for share in (0, 1)]
    return [
        _replay(alternative, tally, projections, situation.now, horizon, both)
        for alternative, tally in zip(alternatives, tallies, strict=True)
    ]


def _restored(situation: Situation) -> Roster:
    roster = Roster(CurveForecaster())
    roster.restore(situation.roster)
    # It holds what jobs reported turned so that less is better, and so are they played.
    roster.maximize[:] = False
    return roster


def _play(situation: Situation, projections: Projections, alternative: Alternative, horizon: float) -> Tally:
    """Run the scheduler over the projections until the horizon."""
    clock = VirtualClock(situation.now)
    roster = _restored(situation)
    projections.adapt(roster)
    engine = ReplayedEngine(projections.workload, clock, alternative.capacity, tells_ends=False)
    tally = Tally(projections.jobs, situation.queued)
    length = max(situation.epoch_seconds, horizon / MOST_EPOCHS)
    scheduler = Scheduler(
        engine=engine,
        store=tally,
        clock=clock,
        policy=alternative.policy,
        appraiser=Appraiser(epoch_seconds=length, units_per_core=situation.units_per_core),
        roster=roster,
        next_multiple=math.floor(situation.now / length),
    )
    for job_id in roster.ids:
        engine.go_on(projections.jobs[job_id].job.spec)
        scheduler.admission.running.begin(projections.jobs[job_id].job.spec)
    end = situation.now + horizon
    for _ in scheduler.epochs(lambda: scheduler.idle() or clock.now() >= end):
        pass
    clock.sleep_until(end)
    tally.append(engine.poll())
    return tally


def _everywhere(reached: Sequence[Mapping[str, float]]) -> set[str]:
    """Return the jobs that occur in every mapping."""
    return set.intersection(*(set(one) for one in reached)) if reached else set()


def _replay(
    alternative: Alternative,
    tally: Tally,
    projections: Projections,
    now: float,
    horizon: float,
    both: Sequence[set[str]],
) -> Replay:
    jobs = tuple(_job_replay(projection, tally, now, horizon) for projection in projections.jobs.values())
    dated = [job.in_time for job in jobs if job.in_time is not None]
    means = [
        float(np.mean([max(reached[job_id] - now, 0.0) for job_id in common])) if common else None
        for reached, common in zip(tally.reached, both, strict=True)
    ]
    return Replay(
        name=alternative.name,
        capacity=alternative.capacity,
        horizon=horizon,
        mean_normalised_loss=tally.mean_loss,
        made_90=len(tally.reached[0]),
        made_95=len(tally.reached[1]),
        mean_seconds_to_90=means[0],
        mean_seconds_to_95=means[1],
        deadlines=len(dated),
        deadlines_made=sum(dated),
        jobs=jobs,
    )


def _job_replay(projection: Projection, tally: Tally, now: float, horizon: float) -> JobReplay:
    spec = projection.job.spec
    to_90, to_95 = (
        max(reached[spec.id] - now, 0.0) if spec.id in reached else None for reached in tally.reached
    )
    in_time = None
    if spec.deadline is not None and spec.deadline <= now + horizon and projection.competes:
        in_time = tally.at_target.get(spec.id, math.inf) <= spec.deadline
    ended = tally.ended.get(spec.id)
    return JobReplay(
        id=spec.id,
        owner=spec.owner,
        seconds_to_90=to_90,
        seconds_to_95=to_95,
        seconds_to_end=None if ended is None else ended - now,
        in_time=in_time,
        reduction=1.0 - tally.normalised(spec.id),
        cores=tally.core_seconds(spec.id, now + horizon) / horizon,
    )
