"""The `--horizon` option's values: a number of iterations, or a range of them such as 1:20."""

from collections.abc import Sequence

import click

#: More horizons than this are taken for a typing mistake.
MOST = 10_000


def parse_horizons(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[int]:
    """Return the horizons in ascending order without duplicates; a click callback."""
    return sorted({horizon for value in values for horizon in _range(value)})


def _range(value: str) -> range:
    """Return the horizons of `n`, `first:last` (both included) or `first:last:step`."""
    try:
        numbers = [int(part) for part in value.split(":")]
    except ValueError:
        numbers = []
    match numbers:
        case [first]:
            last, step = first, 1
        case [first, last]:
            step = 1
        case [first, last, step]:
            pass
        case _:
            raise click.BadParameter(f"{value!r} is not a number of iterations or a range such as 1:20")
    if first < 1 or last < first or step < 1:
        raise click.BadParameter(
            f"{value!r} contains no iteration ahead; give 1 or more, or a range such as 1:20"
        )
    if (last - first) // step >= MOST:
        raise click.BadParameter(f"{value!r} is more than {MOST:,} horizons; give a step, as in 1:50000:100")
    return range(first, last + 1, step)
