"""The file in which a program keeps its state: replaced whole, so that a crash leaves the one before."""

import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.core.errors import CheckpointError
from slaq.durable import write_durably
from slaq.engines.packing import ALIGNMENT, Buffer
from slaq.engines.regular_file import NotRegularError, open_regular

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
    """Replace the checkpoint; the new one survives a loss of power once this returns."""
    size = checksum = 0
    for piece in state:
        size += memoryview(piece).nbytes
        checksum = zlib.crc32(piece, checksum)
    head = _HEAD.pack(_MAGIC, reports, first_loss, size, checksum)
    write_durably(path, _pieces(head, state))


def _pieces(head: bytes, state: Sequence[Buffer]) -> Iterator[Buffer]:
    yield head + bytes(_START - len(head))
    yield from state


def read(path: Path) -> KeptCheckpoint:
    """Return the last checkpoint; raises CheckpointError where it is damaged, cut short, or of another user."""
    content = read_own(path)
    if len(content) < _START or not content.startswith(_MAGIC):
        raise CheckpointError(str(path), "is not a checkpoint of this version of slaq")
    _, reports, first_loss, size, checksum = _HEAD.unpack_from(content)
    state = memoryview(content)[_START:]
    if reports > _MOST_REPORTS or len(state) != size or zlib.crc32(state) != checksum:
        raise CheckpointError(str(path), "is damaged or cut short")
    return KeptCheckpoint(reports=reports, first_loss=first_loss, state=state)


def read_own(path: Path) -> bytearray:
    """Return the bytes of a file that nobody but this process's user, or root, can have written.

    Unpickling runs whatever code the writer of the file chose. Raises CheckpointError for any other file, and
    FileNotFoundError where there is none.
    """
    try:
        file = open_regular(path)
    except NotRegularError:
        raise CheckpointError(str(path), "is not a regular file") from None
    except BlockingIOError:
        raise CheckpointError(str(path), "is held open by another process", "try again") from None
    with open(file, "rb") as opened:
        about = os.fstat(file)
        if about.st_uid not in (os.geteuid(), 0):
            raise CheckpointError(
                str(path),
                f"belongs to another user (uid {about.st_uid}), who could make this process run anything",
                "copy it, if you trust that user",
            )
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise CheckpointError(
                str(path),
                "can be written by other users, who could make this process run anything",
                f"run chmod go-w {path}, if you trust what is in it",
            )
        return bytearray(opened.read())
