"""Datasets in anonymous shared memory: copied once, mapped by every worker, freed with the last process."""

import mmap
import os
import pickle
import tempfile
import threading
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core.errors import DataError
from slaq.engines.packing import ALIGNMENT
from slaq.jobs.data import Dataset, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPlace:
    """Where an array lies in a segment."""

    offset: int
    shape: tuple[int, ...]
    #: As NumPy writes it; holds the byte order.
    dtype: np.dtype[Any]

    def view(self, memory: mmap.mmap) -> NDArray[Any]:
        """Return the array, without copying it."""
        count = int(np.prod(self.shape))
        return np.frombuffer(memory, self.dtype, count, self.offset).reshape(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which arrays of a segment make up a dataset."""

    length: int
    #: Features: one array where they are dense; data, indices and indptr where they are sparse.
    x: tuple[ArrayPlace, ...]
    y: ArrayPlace | None
    shape: tuple[int, int]
    #: csr_matrix or csr_array, which multiply differently; None where dense.
    sparse: type[Any] | None


class Segment:
    """One dataset in shared memory, kept as long as a job needs it."""

    def __init__(self, dataset: Dataset) -> None:
        x, y = dataset.x, dataset.y
        sparse = None
        if hasattr(x, "tocsr"):
            sparse = type(x)
            # Tasks cannot sort in place: their memory is read-only.
            x = x if x.has_sorted_indices else x.sorted_indices()
            arrays = [x.data, x.indices, x.indptr]
        else:
            arrays = [x]
        if y is not None:
            arrays.append(y)
        places, length = [], 0
        for array in arrays:
            if array.dtype.hasobject:
                raise DataError("features and targets must be numbers or short texts, not Python objects")
            length += -length % ALIGNMENT
            places.append(ArrayPlace(offset=length, shape=array.shape, dtype=array.dtype))
            length += array.nbytes
        self.layout = Layout(
            length=max(length, 1),
            x=tuple(places[: 1 if sparse is None else 3]),
            y=None if y is None else places[-1],
            shape=dataset.x.shape,
            sparse=sparse,
        )
        self.file = _anonymous_file(self.layout.length)
        # Kept alive, because `Segments` finds it again by the identity of its arrays.
        self._dataset = dataset
        self.users = 0
        with mmap.mmap(self.file, self.layout.length) as memory:
            for place, array in zip(places, arrays, strict=True):
                target = np.ndarray(place.shape, place.dtype, memory, place.offset)
                target[...] = array
                # The map cannot be closed while an array views it.
                del target

    def holds(self, dataset: Dataset) -> bool:
        """Return whether the copy still equals the dataset, whose arrays may have been written to since."""
        x = dataset.x
        arrays = [x.data, x.indices, x.indptr] if self.layout.sparse is not None else [x]
        places = [*self.layout.x]
        if self.layout.y is not None and dataset.y is not None:
            arrays.append(dataset.y)
            places.append(self.layout.y)
        memory = mmap.mmap(self.file, self.layout.length, access=mmap.ACCESS_READ)
        return all(
            np.array_equal(place.view(memory).view(np.uint8), array.view(np.uint8))
            for place, array in zip(places, arrays, strict=True)
        )

    def close(self) -> None:
        """Close the memory; it is freed once no worker maps it."""
        os.close(self.file)


class Segments:
    """The datasets in shared memory: one copy of each, however many jobs use it."""

    def __init__(self) -> None:
        self._by_identity: dict[tuple[int, int], Segment] = {}
        self._lock = threading.Lock()

    def take(self, dataset: Dataset) -> Segment:
        """Return the segment of a dataset; create it if no job uses it yet."""
        key = (id(dataset.x), id(dataset.y))
        with self._lock:
            segment = self._by_identity.get(key)
            if segment is None or not segment.holds(dataset):
                segment = self._by_identity[key] = Segment(dataset)
            segment.users += 1
        return segment

    def leave(self, segment: Segment) -> None:
        """Release a segment; the last job to do so frees it."""
        with self._lock:
            segment.users -= 1
            if not segment.users:
                segment.close()
                for key in [key for key, one in self._by_identity.items() if one is segment]:
                    del self._by_identity[key]


def _anonymous_file(length: int) -> int:
    """Return a file in memory without a name, which the system frees with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("slaq-data", os.MFD_CLOEXEC)
    else:
        file, path = tempfile.mkstemp(prefix="slaq-data-")
        os.unlink(path)
    os.truncate(file, length)
    return file


class Partitions:
    """A worker's view of one job's data; the arrays are read-only, because jobs share them."""

    def __init__(self, file: int, layout: bytes | memoryview, partitions: int) -> None:
        self._layout: Layout = pickle.loads(layout)
        self._count = partitions
        self._memory = mmap.mmap(file, self._layout.length, access=mmap.ACCESS_READ)
        os.close(file)
        self._cut: dict[int, Partition] = {}

    def __getitem__(self, index: int) -> Partition:
        if index not in self._cut:
            start, stop = self._edges[index]
            y = None if self._y is None else self._y[start:stop]
            self._cut[index] = Partition(index, start, self._rows(start, stop), y)
        return self._cut[index]

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        # The same cut as Dataset.cut makes.
        edges = np.linspace(0, self._layout.shape[0], self._count + 1).astype(int).tolist()
        return list(pairwise(edges))

    @cached_property
    def _y(self) -> NDArray[Any] | None:
        return None if self._layout.y is None else self._layout.y.view(self._memory)

    @cached_property
    def _x(self) -> tuple[NDArray[Any], ...]:
        return tuple(place.view(self._memory) for place in self._layout.x)

    def _rows(self, start: int, stop: int) -> Any:
        if self._layout.sparse is None:
            return self._x[0][start:stop]
        # Unlike a slice of the whole matrix, this copies no more than the row pointers.
        data, indices, indptr = self._x
        low, high = int(indptr[start]), int(indptr[stop])
        parts = (data[low:high], indices[low:high], indptr[start : stop + 1] - indptr[start])
        rows = self._layout.sparse(parts, shape=(stop - start, self._layout.shape[1]), copy=False)
        rows.has_sorted_indices = True
        return rows
