"""Finds what a command reported after the last report that was read before a crash."""

import os
from collections.abc import Iterator
from pathlib import Path

from slaq.engines.node.reports import LONGEST_LINE, Reading, parse_report

#: Bytes read at a time, from the end of the file towards its start.
CHUNK = 64 * 1024


def unread(path: Path, *, start: int, known: int) -> list[Reading]:
    """Return the losses that a run reported after the first `known` of them, in order.

    The run's reports begin at byte `start` of the file. Each line says how many its process had reported
    before it, so only the end of the file is read. Where several processes reported, the first one counts.
    """
    try:
        with path.open("rb") as file:
            file.seek(start)
            reporter = _first_reporter(file.read(LONGEST_LINE))
            found: list[Reading] = []
            for line in _backwards(file.fileno(), start):
                said = parse_report(line)
                if said is None or said.count is None or said.pid != reporter:
                    continue
                if said.count < known:
                    break
                assert isinstance(said.item, Reading)
                found.append(said.item)
    except FileNotFoundError:
        return []
    return found[::-1]


def _first_reporter(beginning: bytes) -> int | None:
    for line in beginning.splitlines():
        said = parse_report(line)
        if said is not None:
            return said.pid
    return None


def _backwards(fd: int, start: int) -> Iterator[bytes]:
    """Yield the whole lines of a file from the last to the one at `start`; one cut short is left out."""
    place = os.fstat(fd).st_size
    tail: bytes | None = None
    while place > start:
        size = min(CHUNK, place - start)
        place -= size
        chunk = os.pread(fd, size, place) + (tail or b"")
        first, *lines = chunk.split(b"\n")
        if tail is None and lines:
            lines = lines[:-1]  # what stands after the last line's end
        yield from reversed(lines)
        tail = first
    if tail is not None:
        yield tail
