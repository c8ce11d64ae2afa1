"""What a report says of each job: how it went, and what was asked for it."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from slaq.cli.display.job_columns import Shown, done, in_short, number, parameters, runs
from slaq.cli.display.spans import span
from slaq.core.outcome import JobCurve
from slaq.core.progress import GOOD_ENOUGH
from slaq.core.quality import time_to

#: Characters of a reason, and of a command, that a report shows.
LONGEST = 300


def summary(view: Shown, curve: JobCurve) -> dict[str, Any]:
    """Return the documented fields of one job."""
    reached = time_to(curve.times, curve.falling, GOOD_ENOUGH, curve.end) - curve.spec.arrival
    ended = view["ended_at"]
    return {
        "id": view["id"],
        "owner": view["owner"],
        "state": view["state"],
        "group": view["group"],
        "parameters": view["parameters"],
        "iterations": max(view["iteration"], 0),
        "first_loss": view["first_loss"],
        "loss": view["loss"],
        "best_loss": view["best_loss"],
        "reduction": view["reduction"],
        "time_to_90": round(reached, 3) if math.isfinite(reached) else None,
        "seconds": None if ended is None else round(ended - view["submitted_at"], 3),
        "cpu_seconds": view["cpu_seconds"],
        "starts": view["attempts"],
        "options": dict(options(view)),
        "reason": view["reason"],
        "command": view["summary"],
    }


def rows(views: Iterable[Shown], curves: Iterable[JobCurve]) -> list[Mapping[str, str]]:
    """Return the table of the jobs for a page: one row each, by heading."""
    return [_row(view, summary(view, curve)) for view, curve in zip(views, curves, strict=True)]


def _row(view: Shown, told: Mapping[str, Any]) -> Mapping[str, str]:
    def seconds(name: str) -> str:
        return "–" if told[name] is None else span(told[name])

    asked = ", ".join(f"{name} {value}" for name, value in told["options"].items())
    return {
        "job": told["id"],
        "user": told["owner"],
        "state": told["state"],
        "parameters": parameters(told["parameters"]),
        "iterations": str(told["iterations"]),
        "first loss": number(told["first_loss"]),
        "best loss": number(told["best_loss"]),
        "done": done(told["reduction"], view["iteration"]),
        "to 90%": seconds("time_to_90"),
        "to its end": seconds("seconds"),
        "CPU": span(told["cpu_seconds"]),
        "starts": str(told["starts"]),
        "options": asked or "–",
        "command and reason": " – ".join(_parts(view)),
    }


def _parts(view: Shown) -> Iterator[str]:
    yield runs(view, LONGEST) or "–"
    if view["reason"]:
        yield in_short(view["reason"])[:LONGEST]


def options(view: Shown) -> Iterator[tuple[str, str]]:
    """Yield the options that a job was given, by name, as far as they differ from what is usual."""
    usual = {"weight": 1.0, "min_cores": 0.0, "sizes": "any", "trains": True, "maximize": False}
    for name in (*usual, "max_cores", "memory", "target_loss", "stop_at"):
        if view[name] != usual.get(name):
            yield name, _text(view[name])
    if view["deadline"] is not None:
        yield "deadline", span(view["deadline"] - view["submitted_at"])
    if view["arrival"] > view["submitted_at"]:
        yield "arrival", span(view["arrival"] - view["submitted_at"])
    for name in ("after", "after_any", "tags"):
        if view[name]:
            yield name, _text(view[name])


def _text(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
