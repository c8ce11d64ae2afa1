"""Reads the metrics in MLflow's SQLite database, without ever holding up whoever writes it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from slaq.detection.names import LONGEST_NAME
from slaq.detection.output import LARGEST_STEP
from slaq.detection.point import Point

#: Rows taken at once; steps of SQLite's machine that one query may take, and bytes of one value.
MOST_ROWS, MOST_WORK, LONGEST_VALUE = 2000, 2_000_000, 100_000
#: Where the header tells the kind of journal; its bytes, which change with every transaction; the kind of a log.
_KIND_AT, _HEADER, _WAL = 18, 100, 2
_QUERY = (
    'SELECT rowid, "key", value, is_nan, step, timestamp FROM metrics WHERE rowid > ? ORDER BY rowid LIMIT ?'
)


class MlflowReader:
    """Reads the rows that were added since the last call.

    A database with a rollback journal is opened as if nobody wrote it, which takes no lock at all. What was read
    counts only if the database did not change meanwhile and no transaction was under way, before and after. With a
    write-ahead log, readers hold up nobody anyway.
    """

    def __init__(self, path: Path, since: float) -> None:
        """Read the rows of metrics that were logged after a moment, in Unix seconds."""
        self._path = path
        self._since_ms = int(since * 1000)
        self._row = 0

    def read(self) -> Sequence[Point]:
        """Return what is new; nothing where the database cannot be read just now."""
        before = self._version()
        if before is None:
            return ()
        try:
            rows = self._rows(wal=before[_KIND_AT] == _WAL)
        except (sqlite3.Error, ValueError):
            return ()
        if before[_KIND_AT] != _WAL and self._version() != before:
            return ()
        if rows:
            self._row = max(row[0] for row in rows)
        return [point for row in rows if (point := self._point(row)) is not None]

    def _rows(self, *, wal: bool) -> list[tuple[int, object, object, object, object, object]]:
        mode = "mode=ro" if wal else "immutable=1"
        db = sqlite3.connect(f"file:{quote(str(self._path))}?{mode}", uri=True, timeout=0.0)
        work = 0

        def count() -> bool:
            nonlocal work
            work += 1
            return work > MOST_WORK // 10_000

        try:
            db.text_factory = _text
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            db.set_progress_handler(count, 10_000)
            db.execute("PRAGMA trusted_schema = OFF")
            found = db.execute(_QUERY, (self._row, MOST_ROWS)).fetchall()
            return [row for row in found if isinstance(row[0], int)]
        finally:
            db.close()

    def _version(self) -> bytes | None:
        """Return the header of the database; None while a transaction is under way, or where there is none."""
        try:
            with self._path.open("rb") as file:
                header = file.read(_HEADER)
            hot = Path(f"{self._path}-journal").exists() and Path(f"{self._path}-journal").stat().st_size > 0
        except (OSError, ValueError):
            return None
        return header if len(header) == _HEADER and not hot else None

    def _point(self, row: tuple[int, object, object, object, object, object]) -> Point | None:
        _, name, value, is_nan, step, stamp = row
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            return None
        if not isinstance(value, int | float) or not isinstance(stamp, int) or stamp < self._since_ms:
            return None
        whole = isinstance(step, int) and 0 <= step < LARGEST_STEP
        return Point(
            series=name,
            value=float("nan") if is_nan else float(value),
            step=step if whole and isinstance(step, int) else None,
            at=min(stamp / 1000, 1e11),
        )


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
