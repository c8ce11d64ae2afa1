"""What went wrong in SQLite, told as slaq's own errors."""

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
    """Raise what SQLite reports as the error to be told; what other code raises inside is left as it is."""
    try:
        yield
    except sqlite3.Error as error:
        raise told(error, path) from error


@contextlib.contextmanager
def file_errors_of(path: Path) -> Iterator[None]:
    """Raise what SQLite or the operating system reports as the error to be told."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise told(error, path) from error


def told(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """Return the error to raise instead."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.errno in _UNWRITABLE:
            return StoreFullError(str(path), reason)
        return StoreError(str(path), f"it cannot be opened ({reason})", "check the path and its permissions")
    # Errors of the sqlite3 module itself carry no code.
    extended = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code in _FULL and extended not in _UNREADABLE:
        return StoreFullError(str(path), str(error))
    if code in _CORRUPT or extended in _UNREADABLE:
        return StoreCorruptError(str(path), f"it cannot be read ({error})")
    if code in _LOCKED:
        return StoreLockedError(str(path), None)
    return StoreError(str(path), f"SQLite reports: {error}", "check the path and its permissions")
