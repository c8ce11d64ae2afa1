"""The outcome of a run under one policy: the numbers that policies are compared by, and the series behind them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.decision import Decision
from slaq.core.direction import turned
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec
from slaq.core.progress import is_number
from slaq.core.quality import best_so_far, first_and_best, normalised, times_to

#: The shares of a job's whole loss reduction whose times are measured.
REDUCTIONS = (0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)

#: The groups of the paper's Figure 8: the 25% of the active jobs with the highest normalised loss, the next
#: 25%, and the other 50%, which have nearly converged.
GROUPS = ("high", "medium", "low")
_GROUP_ENDS = (0.25, 0.5)

# The fewest active jobs that are divided into groups.
_FEWEST_TO_GROUP = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCurve:
    """The losses of one job over time, and its end."""

    spec: JobSpec
    #: When each loss was observed, in seconds on the scheduler's clock; ascending.
    times: Floats
    #: In the job's own sign, as its best.
    losses: Floats
    #: None if the job has not ended.
    ended_at: float | None = None
    #: The best loss of the job's whole curve if known, as in a simulation; else the best of these losses.
    final_best: float | None = None

    @property
    def falling(self) -> Floats:
        """The losses turned so that less is better."""
        return turned(self.losses, self.spec.maximize)

    @property
    def end(self) -> float | None:
        """The best loss of the whole curve if known, turned likewise."""
        return None if self.final_best is None else turned(self.final_best, self.spec.maximize)

    def standing(self) -> tuple[Floats, Floats]:
        """Return when the job's losses came, and its normalised best loss before the first and from each on."""
        known = is_number(self.falling)
        first, best = first_and_best(self.falling)
        best = best if self.end is None else min(best, self.end)
        return self.times[known], np.append(1.0, normalised(best_so_far(self.falling[known]), first, best))

    def loss_seconds(self, until: float) -> float:
        """Return the integral of the normalised best loss from arrival to end, or `until` if it has not ended."""
        end = until if self.ended_at is None else self.ended_at
        times, levels = self.standing()
        begins = np.clip(np.concatenate(([self.spec.arrival], times, [end])), self.spec.arrival, end)
        return float(np.diff(begins) @ levels)

    @classmethod
    def of(cls, spec: JobSpec, events: Iterable[Event], final_best: float | None = None) -> Self:
        """Return the curve of one job from its events."""
        times: list[float] = []
        losses: list[float] = []
        ended_at = None
        for event in events:
            if isinstance(event, LossObserved):
                times.append(event.at)
                losses.append(event.observation.loss)
            elif isinstance(event, JobEnded):
                ended_at = event.at
        return cls(
            spec=spec,
            times=np.array(times, dtype=np.float64),
            losses=np.array(losses, dtype=np.float64),
            ended_at=ended_at,
            final_best=final_best,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one policy; a number is NaN if there was nothing to measure."""

    policy: str
    epoch_seconds: float
    #: Mean over epochs of `loss`.
    mean_normalised_loss: float
    #: Mean seconds from arrival until each of REDUCTIONS, over the ML jobs that reached it.
    time_to: Floats
    #: Mean over the ML jobs of the integral of normalised loss over a job's life, in seconds.
    loss_seconds: float
    #: Mean seconds from arrival to end, over the jobs that ended.
    completion: float
    #: Mean over epochs of `active`.
    mean_active: float
    #: Seconds from the first arrival to the last end.
    makespan: float
    decision_ms_median: float
    decision_ms_p99: float
    #: Each group's mean share of the cores granted to training jobs, over epochs with enough jobs.
    share_by_group: Mapping[str, float]
    #: Jobs that had not ended.
    unfinished: int
    #: Seconds on the scheduler's clock; shape (epochs,).
    times: Floats
    #: Mean over the active ML jobs of (best loss so far - final best) / (first - final best): shape
    #: (epochs,), NaN in an epoch without one.
    loss: Floats
    #: The same with the maximum instead of the mean.
    worst_loss: Floats
    #: Active jobs of any kind; shape (epochs,).
    active: Integers
    #: Cores that each of GROUPS held; shape (epochs, 3).
    cores_by_group: Floats

    @property
    def time_to_90(self) -> float:
        """Mean seconds from arrival to 90% of a job's whole loss reduction."""
        return float(self.time_to[REDUCTIONS.index(0.9)])

    @property
    def time_to_95(self) -> float:
        """Mean seconds from arrival to 95% of a job's whole loss reduction."""
        return float(self.time_to[REDUCTIONS.index(0.95)])

    def as_json(self) -> dict[str, Any]:
        """Return the documented fields; None for a number that could not be measured."""
        return {
            "mean_normalised_loss": _rounded(self.mean_normalised_loss, 6),
            "time_to_90": _rounded(self.time_to_90, 3),
            "time_to_95": _rounded(self.time_to_95, 3),
            "loss_seconds": _rounded(self.loss_seconds, 3),
            "completion": _rounded(self.completion, 3),
            "makespan": _rounded(self.makespan, 3),
            "mean_active": _rounded(self.mean_active, 3),
            "decision_ms": {
                "median": _rounded(self.decision_ms_median, 4),
                "p99": _rounded(self.decision_ms_p99, 4),
            },
            "share_by_group": {group: _rounded(share, 4) for group, share in self.share_by_group.items()},
        }


def measure(
    policy: str, jobs: Sequence[JobCurve], decisions: Sequence[Decision], epoch_seconds: float
) -> Outcome:
    """Return the outcome of the decisions for the jobs.

    A job is active in an epoch if that epoch's decision contains it. Its loss in the epoch is the last one
    before the decision.
    """
    ml = [job for job in jobs if job.spec.trains]
    times = np.array([decision.time for decision in decisions], dtype=np.float64)
    active = np.array([len(decision.ids) for decision in decisions], dtype=np.int64)
    part = _participation(ml, decisions, active)
    normalised_loss = _normalised_losses(ml, part, times)
    loss = _mean_by_epoch(part, normalised_loss, len(decisions))
    cores_by_group, share_by_group = _group(part, normalised_loss, len(decisions))
    milliseconds = 1000.0 * np.array([decision.seconds for decision in decisions], dtype=np.float64)
    horizon = float(times[-1]) + epoch_seconds if decisions else math.nan
    return Outcome(
        policy=policy,
        epoch_seconds=epoch_seconds,
        mean_normalised_loss=_mean(loss),
        time_to=_mean_times(ml),
        loss_seconds=_mean(np.array([job.loss_seconds(horizon) for job in ml])),
        completion=_mean(_completions(jobs)),
        mean_active=_mean(active.astype(np.float64)),
        makespan=_makespan(jobs, horizon),
        decision_ms_median=float(np.median(milliseconds)) if decisions else math.nan,
        decision_ms_p99=float(np.quantile(milliseconds, 0.99)) if decisions else math.nan,
        share_by_group=share_by_group,
        unfinished=sum(job.ended_at is None for job in jobs),
        times=times,
        loss=loss,
        worst_loss=_most_by_epoch(part, normalised_loss, len(decisions)),
        active=active,
        cores_by_group=cores_by_group,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Participation:
    """The pairs of a training job and an epoch in which it was active, by ascending epoch."""

    epoch: Integers
    #: Index of the training job.
    job: Integers
    cores: Floats


def _participation(ml: Sequence[JobCurve], decisions: Sequence[Decision], active: Integers) -> _Participation:
    place = {job.spec.id: index for index, job in enumerate(ml)}
    job = np.fromiter(
        (place.get(job_id, -1) for decision in decisions for job_id in decision.ids),
        dtype=np.int64,
        count=int(active.sum()),
    )
    epoch = np.repeat(np.arange(len(decisions)), active)
    cores = np.concatenate([np.empty(0), *(decision.cores for decision in decisions)])
    known = job >= 0
    return _Participation(epoch=epoch[known], job=job[known], cores=cores[known])


def _normalised_losses(ml: Sequence[JobCurve], part: _Participation, times: Floats) -> Floats:
    """Return the normalised best loss so far of each pair; 1 before a job's first loss."""
    result = np.ones(len(part.job))
    by_job = np.argsort(part.job, kind="stable")
    ends = np.cumsum(np.bincount(part.job, minlength=len(ml)))
    for curve, pairs in zip(ml, np.split(by_job, ends[:-1]), strict=True) if ml else ():
        moments, levels = curve.standing()
        result[pairs] = levels[np.searchsorted(moments, times[part.epoch[pairs]], side="right")]
    return result


def _mean_by_epoch(part: _Participation, values: Floats, epochs: int) -> Floats:
    count = np.bincount(part.epoch, minlength=epochs)
    total = np.bincount(part.epoch, weights=values, minlength=epochs)
    mean: Floats = np.divide(total, count, out=np.full(epochs, np.nan), where=count > 0)
    return mean


def _most_by_epoch(part: _Participation, values: Floats, epochs: int) -> Floats:
    most = np.full(epochs, -np.inf)
    np.maximum.at(most, part.epoch, values)
    return np.where(np.isfinite(most), most, np.nan)


def _group(part: _Participation, loss: Floats, epochs: int) -> tuple[Floats, dict[str, float]]:
    """Return the cores of each group by epoch, and the mean of their shares.

    A job's group is given by (rank + 1/2) / jobs, so that the groups have their nominal sizes on average for any
    number of jobs.
    """
    order = np.lexsort((-loss, part.epoch))
    epoch = part.epoch[order]
    count = np.bincount(epoch, minlength=epochs)
    rank = np.arange(len(epoch)) - (np.cumsum(count) - count)[epoch]
    group = np.searchsorted(_GROUP_ENDS, (rank + 0.5) / count[epoch], side="right")
    size = len(GROUPS)
    held = np.bincount(epoch * size + group, weights=part.cores[order], minlength=epochs * size)
    cores: Floats = held.reshape(epochs, size).astype(np.float64)
    total = cores.sum(axis=1)
    counted = (count >= _FEWEST_TO_GROUP) & (total > 0)
    shares = cores[counted] / total[counted, np.newaxis]
    return cores, {name: _mean(shares[:, index]) for index, name in enumerate(GROUPS)}


def _mean_times(ml: Sequence[JobCurve]) -> Floats:
    waits = np.full((len(ml), len(REDUCTIONS)), np.nan)
    for row, job in zip(waits, ml, strict=True):
        row[:] = times_to(job.times, job.falling, REDUCTIONS, job.end) - job.spec.arrival
    return np.array([_mean(column) for column in waits.T])


def _completions(jobs: Sequence[JobCurve]) -> Floats:
    ended = [job.ended_at - job.spec.arrival for job in jobs if job.ended_at is not None]
    return np.array(ended, dtype=np.float64)


def _makespan(jobs: Sequence[JobCurve], horizon: float) -> float:
    if not jobs:
        return math.nan
    last = max(horizon if job.ended_at is None else job.ended_at for job in jobs)
    return last - min(job.spec.arrival for job in jobs)


def _mean(values: Floats) -> float:
    """Return the mean of the finite values; NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else math.nan


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None
