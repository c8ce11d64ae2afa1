"""The file a driver keeps its state in: replaced as a whole, so that a crash leaves the one before."""

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.engines.local.wire import ALIGNMENT, Buffer

#: In the job's directory: how many losses had been reported, the first of them, then the packed state.
FILE = "checkpoint"
_HEAD = struct.Struct("<8sQd")
_MAGIC = b"slaq-ck1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A program's state after some reports."""

    reports: int
    first_loss: float
    #: Packed.
    state: memoryview


def write(path: Path, reports: int, first_loss: float, state: Sequence[Buffer]) -> None:
    """Put a checkpoint in the place of the one before."""
    draft = path.with_suffix(".new")
    head = _HEAD.pack(_MAGIC, reports, first_loss)
    with draft.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        file.writelines(state)
    os.replace(draft, path)


def read(path: Path) -> Kept:
    """Return the last checkpoint."""
    content = bytearray(path.read_bytes())
    magic, reports, first_loss = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError(f"{path} is not a checkpoint")
    start = _HEAD.size + -_HEAD.size % ALIGNMENT
    return Kept(reports=reports, first_loss=first_loss, state=memoryview(content)[start:])
