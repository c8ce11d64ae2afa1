"""How a micro-batch is fetched: from tensors and arrays at once, from any other map-style dataset one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset, default_collate
from typing_extensions import override

from slaq.core.errors import ElasticError

Indices = NDArray[np.int64]


class Samples(Protocol):
    """Samples that can be fetched by their indices."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def fetch(self, indices: Indices) -> Any:
        """Return the samples of these indices as one batch."""
        ...


class ArraySamples(Samples):
    """The rows of tensors and arrays of equal length."""

    def __init__(self, columns: Sequence[Any], *, alone: bool) -> None:
        lengths = [len(column) for column in columns]
        if not columns or len(set(lengths)) != 1:
            raise ElasticError(
                f"the arrays of the dataset have {', '.join(map(str, lengths)) or 'no'} samples",
                "give arrays of equal length",
            )
        self._columns = columns
        self._alone = alone

    @override
    def __len__(self) -> int:
        return len(self._columns[0])

    @override
    def fetch(self, indices: Indices) -> Any:
        chosen = torch.from_numpy(indices)
        rows = [
            column.index_select(0, chosen.to(column.device))
            if isinstance(column, Tensor)
            else torch.from_numpy(np.take(column, indices, axis=0))
            for column in self._columns
        ]
        return rows[0] if self._alone else tuple(rows)


class MapSamples(Samples):
    """A dataset with a length and an index, whose samples are collated."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._collate = collate
        #: PyTorch's own name for a dataset that fetches many samples at once.
        self._many = getattr(dataset, "__getitems__", None)

    @override
    def __len__(self) -> int:
        return len(self._dataset)

    @override
    def fetch(self, indices: Indices) -> Any:
        wanted = indices.tolist()
        return self._collate(
            [self._dataset[index] for index in wanted] if self._many is None else self._many(wanted)
        )


def samples_of(dataset: Any, collate: Callable[[list[Any]], Any] | None) -> Samples:
    """Return the samples of a dataset; raises ElasticError for one that cannot be indexed or has no length."""
    kind = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise ElasticError(
            f"the dataset ({kind}) can only be iterated over",
            "give one with __len__ and __getitem__, from which any worker can fetch any sample",
        )
    found: Samples | None = _arrays(dataset) if collate is None else None
    if found is None:
        if not hasattr(dataset, "__getitem__"):
            raise ElasticError(
                f"the dataset ({kind}) has no __getitem__",
                "give a tensor, an array, a tuple of them, or a dataset with __len__ and __getitem__",
            )
        found = MapSamples(dataset, collate or default_collate)
    try:
        count = len(found)
    except (TypeError, NotImplementedError):
        raise ElasticError(
            f"the dataset ({kind}) has no length", "give one with __len__, so that a pass has an end"
        ) from None
    if count < 1:
        raise ElasticError(f"the dataset ({kind}) has no samples", "give at least one")
    return found


def _arrays(dataset: Any) -> ArraySamples | None:
    """Return the samples of a dataset that consists of arrays; None for any other."""
    if isinstance(dataset, Tensor | np.ndarray):
        return ArraySamples([dataset], alone=True)
    if type(dataset) is TensorDataset:
        return ArraySamples(dataset.tensors, alone=False)
    if isinstance(dataset, tuple) and all(isinstance(one, Tensor | np.ndarray) for one in dataset):
        return ArraySamples(dataset, alone=False)
    return None


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {name: moved(one, device) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(one, device) for one in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(one, device) for one in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
