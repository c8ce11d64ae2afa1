"""Durations at the command line: how users type them, and how they are shown."""

from typing import Any

import click
from typing_extensions import override


class Span(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.5 only
    """Seconds, given as a number or as a text such as 90s, 10m or 1h30m."""

    name = "duration"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from slaq.jobs.option_types import seconds

        span = seconds()
        try:
            found: float = span.read(value if isinstance(value, float) else span.parse(str(value)))
        except ValueError:
            self.fail(f"{value!r} is not a duration; give {span.wanted}")
        return found


SPAN = Span()


def span(seconds: float) -> str:
    """Return a duration in its two largest units: 7.5s, 42s, 3m20s, 2h05m, 3d04h."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = round(seconds)
    for unit, size, lower, fine in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // fine:02}{lower}"
    return f"{whole}s"


def ago(moment: float | None, now: float) -> str:
    """Return how long ago a moment was; a dash for None."""
    return "–" if moment is None else span(now - moment)
