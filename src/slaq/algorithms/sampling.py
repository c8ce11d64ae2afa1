"""Random rows that do not depend on how the data is cut into partitions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.algorithms.inputs import Floats, dense
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


def sample(ctx: Context, count: int, seed: int) -> Floats:
    """Return so many distinct rows of features, dense, drawn evenly and in the data's order; all if fewer."""
    count = min(count, ctx.data.num_rows)
    places = np.random.default_rng(seed).choice(ctx.data.num_rows, count, replace=False)
    return np.concatenate(ctx.map(rows_at, np.sort(places)))


def rows_at(partition: Partition, places: NDArray[np.integer[Any]]) -> Floats:
    """Return those of the rows at some places among all rows that this partition holds."""
    return dense(partition.x[held(partition, places)])


def held(partition: Partition, places: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Return which of the sorted places among all rows are in this partition, counted from its first row."""
    first, last = np.searchsorted(places, [partition.start, partition.start + len(partition)])
    return np.asarray(places[first:last] - partition.start)


def uniforms(partition: Partition, seed: int) -> Floats:
    """Return one number in (0, 1] per row, which does not depend on the row's partition.

    The generator draws one number per step, so that it can be moved on to the partition's first row.
    """
    stream = np.random.PCG64(seed)
    stream.advance(partition.start)
    return 1.0 - np.random.Generator(stream).random(len(partition))
