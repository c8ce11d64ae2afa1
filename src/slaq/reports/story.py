"""One job in detail: its losses, cores and forecasts under each policy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.direction import turned
from slaq.core.outcome import JobCurve
from slaq.core.quality import time_to
from slaq.ports import History

#: The job is chosen by its time to this share of its whole loss reduction.
TOLD_BY = 0.9
#: The charts end at this share, after which little changes.
NEARLY_ALL = 0.97


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """The job under one policy; times are seconds since its arrival."""

    #: When each loss was observed, and that loss: two arrays of one length.
    times: Floats
    losses: Floats
    #: When each decision about it was made, and the cores it was granted.
    decided: Floats
    cores: Floats
    #: The ends of the epochs, and the losses that were forecast for them with their 80% interval.
    forecast_times: Floats
    expected: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One job under every policy compared."""

    job_id: str
    #: The policy that the others are compared with.
    baseline: str
    #: The policy whose forecasts are shown.
    forecast_by: str
    chapters: Mapping[str, Chapter]
    #: Whether its losses are numbers that should rise.
    maximize: bool = False

    @property
    def until(self) -> float:
        """The seconds worth showing: until baseline and forecaster nearly finish their reduction; above zero."""
        shown = (self.chapters[policy] for policy in (self.baseline, self.forecast_by))
        ends = [
            time_to(chapter.times, turned(chapter.losses, self.maximize), NEARLY_ALL) for chapter in shown
        ]
        return 1.2 * max(ends) or 1.0


def tell(histories: Mapping[str, History], baseline: str) -> Story | None:
    """Return the story of a typical job; None if no job improved under both policies.

    Typical is the job whose time to 90% of its reduction changed by the median, in proportion, between the
    baseline and the first other policy; with one policy alone, the job whose time is the median.
    """
    told = next((policy for policy in histories if policy != baseline), baseline)
    job_id = _typical(histories[baseline], histories[told])
    if job_id is None:
        return None
    chapters = {policy: _chapter(history, job_id) for policy, history in histories.items()}
    chapters = {policy: chapter for policy, chapter in chapters.items() if chapter.times.size}
    spec = next(spec for spec in histories[baseline].jobs() if spec.id == job_id)
    return Story(
        job_id=job_id, baseline=baseline, forecast_by=told, chapters=chapters, maximize=spec.maximize
    )


def _typical(baseline: History, other: History) -> str | None:
    before, after = _times_to_reach(baseline), _times_to_reach(other)
    common = [job_id for job_id in before if job_id in after]
    if not common:
        return None
    if before == after:
        ranked = sorted(common, key=lambda job_id: (before[job_id], job_id))
    else:
        ranked = sorted(common, key=lambda job_id: (after[job_id] / before[job_id], job_id))
    return ranked[len(ranked) // 2]


def _times_to_reach(history: History) -> dict[str, float]:
    """Return the seconds from arrival to `TOLD_BY` of the reduction, for jobs that took some time to it."""
    times = {}
    for spec in history.jobs():
        if spec.trains:
            curve = JobCurve.of(spec, history.events(spec.id))
            elapsed = time_to(curve.times, curve.falling, TOLD_BY) - spec.arrival
            if 0.0 < elapsed < math.inf:
                times[spec.id] = elapsed
    return times


def _chapter(history: History, job_id: str) -> Chapter:
    spec = next(spec for spec in history.jobs() if spec.id == job_id)
    curve = JobCurve.of(spec, history.events(job_id))
    decisions = history.decisions()
    rows = []
    for place, decision in enumerate(decisions):
        if job_id not in decision.ids:
            continue
        job = decision.ids.index(job_id)
        end = decisions[place + 1].time if place + 1 < len(decisions) else np.inf
        expected = (decision.expected[job], decision.expected_low[job], decision.expected_high[job])
        rows.append((decision.time, decision.cores[job], end, *expected))
    table = np.array(rows, dtype=np.float64).reshape(-1, 6)
    # Forecasts for moments after the last loss cannot be compared with a loss.
    told = np.isfinite(table[:, 3:]).all(axis=1) & (table[:, 2] <= curve.times.max(initial=-np.inf))
    return Chapter(
        times=curve.times - spec.arrival,
        losses=curve.losses,
        decided=table[:, 0] - spec.arrival,
        cores=table[:, 1],
        forecast_times=table[told, 2] - spec.arrival,
        expected=table[told, 3],
        low=table[told, 4],
        high=table[told, 5],
    )
