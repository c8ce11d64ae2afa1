"""The memory that the processes of one training share: weights, buffers, and results of micro-batches."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: As PyTorch aligns its own tensors: the order of sums in MKL depends on it.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """Where a tensor lies in a stretch of memory."""

    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    def view(self, memory: mmap.mmap, base: int) -> Tensor:
        """Return the tensor; a storage of its own, so that saving it saves nothing else."""
        count = prod(self.shape)
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(memory, dtype=self.dtype, count=count, offset=base + self.offset)
        return flat.as_strided(self.shape, self.stride)


class TensorLayout:
    """Where tensors of given shapes lie, one after another."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.size = 0
        places = []
        for tensor in tensors:
            # Other memory formats are kept where every element has one place.
            dense = torch.empty_like(tensor, device="meta")
            place = TensorPlace(
                offset=self.size, shape=tensor.shape, stride=dense.stride(), dtype=tensor.dtype
            )
            places.append(place)
            self.size = _aligned(self.size + tensor.numel() * tensor.element_size())
        self.places = tuple(places)

    def views(self, memory: mmap.mmap, base: int) -> list[Tensor]:
        """Return the tensors."""
        return [place.view(memory, base) for place in self.places]


class Board:
    """What the driver and its workers tell one another, apart from their messages.

    The driver alone writes weights, buffers and generations. Everything else has a row for each micro-batch,
    written by whoever computes that one, and read by the driver once it is told that the micro-batch is done. The
    memory has no name and is freed with the last process that maps it; pages that nobody touches cost nothing.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        buffers: Sequence[Tensor],
        rows: int,
        device: torch.device,
        file: int | None = None,
    ) -> None:
        self._parameters, self._buffers = TensorLayout(parameters), TensorLayout(buffers)
        #: Sum of losses, count, and whether the loss was given as a sum; squared norm of the gradient.
        records = _aligned(rows * 4 * 8)
        touched, changed = _aligned(rows * len(parameters)), _aligned(rows * len(buffers))
        generations = _aligned(4 * len(buffers))
        sizes = [self._parameters.size, self._buffers.size, records, touched, changed, generations]
        starts = [0, *np.cumsum(sizes).tolist()]
        self._results = starts[6]
        self._gradients = self._results + rows * self._buffers.size
        self.size = max(self._gradients + rows * self._parameters.size, 1)
        #: The driver makes one; a process that was not forked from it is given it.
        self.file = anonymous_file("slaq-elastic", self.size) if file is None else file
        self.rows = rows
        self._memory = mmap.mmap(self.file, self.size)
        self.parameters = self._parameters.views(self._memory, starts[0])
        #: Where nobody but the driver computes, buffers stay on its device, so that a GPU is never waited for.
        self._local = None if device.type == "cpu" else list(buffers)
        self.buffers = self._places_of_buffers(starts[1])
        self.records = self._array(np.float64, (rows, 4), starts[2])
        self.touched = self._array(np.uint8, (rows, len(parameters)), starts[3])
        self.changed = self._array(np.uint8, (rows, len(buffers)), starts[4])
        #: How often the driver has written each buffer.
        self.generations = self._array(np.uint32, (len(buffers),), starts[5])
        self.gradients = cache(self._gradients_of)
        self.results = cache(self._results_of)

    def _gradients_of(self, row: int) -> list[Tensor]:
        """Return the place for the gradients of a block that begins with this micro-batch."""
        return self._parameters.views(self._memory, self._gradients + row * self._parameters.size)

    def _results_of(self, row: int) -> list[Tensor]:
        """Return the place for the buffers as this micro-batch leaves them."""
        return self._places_of_buffers(self._results + row * self._buffers.size)

    def _places_of_buffers(self, base: int) -> list[Tensor]:
        if self._local is not None:
            return [torch.empty_like(buffer) for buffer in self._local]
        return self._buffers.views(self._memory, base)

    def _array(self, dtype: type[np.generic], shape: tuple[int, ...], offset: int) -> NDArray[Any]:
        return np.frombuffer(self._memory, dtype, prod(shape), offset).reshape(shape)

    def close(self) -> None:
        """Close the file; the memory stays while a tensor views it."""
        os.close(self.file)


def anonymous_file(name: str, length: int) -> int:
    """Return a file in memory without a path, which the system frees with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        file, path = tempfile.mkstemp(prefix=f"{name}-")
        os.unlink(path)
    os.truncate(file, length)
    return file


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT
