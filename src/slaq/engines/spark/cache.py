"""Data of programs as cached Spark partitions, one copy for all jobs that were given the same arrays."""

import threading
from dataclasses import dataclass, field
from typing import Any

from slaq.jobs.data import Dataset


@dataclass(slots=True)
class _Cached:
    """An RDD of (index, partition), and the jobs that use it."""

    rdd: Any
    jobs: set[str] = field(default_factory=set)


class PartitionCache:
    """Caches data in Spark when a job first maps over it, and drops it with the last job that does."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._cached: dict[tuple[int, int, int], _Cached] = {}

    def take(self, job_id: str, data: Dataset, partitions: int) -> Any:
        """Return the data as an RDD of (index, partition)."""
        with self._lock:
            key = _key(data, partitions)
            if key not in self._cached:
                self._cached[key] = _Cached(self._place(data, partitions))
            self._cached[key].jobs.add(job_id)
            return self._cached[key].rdd

    def leave(self, job_id: str, data: Dataset, partitions: int) -> None:
        """Release the data for a job; the last job to do so drops it."""
        with self._lock:
            cached = self._cached.get(_key(data, partitions))
            if cached is None:
                return
            cached.jobs.discard(job_id)
            if not cached.jobs:
                del self._cached[_key(data, partitions)]
                cached.rdd.unpersist()

    def _place(self, data: Dataset, partitions: int) -> Any:
        from pyspark import StorageLevel

        pieces = [(part.index, part) for part in data.cut(partitions)]
        placed = self._context.parallelize(pieces, len(pieces))
        # Through a shuffle, because tasks over a plain collection carry its data along every time.
        return placed.partitionBy(len(pieces), _itself).persist(StorageLevel.MEMORY_AND_DISK)


def _itself(index: int) -> int:
    return index


def _key(data: Dataset, partitions: int) -> tuple[int, int, int]:
    # Jobs keep their datasets alive, so that identities are unique.
    return id(data.x), id(data.y), partitions
