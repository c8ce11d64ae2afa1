"""What the service shows as plain JSON: courses, decisions, and what others may not see left out."""

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

import numpy as np

from slaq.core.decision import Decision
from slaq.service.records import JobView
from slaq.stores.sqlite_records import Curve


def finite(value: float) -> float | None:
    """Return the number, or None where it is none."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Return the same as JSON can hold it: numbers that are none become None."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return finite(value) if isinstance(value, float) else value


def observations(curve: Curve) -> list[dict[str, Any]]:
    """Return losses with their times and costs; a loss that is no number is None."""
    rows = zip(
        curve.iteration.tolist(),
        curve.at.tolist(),
        curve.loss.tolist(),
        curve.cpu_seconds.tolist(),
        curve.wall_seconds.tolist(),
        curve.metrics,
        strict=True,
    )
    return [
        {
            "iteration": iteration,
            "at": at,
            "loss": finite(loss),
            "cpu_seconds": finite(cpu),
            "wall_seconds": finite(wall),
            "metrics": {name: finite(value) for name, value in metrics.items()},
        }
        for iteration, at, loss, cpu, wall, metrics in rows
    ]


def decision(made: Decision, seen: Collection[str] | None) -> dict[str, Any]:
    """Return a decision with a row for every job that may be seen (None: all), and totals for all of them."""
    columns = {
        one.name: getattr(made, one.name)
        for one in fields(made)
        if isinstance(getattr(made, one.name), np.ndarray)
        and len(getattr(made, one.name)) == len(made.ids)
        and one.name
        not in ("owner", "owner_share")  # places among the owners, and one number for each of them
    }
    rows = [place for place, job_id in enumerate(made.ids) if seen is None or job_id in seen]
    return {
        "epoch": made.epoch,
        "time": made.time,
        "capacity": made.capacity,
        "granted": int(made.units.sum()),
        "active": len(made.ids),
        "seconds": made.seconds,
        "jobs": [
            {"id": made.ids[place], **{name: _plain(column[place]) for name, column in columns.items()}}
            for place in rows
        ],
    }


def without_secrets(view: JobView) -> JobView:
    """Return a job as others may see it: not what it runs, nor where."""
    return replace(view, summary="", directory="", reason="")


def _plain(value: Any) -> Any:
    one = value.item() if isinstance(value, np.generic) else value.tolist()
    return finite(one) if isinstance(one, float) else one
