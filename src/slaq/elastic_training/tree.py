"""Sums over micro-batches in the order of a fixed binary tree, so that bits do not depend on who computed what."""

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")


class SumTree(Generic[T]):
    """Merges the results of micro-batches as they arrive, two neighbours at a time.

    A node of level l at a, a multiple of 2^l, is the sum of micro-batches a to a + 2^l. Where its right half lies
    beyond the last micro-batch it is its left half. Whatever the order of arrival, and however the leaves were
    cut into blocks that are nodes themselves, each node is the sum of the same two.
    """

    def __init__(self, count: int, merge: Callable[[T, T], T], *, level: int | None = None) -> None:
        self._count = count
        self._merge = merge
        #: The level at which results are complete: that of the root, or of a block.
        self._top = height(count) if level is None else level
        self._waiting: dict[tuple[int, int], T] = {}
        #: What is complete, by where it begins.
        self.complete: dict[int, T] = {}

    def add(self, level: int, start: int, value: T) -> None:
        """Take the result of a node, and merge it upwards as far as its neighbours have arrived."""
        while level < self._top:
            left = start & ~(1 << level)
            other = start ^ (1 << level)
            if other < self._count:
                neighbour = self._waiting.pop((level, other), None)
                if neighbour is None:
                    self._waiting[level, start] = value
                    return
                value = self._merge(value, neighbour) if start == left else self._merge(neighbour, value)
            level, start = level + 1, left
        self.complete[start] = value


def height(count: int) -> int:
    """Return the level of the root over so many micro-batches."""
    return (count - 1).bit_length()


@lru_cache(maxsize=1024)
def block_level(count: int, workers: int) -> int:
    """Return the level of the blocks that workers compute, so that the last is done the soonest.

    Of sizes that are equally soon the largest: fewer results then have to be handed over.
    """

    def makespan(level: int) -> int:
        loads = [0] * workers
        for start in range(0, count, 1 << level):
            loads[loads.index(min(loads))] += min(1 << level, count - start)
        return max(loads)

    return min(range(height(count), -1, -1), key=makespan)
