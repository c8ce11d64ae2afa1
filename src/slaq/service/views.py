"""Losses and decisions as plain JSON."""

import math
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from slaq.core.decision import Decision
from slaq.stores.sqlite.records import StoredCurve


def finite(value: float) -> float | None:
    """Return the number, or None where it is not finite."""
    return value if math.isfinite(value) else None


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return finite(value) if isinstance(value, float) else value


def observations(curve: StoredCurve) -> list[dict[str, Any]]:
    """Return losses with their times and costs; a loss that is not finite is None."""
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


#: What the API calls the columns of a decision that have other names in the store.
_COLUMN_NAMES = {"last": "last_step", "marginal": "next_step", "sure": "guarantee"}

#: The columns of a curve, in the order in which the store gives them.
CURVE = ("iteration", "at", "loss", "cpu_seconds", "wall_seconds")


def curve(job_id: str, rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return the losses of a job in columns; a loss that is not finite is None."""
    columns = list(zip(*rows, strict=True)) or [()] * len(CURVE)
    return {"job": job_id, **dict(zip(CURVE, columns, strict=True))}


#: One for each owner, not for each job; and what only an explanation tells, of the jobs of searches.
_LEFT_OUT = ("owner", "owner_share", "final_low", "final_high", "best_final", "searching")


def decision(made: Decision, seen: Collection[str] | None) -> dict[str, Any]:
    """Return a decision with a row for every job that may be seen (None: all), and totals for all of them."""
    columns = {
        _COLUMN_NAMES.get(one.name, one.name): getattr(made, one.name)
        for one in fields(made)
        if isinstance(getattr(made, one.name), np.ndarray)
        and len(getattr(made, one.name)) == len(made.ids)
        and one.name not in _LEFT_OUT
    }
    rows = [place for place, job_id in enumerate(made.ids) if seen is None or job_id in seen]
    return {
        "epoch": made.epoch,
        "time": made.time,
        "capacity": made.capacity,
        "granted": float(made.cores.sum()),
        "step": made.unit,
        "active": len(made.ids),
        "seconds": made.seconds,
        "jobs": [
            {"id": made.ids[place], **{name: _plain(column[place]) for name, column in columns.items()}}
            for place in rows
        ],
    }


def _plain(value: Any) -> Any:
    one = value.item() if isinstance(value, np.generic) else value.tolist()
    return finite(one) if isinstance(one, float) else one
