"""Translate errors of SQLite into slaq's errors."""

import contextlib
import errno
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreError, StoreFullError, StoreLockedError

_UNREADABLE = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}
# Primary result codes: the low byte of what SQLite reports.
_FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}


@contextlib.contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Translate errors of SQLite inside the block; other exceptions pass through."""
    try:
        yield
    except sqlite3.Error as error:
        raise told(error, path) from error


@contextlib.contextmanager
def file_errors_of(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and of the operating system inside the block."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise told(error, path) from error


def told(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Return slaq's error for an error of SQLite or of the operating system."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.errno in _UNWRITABLE:
            return StoreFullError(str(path), reason)
        return StoreError(
            str(path), f"the database cannot be opened ({reason})", "check the path and its permissions"
        )
    # Errors of the sqlite3 module itself carry no code.
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in _FULL and extended not in _UNREADABLE:
        return StoreFullError(str(path), str(error))
    if code in _CORRUPT or extended in _UNREADABLE:
        return StoreCorruptError(str(path), f"the database cannot be read ({error})")
    if code in _LOCKED:
        return StoreLockedError(str(path), None)
    return StoreError(str(path), f"SQLite reports: {error}", "check the path and its permissions")
