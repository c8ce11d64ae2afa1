"""Create database files that only their owner can read, and copy them atomically."""

import contextlib
import os
import sqlite3
from pathlib import Path

from slaq.core.errors import StoreError
from slaq.durable import flush, flush_folder, rename_durably
from slaq.stores.sqlite.in_use import mark_copy


def make_private(path: Path) -> None:
    """Create the file if it is missing, readable only by its owner, because it holds commands and environments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """Copy one state of a database to a new file, while others read and write the database."""
    if target.exists():
        raise StoreError(str(target), "the file exists already", "name another file")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        make_private(partial)
        with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            # In one step, because a copy in parts starts again after every write.
            source.backup(copy)
            # The copy is one file, without a write-ahead log.
            copy.execute("PRAGMA journal_mode = DELETE")
            mark_copy(copy)
        flush(partial)
        _name(partial, target)
        flush_folder(target.parent)
    finally:
        for left in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial}{left}").unlink(missing_ok=True)


def _name(partial: Path, target: Path) -> None:
    try:
        # Unlike a rename, a link never replaces a file that another process created in the meantime.
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        # Not every file system supports links.
        rename_durably(partial, target)
