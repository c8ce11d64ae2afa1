"""Losses and decisions as plain JSON, without what the asker may not see."""

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

import numpy as np

from slaq.core.decision import Decision
from slaq.service.records import JobView, Notice
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


def decision(made: Decision, seen: Collection[str] | None) -> dict[str, Any]:
    """Return a decision with a row for every job that may be seen (None: all), and totals for all of them."""
    columns = {
        _COLUMN_NAMES.get(one.name, one.name): getattr(made, one.name)
        for one in fields(made)
        if isinstance(getattr(made, one.name), np.ndarray)
        and len(getattr(made, one.name)) == len(made.ids)
        and one.name not in ("owner", "owner_share")  # one for each owner, not for each job
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


def without_secrets(view: JobView) -> JobView:
    """Return a job without what only its owner may see: what it runs, where, and why it ended or waits."""
    return replace(view, summary="", directory="", reason="")


def notice_without_secrets(notice: Notice) -> Notice:
    """Return a notice about a job without what only the job's owner may see: why it ended or waits."""
    hidden = {"reason": ""} if "reason" in notice.body else {}
    return replace(notice, body={**notice.body, **hidden})


def _plain(value: Any) -> Any:
    one = value.item() if isinstance(value, np.generic) else value.tolist()
    return finite(one) if isinstance(one, float) else one
