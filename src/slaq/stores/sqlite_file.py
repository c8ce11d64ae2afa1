"""The database file: open in one process, with one writer, many readers, and backups while in use."""

import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreError
from slaq.stores.sqlite_errors import told
from slaq.stores.sqlite_lock import ProcessLock
from slaq.stores.sqlite_schema import upgrade

#: Seconds to wait for another program that writes, such as a shell someone opened on the file.
_PATIENCE = 10.0
#: Pages after which what was written to the write-ahead log moves into the database; 16 MiB.
_PAGES_AHEAD = 4096
#: What the write-ahead log is cut back to after a long backup made it grow.
_BYTES_AHEAD = 64 * 2**20
#: Readers that are kept open while nobody reads.
_IDLE_READERS = 16


@dataclass(slots=True)
class Transaction:
    """One unit of writing: all of it is on disk after it, or none of it."""

    db: sqlite3.Connection
    #: Where the log of events and decisions has come to.
    seq: int
    #: The latest moment stored.
    time: float

    def see(self, moment: float) -> None:
        """Note a moment that is being stored."""
        self.time = max(self.time, moment)


class DatabaseFile:
    """A SQLite database in WAL mode, every commit of which survives a loss of power."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._write_lock = threading.RLock()
        self._writer_thread: int | None = None
        self._transaction: Transaction | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._lock = ProcessLock(path)
        try:
            with self.errors():
                _make_private(path)
                self._writer = self._connect()
                upgrade(self._writer, path)
        except BaseException:
            self._close_connections()
            self._lock.release()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Hold one transaction; inside another of the same thread it becomes part of that one."""
        with self._write_lock, self.errors():
            outer = self._transaction
            if outer is None:
                with self._outermost() as transaction:
                    yield transaction
            else:
                with _nested(outer):
                    yield outer

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold a connection that sees one state of the database; in a transaction, also what that wrote so far."""
        if self._writer_thread == threading.get_ident():
            with self.errors():
                yield self._writer
            return
        with self.errors():
            reader = self._reader()
            try:
                reader.execute("BEGIN")
                yield reader
            finally:
                self._hand_back(reader)

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Tell what goes wrong in SQLite in slaq's own words."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise told(error, self.path) from error

    def backup(self, target: Path) -> None:
        """Copy one state of the database to a file that does not exist yet, while others read and write."""
        with self.errors():
            if target.exists():
                raise StoreError(str(target), "there is such a file already", "name another one")
            partial = target.with_name(target.name + ".partial")
            partial.unlink(missing_ok=True)
        try:
            with contextlib.closing(self._connect(read_only=True)) as source, _errors_of(target):
                _make_private(partial)
                with contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as copy:
                    # In one go, because a copy in parts begins again whenever something is written.
                    source.backup(copy)
                    # The copy is one file, without a write-ahead log beside it.
                    copy.execute("PRAGMA journal_mode = DELETE")
                _flush(partial)
                os.link(partial, target)
                _flush(target.parent)
        finally:
            for leftover in (partial, *(Path(f"{partial}{end}") for end in ("-journal", "-wal", "-shm"))):
                leftover.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; one that is closed stays so."""
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
            try:
                with self.errors():
                    self._close_connections()
            finally:
                self._lock.release()

    @contextlib.contextmanager
    def _outermost(self) -> Iterator[Transaction]:
        if self._closed:
            raise StoreError(str(self.path), "it was closed", "open it again")
        self._writer.execute("BEGIN IMMEDIATE")
        self._writer_thread = threading.get_ident()
        try:
            seq, time = self._writer.execute("SELECT seq, time FROM counters").fetchone()
            transaction = self._transaction = Transaction(self._writer, seq, time)
            yield transaction
            if (transaction.seq, transaction.time) != (seq, time):
                self._writer.execute(
                    "UPDATE counters SET seq = ?, time = ?", (transaction.seq, transaction.time)
                )
            self._writer.execute("COMMIT")
        finally:
            self._transaction = self._writer_thread = None
            # Nothing is left open after a commit; a disk that is full may have ended the transaction as well.
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            connection.execute(f"PRAGMA query_only = {int(read_only)}")
            if not read_only:
                # Takes effect where there is no table yet: freed pages can then be given back bit by bit.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
                if mode != "wal":
                    raise StoreError(
                        str(self.path), "its file system has no shared memory", "put it on a local disk"
                    )
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_AHEAD}")
                connection.execute(f"PRAGMA journal_size_limit = {_BYTES_AHEAD}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _reader(self) -> sqlite3.Connection:
        if self._closed:
            raise StoreError(str(self.path), "it was closed", "open it again")
        try:
            return self._readers.pop()
        except IndexError:
            return self._connect(read_only=True)

    def _hand_back(self, reader: sqlite3.Connection) -> None:
        if reader.in_transaction:
            reader.execute("ROLLBACK")
        if self._closed or len(self._readers) >= _IDLE_READERS:
            reader.close()
        else:
            self._readers.append(reader)

    def _close_connections(self) -> None:
        while self._readers:
            self._readers.pop().close()
        if hasattr(self, "_writer"):
            self._writer.close()


@contextlib.contextmanager
def _nested(outer: Transaction) -> Iterator[None]:
    """Undo only what was written inside, where that fails."""
    seq, time = outer.seq, outer.time
    outer.db.execute("SAVEPOINT nested")
    try:
        yield
    except BaseException:
        if outer.db.in_transaction:
            outer.db.execute("ROLLBACK TO nested")
            outer.db.execute("RELEASE nested")
        outer.seq, outer.time = seq, time
        raise
    outer.db.execute("RELEASE nested")


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise told(error, path) from error


def _make_private(path: Path) -> None:
    """Make the file where it is missing: commands and their environments concern nobody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise StoreCorruptError(str(path), "it is a directory")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _flush(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
