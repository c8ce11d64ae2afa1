"""Whole databases as files: for nobody else to read, and copied so that a copy is there whole or not at all."""

import contextlib
import os
import sqlite3
from pathlib import Path

from slaq.core.errors import StoreError


def make_private(path: Path) -> None:
    """Make the file where it is missing: commands and their environments concern nobody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """Copy one state of a database to a file that does not exist yet, while others read and write it."""
    if target.exists():
        raise StoreError(str(target), "there is such a file already", "name another one")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        make_private(partial)
        with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            # In one go, because a copy in parts begins again whenever something is written.
            source.backup(copy)
            # One file, without a write-ahead log beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
        _flush(partial)
        _name(partial, target)
        _flush(target.parent)
    finally:
        for left in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial}{left}").unlink(missing_ok=True)


def _name(partial: Path, target: Path) -> None:
    try:
        # Unlike a renaming, this never replaces a file that came to be there in the meantime.
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system has links.
        partial.rename(target)


def _flush(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
