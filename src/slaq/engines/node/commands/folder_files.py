"""Reads the files that frameworks write their losses to, each kind in its way, as they grow."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from slaq.core.errors import LossSourceError
from slaq.detection.point import Point
from slaq.detection.tables import TableReader, tells_losses
from slaq.detection.tfevents import EventReader
from slaq.detection.trainer_state import LARGEST_FILE, read_trainer_state
from slaq.engines.node.commands.mlflow_metrics import MlflowReader
from slaq.engines.node.commands.tail import Tail
from slaq.engines.regular_file import open_regular

#: Names of tables of losses.
TABLES = frozenset(
    (
        *(
            "metrics.csv",
            "progress.csv",
            "history.csv",
            "log.csv",
            "logs.csv",
            "training.csv",
            "training.log",
        ),
        *("training_log.csv", "loss.csv", "losses.csv", "results.csv", "learn_error.tsv"),
        *("metrics.jsonl", "metrics.json", "progress.jsonl", "history.jsonl", "log.jsonl", "result.json"),
    )
)
#: How the names of other tables end, whose first line tells what they hold; and the bytes of it that are looked at.
TABLE_ENDS = (".csv", ".tsv", ".jsonl", ".ndjson")
_LONGEST_HEADING = 8192
DATABASES = frozenset(("mlflow.db", "mlruns.db"))
STATE = "trainer_state.json"
#: Bytes of a line of a table, and of events read at once.
_LONGEST_LINE, _PIECE = 65536, 256 * 1024
_COUNT = re.compile(rb'"iteration_count":(\d{1,15})\b')


class PointFile(Protocol):
    """Yields the points of one file as they appear, each once. Never waits for whoever writes the file."""

    #: Whether others may have added to the file before.
    appended: bool
    #: Whether the last call came to the end of the file.
    at_end: bool
    #: A number that grows with what is read.
    taken: int

    def read(self, *, final: bool) -> Sequence[Point]:
        """Return what was added since the last call; `final` when the command writes no more."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class _Table(PointFile):
    """CSV, JSON Lines, or CatBoost's table. One that is written anew tells its old rows again: they are skipped."""

    appended = True

    def __init__(self, path: Path, *, skip: bool) -> None:
        self._path = path
        self._tail = Tail(path, longest=_LONGEST_LINE, start=None if skip else 0)
        self._restarts = 0
        self.at_end, self.taken = True, 0
        self._table = TableReader()
        #: By series: the first value, points read of the present file, and of it and those before it.
        self._first: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._most: dict[str, int] = {}
        if header := self._tail.first_line():
            self._table.feed(header)

    @override
    def read(self, *, final: bool) -> Sequence[Point]:
        try:
            if final:
                self._tail.finish()
            lines = self._tail.read()
        except (OSError, LossSourceError):
            self.at_end = True
            return ()
        self.at_end, self.taken = self._tail.at_end, self._tail.taken
        if final and self._tail.at_end and (rest := self._tail.rest()):
            lines.append(rest)
        if self._tail.restarts != self._restarts:
            self._restarts = self._tail.restarts
            self._table, self._seen = TableReader(), {}
        total = self._total() if lines else None
        found = []
        for line in lines:
            for point in self._table.feed(line):
                if self._is_new(point):
                    found.append(point if total is None else _with_total(point, total))
        return found

    @override
    def close(self) -> None:
        self._tail.close()

    def _is_new(self, point: Point) -> bool:
        name, seen = point.series, self._seen.get(point.series, 0)
        if seen == 0 and self._first.get(name) != point.value:
            self._first[name], self._most[name] = point.value, 0
        self._seen[name] = seen + 1
        if seen + 1 <= self._most.get(name, 0):
            return False
        self._most[name] = seen + 1
        return True

    def _total(self) -> int | None:
        return catboost_rounds(self._path.parent) if self._path.suffix == ".tsv" else None


class _Events(PointFile):
    """An event file of TensorBoard."""

    appended = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events = EventReader()
        self.at_end, self.taken = True, 0

    @override
    def read(self, *, final: bool) -> Sequence[Point]:
        piece = _content(self._path, _PIECE, self.taken)
        self.taken += len(piece)
        self.at_end = len(piece) < _PIECE
        return self._events.feed(piece)

    @override
    def close(self) -> None:
        """Hold nothing open."""


class _State(PointFile):
    """The newest `trainer_state.json` of a folder with checkpoints: each holds the whole story so far."""

    appended = False

    def __init__(self, path: Path) -> None:
        self._folder = path.parent.parent
        self._read: tuple[str, int] | None = None
        self._told = 0
        self.at_end, self.taken = True, 0

    @override
    def read(self, *, final: bool) -> Sequence[Point]:
        newest: tuple[int, Path] | None = None
        for path in self._folder.glob(f"*/{STATE}"):
            try:
                about = path.lstat().st_mtime_ns
            except OSError:
                continue
            newest = max(newest or (about, path), (about, path))
        if newest is None or self._read == (str(newest[1]), newest[0]):
            return ()
        content = _content(newest[1], LARGEST_FILE)
        points = read_trainer_state(content)
        if points is None:
            return ()
        self._read = (str(newest[1]), newest[0])
        self.taken += len(content)
        fresh, self._told = points[self._told :], max(len(points), self._told)
        return fresh

    @override
    def close(self) -> None:
        """Hold nothing open."""


class _Mlflow(PointFile):
    """MLflow's database."""

    appended = False

    def __init__(self, path: Path, since: float) -> None:
        self._reader = MlflowReader(path, since)
        self.at_end, self.taken = True, 0

    @override
    def read(self, *, final: bool) -> Sequence[Point]:
        points = self._reader.read()
        self.taken += len(points)
        self.at_end = not points
        return points

    @override
    def close(self) -> None:
        """Hold nothing open."""


def holds_losses(name: str) -> bool:
    """Return whether the name of a file says that it holds losses."""
    return name in TABLES or name in DATABASES or name == STATE or ".tfevents." in name


def heading_tells_losses(path: Path) -> bool | None:
    """Return whether the first line of a table says that it holds losses; None where it is not written yet."""
    line, broken, _ = _content(path, _LONGEST_HEADING).partition(b"\n")
    return tells_losses(line) if broken else None


def source_for(path: Path, *, since: float, skip: bool = False) -> PointFile | None:
    """Return what reads a file; None where its name does not say that it holds losses, or it cannot be read.

    With `skip` a table is read from its present end on.
    """
    name = path.name
    if name in TABLES or (name.endswith(TABLE_ENDS) and heading_tells_losses(path)):
        try:
            return _Table(path, skip=skip)
        except (OSError, LossSourceError):
            return None
    if name in DATABASES:
        return _Mlflow(path, since)
    if name == STATE:
        return _State(path)
    return _Events(path) if holds_losses(name) else None


def catboost_rounds(folder: Path, since: float = 0.0) -> int | None:
    """Return the number of rounds that CatBoost tells in a folder of its, where it did so after a moment."""
    path = folder / "catboost_training.json"
    try:
        if path.lstat().st_mtime < since:
            return None
    except OSError:
        return None
    found = _COUNT.search(_content(path, 65536))
    return int(found[1]) if found else None


def _with_total(point: Point, total: int) -> Point:
    step = None if point.step is None else point.step + 1
    return Point(series=point.series, value=point.value, step=step, total=total, at=point.at)


def _content(path: Path, most: int, offset: int = 0) -> bytes:
    """Return so many bytes of a file; nothing where it cannot be read now."""
    try:
        file = open_regular(path)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(file, most, offset)
    except OSError:
        return b""
    finally:
        os.close(file)
