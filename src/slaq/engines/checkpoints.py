"""The file in which a program keeps its state: replaced whole, so that a crash leaves the one before."""

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.engines.packing import ALIGNMENT, Buffer

#: In the job's directory: how many losses had been reported, the first of them, then the packed state.
FILE = "checkpoint"
#: The kind of file, reports, first loss, and the size and checksum of the state.
_HEAD = struct.Struct("<8sQdQI")
_MAGIC = b"slaq-ck2"
#: More reports than any program makes.
_MOST_REPORTS = 2**53
_START = _HEAD.size + -_HEAD.size % ALIGNMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCheckpoint:
    """A program's state after some reports."""

    reports: int
    first_loss: float
    #: Packed.
    state: memoryview


def write(path: Path, reports: int, first_loss: float, state: Sequence[Buffer]) -> None:
    """Replace the checkpoint."""
    draft = path.with_suffix(".new")
    size = checksum = 0
    for piece in state:
        size += memoryview(piece).nbytes
        checksum = zlib.crc32(piece, checksum)
    head = _HEAD.pack(_MAGIC, reports, first_loss, size, checksum)
    with draft.open("wb") as file:
        file.write(head + bytes(_START - len(head)))
        file.writelines(state)
    os.replace(draft, path)


def read(path: Path) -> KeptCheckpoint:
    """Return the last checkpoint; raises ValueError where it is damaged, cut short, or no checkpoint."""
    content = bytearray(path.read_bytes())
    if len(content) < _START or not content.startswith(_MAGIC):
        raise ValueError(f"{path} is not a checkpoint of this version of slaq")
    _, reports, first_loss, size, checksum = _HEAD.unpack_from(content)
    state = memoryview(content)[_START:]
    if reports > _MOST_REPORTS or len(state) != size or zlib.crc32(state) != checksum:
        raise ValueError(f"{path} is damaged or cut short")
    return KeptCheckpoint(reports=reports, first_loss=first_loss, state=state)
