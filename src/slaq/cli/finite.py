"""Refuses nan, which click's ranges of numbers let through, and infinity."""

import math

import click


def finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Return the number if it is one, or none was given; the shape of a click callback."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number to count with")
    return value
