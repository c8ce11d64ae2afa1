"""A job's data: rows of features, dense or sparse, with or without targets, cut into partitions."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core.errors import DataError


@dataclass(frozen=True, slots=True)
class Partition:
    """Some consecutive rows of a job's data: what one task works on."""

    #: The index of the partition, and the index of its first row among all rows.
    index: int
    start: int
    #: Features: a 2-D NumPy array or a scipy CSR matrix.
    x: Any
    #: Targets, one per row, or None.
    y: NDArray[Any] | None = None

    def __len__(self) -> int:
        return int(self.x.shape[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DataShape:
    """The size of a job's data; the driver sees only this."""

    num_rows: int = 0
    num_features: int = 0
    num_partitions: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Features and targets before they are divided into partitions.

    Without features (`Dataset()`) a job has one empty partition, for a program that makes its own
    data.
    """

    x: Any = None
    y: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        if self.x is None:
            object.__setattr__(self, "x", np.empty((0, 0)))
        elif hasattr(self.x, "tocsr"):
            object.__setattr__(self, "x", self.x.tocsr())
        else:
            object.__setattr__(self, "x", _numbers(self.x, "features"))
        if self.x.ndim != 2:
            raise DataError(f"features must have two dimensions, rows and columns, not {self.x.ndim}")
        if self.y is not None:
            object.__setattr__(self, "y", _labels(self.y))
            if len(self.y) != self.x.shape[0]:
                raise DataError(f"there are {self.x.shape[0]} rows of features but {len(self.y)} targets")

    @classmethod
    def of(cls, data: Any) -> "Dataset":
        """Return what was given as data, a Dataset, features or (features, targets), as a Dataset."""
        if isinstance(data, Dataset):
            return data
        return cls(*data) if isinstance(data, tuple) else cls(data)

    def shape(self, partitions: int) -> DataShape:
        """Return how large the data is when cut into that many partitions."""
        rows, features = self.x.shape
        return DataShape(
            num_rows=int(rows), num_features=int(features), num_partitions=self.count(partitions)
        )

    def count(self, partitions: int) -> int:
        """Return how many partitions there will be: no more than rows, and at least one."""
        return max(1, min(partitions, int(self.x.shape[0])))

    def cut(self, partitions: int) -> list[Partition]:
        """Return the partitions, as even as they can be; they share this dataset's memory."""
        count = self.count(partitions)
        edges = np.linspace(0, self.x.shape[0], count + 1).astype(int).tolist()
        return [
            Partition(index, start, self.x[start:stop], None if self.y is None else self.y[start:stop])
            for index, (start, stop) in enumerate(pairwise(edges))
        ]


def _labels(values: Any) -> NDArray[Any]:
    """Return targets as an array: numbers, or texts that name classes, as a column of a table may hold them."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind == "O" and array.size and all(isinstance(value, str) for value in array.flat):
        return array.astype(np.str_)
    return _numbers(values, "targets")


def _numbers(values: Any, what: str) -> NDArray[Any]:
    """Return an array; raises DataError where a column of a table holds what is no number."""
    array = np.ascontiguousarray(values)
    if array.dtype.kind != "O":
        return array
    columns = array.reshape(len(array), -1).T if array.size else ()
    names = list(getattr(values, "columns", [getattr(values, "name", None)]))
    for place, column in enumerate(columns):
        for value in column.tolist():
            if not isinstance(value, str | bytes) and _is_number(value):
                continue
            name = names[place] if len(names) == len(columns) else None
            where = f"column {place} of the {what}" if name is None else f"column {name!r} of the {what}"
            raise DataError(
                f"{where} holds {value!r}, which is no number; turn it into numbers, or leave it out"
            )
    return array.astype(np.float64)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
