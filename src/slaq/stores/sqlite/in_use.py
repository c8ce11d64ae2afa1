"""A note beside a database in use, by which the loss of its last writes is seen when it is opened again.

Those writes are in the write-ahead log until they are copied into the database. Without the log SQLite opens an
older state, or an empty one, and says nothing.
"""

import contextlib
import os
import sqlite3
from pathlib import Path

from slaq.core.errors import StoreError
from slaq.durable import flush_folder, write_durably

#: The key that a copy of a database has, until the copy is opened for use.
COPY = "copy"
#: What the note says; of one length, so that changing it takes no room on a full disk.
_IN_USE, _CLOSED = b"in use\n", b"closed\n"


class InUseNote:
    """The note `<database>.in-use`, which says whether the last writes may be in the log alone."""

    def __init__(self, database: Path) -> None:
        """Take the path of the database file itself, not of a link to it."""
        self._database = database
        self._log = Path(f"{database}-wal")
        self.path = Path(f"{database}.in-use")

    def check(self) -> None:
        """Raise StoreError where the database is gone, or its log with the last writes, or the log is another's."""
        copied = _is_copy(self._database)
        if copied and self._log.exists() and self._log.stat().st_size:
            names = f"{self._database.name}-wal and {self._database.name}-shm"
            raise StoreError(
                str(self._database),
                f"the database is a copy that was put in the place of another, whose {names} are still there",
                f"remove those: rm -f {self._log} {self._database}-shm",
            )
        note = self._text()
        if note is not None and not (self._database.exists() and self._database.stat().st_size):
            raise StoreError(
                str(self._database),
                "there was a database here, and it is gone",
                f"put it back, or a backup in its place; to begin with an empty one: rm {self.path}",
            )
        if note not in (None, _CLOSED) and not copied and not self._log.exists():
            raise StoreError(
                str(self._database),
                f"the database was not closed, and {self._log.name}, which holds its last writes, is gone",
                "put that file back, or a backup in the place of the database; to go on with what is left, losing"
                f" the last writes: rm {self.path}",
            )

    def open(self) -> None:
        """Note that the database is in use. The log is there: its name survives a loss of power with the note."""
        self._write(_IN_USE)

    def close(self) -> None:
        """Note that nothing would be lost with the log."""
        self._write(_CLOSED)

    def _text(self) -> bytes | None:
        """Return what the note says; None where there is none."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, text: bytes) -> None:
        try:
            note = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            write_durably(self.path, [text])
            return
        try:
            os.pwrite(note, text, 0)
            os.fsync(note)
        finally:
            os.close(note)
        flush_folder(self.path.parent)


def _is_copy(database: Path) -> bool:
    """Return whether the file is a copy that was not opened yet; its log, if there is one, is not looked at."""
    address = f"{database.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as reader:
            found = reader.execute("SELECT 1 FROM meta WHERE key = ?", (COPY,)).fetchone()
    except sqlite3.Error:
        return False
    return found is not None


def mark_copy(copy: sqlite3.Connection) -> None:
    """Mark a database as a copy."""
    copy.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, '1')", (COPY,))


def unmark_copy(connection: sqlite3.Connection) -> None:
    """Take a copy for a database of its own: the mark is gone from the file itself when this returns."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
        return
    if connection.execute("DELETE FROM meta WHERE key = ?", (COPY,)).rowcount:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
