"""The order in which the jobs of a group are told: the best first."""

from collections.abc import Iterable, Mapping
from typing import Any

from slaq.core.direction import turned
from slaq.core.job import JobState


def rank(job: Mapping[str, Any]) -> tuple[int, float]:
    """Return the place of a job, as the API shows it, among others; small values come first.

    By its best loss: the lowest first, or the highest of jobs whose number is to rise. Then come jobs that have
    diverged, and at last those without a loss.
    """
    best = job["best_loss"]
    if best is None:
        return 2, 0.0
    return int(diverged(job)), turned(best, bool(job.get("maximize")))


def diverged(job: Mapping[str, Any]) -> bool:
    """Return whether a job has diverged, so that it is never the best."""
    return bool(job["diverged"]) or job["state"] == "diverged"


def ranked(jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return jobs with the best first; among equals the order stays as it was."""
    return sorted(jobs, key=rank)


def winner(jobs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the best job; None where each has diverged or has no loss."""
    first = next(iter(ranked(jobs)), None)
    return first if first is not None and rank(first)[0] == 0 else None


def unfinished(jobs: Iterable[Mapping[str, Any]]) -> int:
    """Return how many jobs have not ended, so that the order may still change."""
    return sum(not JobState(job["state"]).ended for job in jobs)
