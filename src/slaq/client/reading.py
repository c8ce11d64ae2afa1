"""Makes records of the API's JSON; fields that only a newer service knows are left out."""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from slaq.core.explanation import Standing
from slaq.core.job import JobState, Observation
from slaq.service.records import JobView, Notice, Prospect

T = TypeVar("T")


def record(kind: type[T], found: Mapping[str, Any]) -> T:
    """Return a record of that kind."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in found.items() if name in known})


def job_view(found: Mapping[str, Any]) -> JobView:
    """Return a job as the service shows it."""
    sizes = found["sizes"]
    told = {
        "state": JobState(found["state"]),
        "tags": tuple(found["tags"]),
        "after": tuple(found["after"]),
        "after_any": tuple(found["after_any"]),
        "sizes": sizes if isinstance(sizes, str) else tuple(sizes),
        "prospect": record(Prospect, found["prospect"]),
        "standing": None if found.get("standing") is None else record(Standing, found["standing"]),
    }
    return record(JobView, {**found, **told})


def observation(found: Mapping[str, Any]) -> Observation:
    """Return an observation; null stands for a loss that is not finite."""
    return record(Observation, {**found, "loss": math.nan if found["loss"] is None else found["loss"]})


def notice(found: Mapping[str, Any]) -> Notice:
    """Return a notice of the event stream."""
    return record(Notice, found)
