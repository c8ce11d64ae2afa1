"""Spans of time at the command line: what a user types for one, and how one is shown."""

import math
from typing import Any

import click
from typing_extensions import override


class Span(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.5 only
    """Seconds, given as a number or as a text such as 90s, 10m or 1h30m."""

    name = "duration"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from slaq.config.section import seconds_of

        seconds = value if isinstance(value, float) else seconds_of(str(value))
        if seconds is None or not math.isfinite(seconds) or seconds <= 0:
            self.fail(f"{value!r} is no duration; give seconds above 0, or a text such as 90s, 10m or 1h30m")
        return seconds


SPAN = Span()


def span(seconds: float) -> str:
    """Return a span in its two largest units: 7.5s, 42s, 3m20s, 2h05m, 3d04h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    for unit, size, lower, fine in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // fine:02}{lower}"
    return f"{whole}s"


def ago(moment: float | None, now: float) -> str:
    """Return how long ago a moment was; a dash where there is none."""
    return "–" if moment is None else span(now - moment)


def ahead(moment: float | None, now: float) -> str:
    """Return how far ahead an expected moment is; a dash where it is never."""
    if moment is None:
        return "–"
    return "now" if moment <= now else span(moment - now)
