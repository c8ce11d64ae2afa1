"""The one place that turns the sign of what should rise: inside forecasts and gains, less is always better.

A job that maximizes reports an accuracy, say. Its numbers are turned where they enter the arithmetic of decisions,
and turned back where they leave it; all that users, stores and engines see is in the job's own sign. Turning a sign
is exact, so that to maximize x is to decide as one minimizes -x, to the last digit.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from slaq.core.arrays import Booleans, Floats
from slaq.core.job import JobSpec

Numbers = TypeVar("Numbers", float, Floats)


def turned(numbers: Numbers, maximize: bool) -> Numbers:
    """Return the numbers of one job turned, if the job maximizes; its own inverse."""
    return -numbers if maximize else numbers


def turned_rows(numbers: Floats, maximize: Booleans) -> Floats:
    """Return the numbers of many jobs, one each, with those turned that belong to a job which maximizes."""
    return np.where(maximize, -numbers, numbers)


def best_of(numbers: Iterable[float], maximize: bool) -> float | None:
    """Return the best of the numbers of one job; None if there are none."""
    return max(numbers, default=None) if maximize else min(numbers, default=None)


def minimizing(spec: JobSpec) -> JobSpec:
    """Return the spec of a job that minimizes what this one maximizes, with its sign turned."""
    if not spec.maximize:
        return spec
    target = spec.target_loss
    return replace(spec, maximize=False, target_loss=None if target is None else turned(target, True))
