"""Where the losses of a command come from: its reports, its output, or a file it writes."""

import csv
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from typing_extensions import override

from slaq.core.errors import LossSourceError
from slaq.detection.lines import seen
from slaq.detection.plain_values import json_object, number
from slaq.engines.node.commands.tail import Tail
from slaq.engines.node.reports import (
    LONGEST_LINE,
    Item,
    NewSource,
    Reading,
    parse_report,
)
from slaq.jobs.loss_pattern import checked_pattern

#: Bytes of an output line that are searched for a loss, and of a line of a file.
LONGEST_OUTPUT_LINE, LONGEST_FILE_LINE = 4096, 65536
#: CPU seconds that the search of one line may take, and how many lines may take longer before we give up.
SEARCH_SECONDS, SLOW_LINES = 0.05, 3
_LARGEST_ITERATION = 2**53
#: Lines, or rows of a file, without a loss after which the owner is told; and seconds without the file.
SILENT_LINES, SILENT_ROWS, ABSENT_SECONDS = 500, 100, 60.0
#: Characters shown of what a job wrote.
_SHOWN = 60
_DELIMITERS = (",", "\t", ";")


#: How far was read, as JSON can hold it: for a loss file a byte, how many losses were read, how many of these were
#: told before, and the first.
Place = Sequence[Any]


class LossSource(Protocol):
    """Yields the losses of one command as they appear; skips lines that make no sense.

    Never waits, and takes a bounded time whatever the command writes. Raises LossSourceError once it is
    certain that no loss will ever come.
    """

    def poll(self, *, final: bool = False) -> Sequence[Item]:
        """Return what has appeared since the last call; `final` when the command writes no more.

        The first call with `final` sets how far is read; further ones are needed until `at_end`.
        """
        ...

    @property
    def at_end(self) -> bool:
        """Whether the last call came to the end of what the command has written."""
        ...

    @property
    def place(self) -> Place | None:
        """How far was read, so that another source of the same kind can go on from there; None amid lines."""
        ...

    @property
    def progress(self) -> int:
        """A number that grows whenever something is read or searched, whether a loss is found or not."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Reported(LossSource):
    """What the command says through `slaq.report`, `slaq.announce` and `slaq.can_use`.

    When several processes of a command report, as the ranks of a distributed training may, the first one is
    listened to; another takes its place once that one has ended.
    """

    def __init__(self, path: Path, place: Place | None = None) -> None:
        self._tail = Tail(path, longest=LONGEST_LINE, start=None if place is None else int(place[0]))
        self._reporter: int | None = None

    @override
    def poll(self, *, final: bool = False) -> Sequence[Item]:
        if final:
            self._tail.finish()
        found = (self._parse(line) for line in self._tail.read())
        return [item for item in found if item is not None]

    @property
    @override
    def at_end(self) -> bool:
        return self._tail.at_end

    @property
    @override
    def place(self) -> Place:
        return (self._tail.place,)

    @property
    @override
    def progress(self) -> int:
        return self._tail.taken

    @override
    def close(self) -> None:
        self._tail.close()

    def _parse(self, line: bytes) -> Item | None:
        said = parse_report(line)
        if said is None:
            return None
        if said.pid != self._reporter:
            if self._reporter is not None and _alive(self._reporter):
                return None
            self._reporter = said.pid
        return said.item


class LossPattern(LossSource):
    """A regular expression searched for in each line of the output.

    A search that runs away is interrupted: Python's engine looks for signals while it works, and a timer of
    CPU time raises one. So any pattern may be tried, and none has to be judged by its looks.
    """

    def __init__(self, pattern: str, log: Path, place: Place | None = None) -> None:
        self._pattern = checked_pattern(pattern)
        self._group: str | int = "loss" if "loss" in self._pattern.groupindex else 1
        self._numbered = "iteration" in self._pattern.groupindex
        start = None if place is None else int(place[0])
        self._tail = Tail(log, longest=LONGEST_OUTPUT_LINE, start=start)
        self._waiting: list[bytes] = []
        #: Lines that were searched, how many of them took too long, and whether one held a loss.
        self._searched = self._slow = 0
        self._matched = False
        #: A match that is no number; and what was told to be wrong.
        self._odd = ""
        self._told: set[str] = set()

    @override
    def poll(self, *, final: bool = False) -> Sequence[Item]:
        if final:
            self._tail.finish()
        if not self._waiting:
            self._waiting = self._tail.read()
            if final and self._tail.at_end and (rest := self._tail.rest()):
                self._waiting.append(rest)
            self._waiting.reverse()
        found: list[Reading] = []
        # Lines that exceed the time of one search wait for the next call.
        enough = time.thread_time() + SEARCH_SECONDS
        while self._waiting and time.thread_time() < enough:
            self._searched += 1
            reading = self._search(self._waiting.pop())
            if reading is not None:
                found.append(reading)
        self._matched = self._matched or bool(found)
        return [*found, *self._complaints(final=final)]

    @property
    @override
    def at_end(self) -> bool:
        return self._tail.at_end and not self._waiting

    @property
    @override
    def place(self) -> Place | None:
        return None if self._waiting else (self._tail.place,)

    @property
    @override
    def progress(self) -> int:
        return self._tail.taken + self._searched

    @override
    def close(self) -> None:
        self._tail.close()

    def _complaints(self, *, final: bool) -> Iterator[Item]:
        """Yield what is wrong, each thing once."""
        shown = f"the loss pattern {self._pattern.pattern!r}"
        if self._odd and "odd" not in self._told:
            self._told.add("odd")
            remedy = r"put the number alone into the group, such as r'loss[ =:]+(\S+)'"
            yield NewSource(trouble=f"{shown} found {self._odd!r}, which is no number; {remedy}")
        silent = self._searched >= SILENT_LINES or (final and self.at_end)
        if silent and not self._matched and not self._odd and "silent" not in self._told:
            self._told.add("silent")
            remedy = "leave the pattern out to have losses looked for, or try `slaq detect` on the output"
            yield NewSource(trouble=f"{shown} matched none of {self._searched:,} lines of output; {remedy}")

    def _search(self, line: bytes) -> Reading | None:
        try:
            with _limited(SEARCH_SECONDS):
                match = self._pattern.search(seen(line))
        except _TooSlowError:
            self._slow += 1
            if self._slow >= SLOW_LINES:
                raise LossSourceError(
                    f"the loss pattern {self._pattern.pattern!r} takes too long on the lines of this output",
                    "give one without a repetition inside a repetition, such as r'loss[ =:]+(\\S+)'",
                ) from None
            return None
        if match is None:
            return None
        # `loss (\S+)` takes the comma after the number along.
        loss = number((match[self._group] or "").rstrip(",;:)]}"))
        if loss is None:
            self._odd = self._odd or (match[self._group] or "")[:_SHOWN]
            return None
        if not self._numbered:
            return Reading(loss=loss)
        iteration = _iteration(match["iteration"])
        return None if iteration is None else Reading(loss=loss, iteration=iteration)


class LossFile(LossSource):
    """A column of a CSV file with a header, or a key of a JSON Lines file, that the command writes.

    The first line tells which of the two it is. A file that is written anew, with the same losses at its start,
    is taken to tell the old story again: only what is beyond the losses known is new.
    """

    def __init__(self, path: Path, column: str, place: Place | None = None) -> None:
        self._path = path
        self._column = column
        start = None if place is None else int(place[0])
        self._tail = Tail(path, longest=LONGEST_FILE_LINE, start=start, follow=True)
        self._restarts = 0
        self._opened_at = time.monotonic()
        self._told: set[str] = set()
        self._rows = _Rows(column)
        self._first: float | None = None
        #: Losses read from the present file, and how many of its first losses were told before.
        self._seen = self._old = 0
        if place is not None:
            self._seen, self._old, self._first = int(place[1]), int(place[2]), place[3]
        if header := self._tail.first_line():
            self._read_old_header(header)

    @override
    def poll(self, *, final: bool = False) -> Sequence[Item]:
        if final:
            self._tail.finish()
        lines = self._tail.read()
        if final and self._tail.at_end and (rest := self._tail.rest()):
            lines.append(rest)
        if self._tail.restarts != self._restarts:
            self._restarts = self._tail.restarts
            self._rows = _Rows(self._column)
            self._old, self._seen = self._seen, 0
        found = []
        for line in lines:
            loss = self._loss(line)
            if loss is None:
                continue
            if self._seen == 0 and not _same(loss, self._first):
                self._first, self._old = loss, 0
            self._seen += 1
            if self._seen > self._old:
                found.append(Reading(loss=loss))
        return [*found, *self._complaints(final=final)]

    @property
    @override
    def at_end(self) -> bool:
        return self._tail.at_end

    @property
    @override
    def place(self) -> Place:
        return (self._tail.place, self._seen, self._old, math.nan if self._first is None else self._first)

    @property
    @override
    def progress(self) -> int:
        return self._tail.taken

    @override
    def close(self) -> None:
        self._tail.close()

    def _loss(self, line: bytes) -> float | None:
        return self._rows.loss(line.decode(errors="replace").removeprefix("\ufeff"))

    def _complaints(self, *, final: bool) -> Iterator[Item]:
        """Yield what is wrong, each thing once: the file may still come, and its header grow."""
        if self._seen:
            return
        late = final or time.monotonic() >= self._opened_at + ABSENT_SECONDS
        trouble, rows = "", self._rows
        if rows.odd:
            trouble = f"column {self._column!r} of {self._path} holds {rows.odd!r}, which is no number"
            trouble += "; name another with --loss-column"
        elif rows.lacks:
            names = ", ".join(rows.names[:20])[:300] or "none"
            trouble = f"{self._path} has no column {self._column!r} so far; name one of its columns"
            trouble += f" with --loss-column: {names}"
        elif late and not self._tail.taken:
            trouble = (
                f"{self._path} was not written so far; name a file that the command writes with --loss-file"
            )
        elif late and final:
            trouble = f"{self._path} holds no loss so far; name another column with --loss-column"
        if trouble and trouble not in self._told:
            self._told.add(trouble)
            yield NewSource(trouble=trouble)

    def _read_old_header(self, header: bytes) -> None:
        # An earlier run may have left a file of any kind, which the command is about to replace.
        self._loss(header)
        if self._rows.lacks:
            self._rows = _Rows(self._column)


class _Rows:
    """Reads lines of CSV or JSON, whichever the first line is."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.header: list[str] = []
        #: Keys of JSON objects that do not name the column, and how many such objects there were.
        self._keys: list[str] = []
        self._lacking = 0
        #: A cell of the column that is neither empty nor a number.
        self.odd = ""
        self._json: bool | None = None
        self._delimiter = ","

    @property
    def lacks(self) -> bool:
        """Whether the column is not in the header, or in none of many objects."""
        return (bool(self.header) and self.column not in self.header) or self._lacking >= SILENT_ROWS

    @property
    def names(self) -> list[str]:
        """What there is instead of the column."""
        return self.header or self._keys

    def loss(self, line: str) -> float | None:
        """Return the loss in the line, or None."""
        if self._json is None:
            self._json = line.lstrip().startswith("{")
        if self._json:
            return self._json_loss(json_object(line))
        if not self.header:
            self._read_header(line)
            return None
        cells = _cells(line, self._delimiter)
        place = self.header.index(self.column) if self.column in self.header else len(cells)
        return self._value(cells[place]) if place < len(cells) else None

    def _json_loss(self, found: Mapping[str, object]) -> float | None:
        if self.column in found:
            return self._value(found[self.column])
        self._lacking += bool(found)
        self._keys = self._keys or [key[:_SHOWN] for key in list(found)[:20]]
        return None

    def _value(self, cell: object) -> float | None:
        value = number(cell)
        if value is None and isinstance(cell, str) and cell.strip():
            self.odd = self.odd or cell.strip()[:_SHOWN]
        return value

    def _read_header(self, line: str) -> None:
        for delimiter in _DELIMITERS:
            names = [name.strip() for name in _cells(line, delimiter)]
            if len(names) > len(self.header):
                self.header, self._delimiter = names, delimiter


class _TooSlowError(Exception):
    """A search exceeded its CPU time."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TooSlowError in the body after so much CPU time; signals reach the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def expire(number: int, frame: FrameType | None) -> None:
        if armed:
            raise _TooSlowError

    before = signal.signal(signal.SIGVTALRM, expire)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
        armed = False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _iteration(text: str | None) -> int | None:
    found = number(text)
    if found is None or not 0 <= found < _LARGEST_ITERATION:
        return None
    return int(found)


def _same(loss: float, other: float | None) -> bool:
    return other is not None and (loss == other or (math.isnan(loss) and math.isnan(other)))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
