"""The file from which a training goes on: whole or absent, written beside the training, to the same bits."""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from slaq.core.errors import CheckpointError, ElasticError
from slaq.engines import checkpoints
from slaq.engines.packing import pack, unpack

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A copy of a tensor, as bytes."""

    content: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]

    def tensor(self) -> Tensor:
        """Return the tensor, on the CPU."""
        if self.content.size == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.from_numpy(self.content.copy()).view(self.dtype).reshape(self.shape)


def kept(value: Any) -> Any:
    """Return a copy of nested values whose tensors can be written."""
    if isinstance(value, Tensor):
        plain = value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        return KeptTensor(plain.view(-1).view(torch.uint8).numpy(), value.dtype, tuple(value.shape))
    if isinstance(value, Mapping):
        return {name: kept(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(kept(one) for one in value)
    return value


def revived(value: Any) -> Any:
    """Return nested values as `kept` was given them."""
    if isinstance(value, KeptTensor):
        return value.tensor()
    if isinstance(value, dict):
        return {name: revived(one) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(revived(one) for one in value)
    return value


class CheckpointFile:
    """One training's file: replaced every few seconds by a thread, so that nobody waits for the disk."""

    def __init__(self, path: Path, every: float) -> None:
        self.path = path
        self._every = every
        self._written = time.monotonic()
        self._writer: threading.Thread | None = None
        self._failing = False

    def read(self) -> Any:
        """Return the state in the file; None where there is none. Raises CheckpointError where it is damaged."""
        try:
            return revived(unpack(checkpoints.read(self.path).state))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ElasticError(
                f"the checkpoint {self.path} cannot be read ({error.strerror})",
                "give checkpoint= the path of a file in a folder that you can write to",
            ) from error
        except CheckpointError as error:
            raise CheckpointError(
                error.path, error.found, error.remedy or "delete it to train from the beginning"
            ) from None

    @property
    def due(self) -> bool:
        """Whether the file is to be replaced."""
        writing = self._writer is not None and self._writer.is_alive()
        return not writing and time.monotonic() - self._written >= self._every

    def begin(self, updates: int, state: Any) -> None:
        """Write the first state, so that a path that cannot be written to is told before anything is trained."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            checkpoints.write(self.path, updates, 0.0, pack(kept(state)))
        except OSError as error:
            raise ElasticError(
                f"the checkpoint {self.path} cannot be written ({error.strerror})",
                "give checkpoint= the path of a file in a folder that you can write to, on a disk with room",
            ) from error

    def save(self, updates: int, state: Any, *, wait: bool = False) -> None:
        """Copy the state, and have it written; with `wait`, return once it is on disk, or could not be."""
        self.join()
        self._written = time.monotonic()
        copied = kept(state)
        if wait:
            self._write(updates, copied)
            return
        self._writer = threading.Thread(target=self._write, args=(updates, copied), name="slaq-checkpoint")
        self._writer.start()

    def join(self) -> None:
        """Wait for a state that is being written."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    def _write(self, updates: int, state: Any) -> None:
        try:
            checkpoints.write(self.path, updates, 0.0, pack(state))
        except OSError as error:
            if not self._failing:
                _log.warning(
                    "the checkpoint %s cannot be written (%s); the training goes on and tries again every %g s",
                    self.path,
                    error.strerror,
                    self._every,
                )
            self._failing = True
        else:
            if self._failing:
                _log.warning("the checkpoint %s is written again", self.path)
            self._failing = False
