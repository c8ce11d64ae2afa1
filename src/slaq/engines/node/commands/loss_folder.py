"""Finds files of losses in the folder that a command runs in, and reads what is added to them."""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from slaq.detection.point import Point
from slaq.engines.node.commands.folder_files import (
    TABLE_ENDS,
    PointFile,
    heading_tells_losses,
    holds_losses,
    source_for,
)
from slaq.engines.node.commands.marks import mark_of
from slaq.engines.processes import stat_fields

#: Seconds between two looks for files: at first, and at most; each look that finds nothing doubles them.
FIRST_LOOK, LONGEST_LOOK = 1.0, 30.0
#: How deep files are looked for, how many names at a time and in one folder within it, and how many files are read.
DEEPEST, MOST_NAMES, MOST_IN_FOLDER, MOST_FILES = 5, 8000, 2000, 32
#: Tables of other names whose first lines are looked at, at a time and in all.
MOST_HEADINGS, MOST_TABLES = 64, 2000
#: Folders that hold no losses, and may hold very many files.
_PASSED_OVER = frozenset({"node_modules", "site-packages", "venv", "__pycache__", "artifacts"})
#: Seconds that the clock of a file system may be behind.
_SLACK = 0.05


@dataclass(slots=True)
class _Watches:
    """The folders that this reader looks at, one entry for each command."""

    folders: list[Path] = field(default_factory=list)

    def shared(self, folder: Path) -> bool:
        """Return whether another command runs in this folder, in one above it or in one below it."""
        others = list(self.folders)
        others.remove(folder)
        return any(one == folder or one in folder.parents or folder in one.parents for one in others)


_watches = _Watches()


class LossFolder:
    """The files of losses of one command that were written since it began.

    Where several commands of a user run in one folder, a file counts only if its name tells whose it is, as those
    of TensorBoard do by the number of the process.
    """

    def __init__(self, folder: Path, *, mark: str = "", since: float | None = None) -> None:
        """Count files that were written since a moment in Unix seconds; without one, since now."""
        self._folder = folder.absolute()
        self._mark = mark
        self._since = time.time() - _SLACK if since is None else since
        self._sources: dict[str, PointFile] = {}
        self._due, self._pause = 0.0, FIRST_LOOK
        self._kept = ""
        #: Points of the series kept to that were read; those that an earlier reader had told are passed over.
        self._read = self._skip = 0
        self._series = ""
        self.at_end = True
        #: Whether files were passed over because nobody can say whose they are.
        self.ambiguous = False
        #: By path: whether the first line of a table of another name tells losses.
        self._headings: dict[str, bool] = {}
        self._looks = 0
        _watches.folders.append(self._folder)
        #: Tables that an earlier job left, the newest of them: what stands in them is skipped.
        self._old: dict[str, PointFile] = {}
        for file, path in self._newest() if since is None else ():
            source = source_for(path, since=self._since, skip=True)
            if source is not None and source.appended:
                self._old[file] = source

    @property
    def taken(self) -> int:
        """A number that grows with what is read."""
        return sum(source.taken for source in self._sources.values())

    @property
    def told(self) -> Sequence[float]:
        """How many points of the series kept to were read, and what moment counts as the beginning."""
        return [self._read, self._since]

    def keep_to(self, file: str, told: Sequence[float], series: str) -> None:
        """Read one file from its start, without what an earlier reader told of a series."""
        self._skip, self._since = int(told[0]), float(told[1])
        self._sources.clear()
        source = source_for(self._folder / file, since=self._since)
        if source is not None:
            self._sources[file] = source
        self._kept, self._series = file, series

    def drop_all_but(self, file: str, series: str, read: int) -> None:
        """Go on with one file."""
        for name in [name for name in self._sources if name != file]:
            self._sources.pop(name).close()
        self._kept, self._series, self._read = file, series, read

    def read(self, *, final: bool) -> Iterator[tuple[str, Sequence[Point]]]:
        """Yield what was added to each file, by its path in the folder."""
        if not self._kept and (final or time.monotonic() >= self._due):
            self._look()
        self.at_end = True
        for file, source in list(self._sources.items()):
            points = source.read(final=final)
            self.at_end = self.at_end and source.at_end
            if points:
                yield file, self._without_told(points) if self._kept else points

    def close(self) -> None:
        """Close the files."""
        for source in (*self._sources.values(), *self._old.values()):
            source.close()
        self._sources.clear()
        self._old.clear()
        with suppress(ValueError):
            _watches.folders.remove(self._folder)

    def _without_told(self, points: Sequence[Point]) -> Sequence[Point]:
        fresh = []
        for point in points:
            if point.series != self._series:
                continue
            self._read += 1
            if self._read > self._skip:
                fresh.append(point)
        return fresh

    def _look(self) -> None:
        """Look for files that were written since the command began."""
        before = len(self._sources)
        for file, path in self._names():
            if file in self._sources or len(self._sources) >= MOST_FILES or not self._counts(path):
                continue
            source = self._old.pop(file, None) or source_for(path, since=self._since)
            if source is not None:
                self._sources[file] = source
        self._pause = FIRST_LOOK if len(self._sources) > before else min(2 * self._pause, LONGEST_LOOK)
        self._due = time.monotonic() + self._pause

    def _newest(self) -> list[tuple[str, Path]]:
        """Return the tables that were written last."""

        def written(found: tuple[str, Path]) -> float:
            try:
                return found[1].lstat().st_mtime
            except OSError:
                return 0.0

        tables = [one for one in self._names() if one[0].endswith((*TABLE_ENDS, ".json", ".log"))]
        return sorted(tables, key=written, reverse=True)[:MOST_FILES]

    def _counts(self, path: Path) -> bool:
        """Return whether a file is of this command."""
        try:
            about = path.lstat()
        except OSError:
            return False
        if not stat.S_ISREG(about.st_mode) or about.st_mtime < self._since:
            return False
        if not self._mark or not _watches.shared(self._folder):
            return True
        owner = _writer_of(path.name)
        if owner is not None and stat_fields(owner):
            return mark_of(owner) == self._mark
        self.ambiguous = True
        return False

    def _heading(self, entry: "os.DirEntry[str]") -> bool:
        """Return whether the first line of a table tells losses; a table is looked into once."""
        if (known := self._headings.get(entry.path)) is not None:
            return known
        if self._looks == 0 or len(self._headings) >= MOST_TABLES:
            return False
        self._looks -= 1
        tells = heading_tells_losses(Path(entry.path))
        if tells is not None:
            self._headings[entry.path] = tells
        return bool(tells)

    def _names(self) -> Iterator[tuple[str, Path]]:
        """Yield the files that may hold losses: their paths in the folder, and from the root."""
        left, folders = MOST_NAMES, [(self._folder, 0)]
        self._looks = MOST_HEADINGS
        while folders:
            folder, depth = folders.pop(0)
            try:
                with os.scandir(folder) as entries:
                    for entry in islice(entries, MOST_IN_FOLDER if depth else MOST_NAMES // 2):
                        left -= 1
                        if left < 0:
                            return
                        name = entry.name
                        if entry.is_dir(follow_symlinks=False):
                            if depth < DEEPEST and name[0] != "." and name not in _PASSED_OVER:
                                folders.append((Path(entry.path), depth + 1))
                        elif holds_losses(name) or (name.endswith(TABLE_ENDS) and self._heading(entry)):
                            path = Path(entry.path)
                            yield str(path.relative_to(self._folder)), path
            except (OSError, ValueError):
                continue


def _writer_of(name: str) -> int | None:
    """Return the process that TensorBoard's file names as its writer: events.out.tfevents.TIME.HOST.PROCESS.N."""
    parts = name.rsplit(".", 2)
    return int(parts[1]) if ".tfevents." in name and len(parts) == 3 and parts[1].isdecimal() else None
