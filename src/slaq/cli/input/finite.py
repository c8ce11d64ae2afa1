"""Reject nan and infinity, which click's number ranges accept."""

import math

import click


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Return a finite number, or None if none was given; a click callback."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number")
    return value
