"""Finds what a command reported after the last report that was read before a crash."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from slaq.engines.node.reports import LONGEST_LINE, Reading, parse_report
from slaq.engines.regular_file import open_regular

#: Bytes read at a time, from the end of the file towards its start.
CHUNK = 64 * 1024
#: Bytes that are looked through from the end, about 50,000 losses: a service does so for each job when it starts.
MOST_UNREAD = 4 * 2**20
#: Lines that are looked through at once, and a second later on; so many bytes of a line count as a line more.
MOST_LINES, LINES_PER_SECOND, BYTES_PER_LINE = 50_000, 1000.0, 500


class Allowance:
    """How many lines may be looked through of the reports of one owner, whose jobs may be many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = float(MOST_LINES)
        self._filled_at = clock()

    def fill(self) -> None:
        """Add what the time that has passed allows."""
        now = self._clock()
        self._left = min(self._left + LINES_PER_SECOND * (now - self._filled_at), MOST_LINES)
        self._filled_at = now

    def take(self, line: bytes) -> bool:
        """Count a line; return whether it may be looked at."""
        self._left -= 1.0 + len(line) // BYTES_PER_LINE
        return self._left >= 0.0


def unread(path: Path, *, start: int, known: int, last: int = -1, allowance: Allowance) -> list[Reading]:
    """Return the losses that a run reported after the first `known` of them, in order.

    Where the run numbers its iterations itself, these are the losses after iteration `last`.
    The run's reports begin at byte `start` of the file. Each line says how many its process had reported
    before it, so only the end of the file is read. Where several processes reported, the first one counts.
    What the allowance does not cover is left out.
    Raises OSError where the file cannot be read now.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return []
    try:
        reporter = _first_reporter(os.pread(file, LONGEST_LINE, start))
        found: list[Reading] = []
        allowance.fill()
        for line in _backwards(file, start):
            if not allowance.take(line):
                break
            said = parse_report(line)
            if said is None or said.count is None or said.pid != reporter:
                continue
            assert isinstance(said.item, Reading)
            step = said.item.iteration
            if said.count < known if step is None else step <= last:
                break
            found.append(said.item)
    finally:
        os.close(file)
    return found[::-1]


def _first_reporter(beginning: bytes) -> int | None:
    for line in beginning.splitlines():
        said = parse_report(line)
        if said is not None:
            return said.pid
    return None


def _backwards(fd: int, start: int) -> Iterator[bytes]:
    """Yield the whole lines of a file from the last to the one at `start`.

    A line that is cut short at the end, or too long to be a report, is left out; so is what lies too far back.
    """
    place = os.fstat(fd).st_size
    least = max(start, place - MOST_UNREAD)
    tail: bytes | None = None
    while place > least:
        size = min(CHUNK, place - least)
        place -= size
        chunk = os.pread(fd, size, place) + (tail or b"")
        first, *lines = chunk.split(b"\n")
        if tail is None and lines:
            lines = lines[:-1]  # what stands after the last line's end
        yield from reversed(lines)
        # A line that is too long is no report; a piece of it is enough to skip it.
        tail = first if len(first) <= LONGEST_LINE else first[:LONGEST_LINE]
    if tail is not None and least == start:
        yield tail
