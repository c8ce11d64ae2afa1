"""The database file: used by one process, with one writer, many readers, and backups during use."""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slaq.core.errors import StoreCorruptError, StoreError, StoreFullError
from slaq.stores.sqlite.copying import copy_database, make_private
from slaq.stores.sqlite.errors import errors_of, file_errors_of, told
from slaq.stores.sqlite.in_use import InUseNote, unmark_copy
from slaq.stores.sqlite.lock import ProcessLock
from slaq.stores.sqlite.schema import check_version, upgrade

#: Seconds to wait for another program that writes, such as the sqlite3 shell.
_PATIENCE = 10.0
#: Pages in the write-ahead log after which it is copied into the database; 16 MiB.
_PAGES_AHEAD = 4096
#: The size to which the write-ahead log is truncated, such as after a long backup. If it is larger, the writer
#: waits for a moment without readers.
BYTES_AHEAD = 64 * 2**20
#: The longest such wait, in milliseconds.
_STAND_BACK = 100
#: KiB of pages that the writer caches: enough for an epoch of many jobs.
WRITER_MEMORY = 32 * 1024
#: The most idle readers that are kept open.
_IDLE_READERS = 16


@dataclass(slots=True)
class Transaction:
    """One transaction: after it, all or nothing of it is on disk."""

    db: sqlite3.Connection
    #: The last position in the log of events and decisions.
    seq: int
    #: The latest moment stored.
    time: float
    #: The error that aborted the transaction.
    lost: StoreError | None = None

    def see(self, moment: float) -> None:
        """Record a moment that is being stored."""
        self.time = max(self.time, moment)


class DatabaseFile:
    """A SQLite database in WAL mode, every commit of which survives a loss of power."""

    def __init__(self, path: Path, cores_per_unit: float = 1.0) -> None:
        self.path = path
        self._write_lock = threading.RLock()
        self._writer_thread: int | None = None
        self._transaction: Transaction | None = None
        self._readers: deque[sqlite3.Connection] = deque()
        self._closed = False
        # The lock lies beside the file itself, even if the path is a link.
        self._log = Path(f"{path.resolve()}-wal")
        self._note = InUseNote(path.resolve())
        self._longest_log = BYTES_AHEAD
        with file_errors_of(path), contextlib.ExitStack() as undo:
            if path.is_dir():
                raise StoreCorruptError(str(path), "the path is a directory")
            # First, because closing any other descriptor of an open database releases SQLite's own locks.
            self._lock = ProcessLock(path)
            undo.callback(self._lock.release)
            self._note.check()
            make_private(path)
            self._writer = self._connect()
            undo.callback(self._writer.close)
            _prepare(self._writer, path, cores_per_unit)
            self._note.open()
            undo.pop_all()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Hold one transaction; inside another of the same thread, become part of that one."""
        with self._write_lock, errors_of(self.path):
            outer = self._transaction
            if outer is None:
                with self._outermost() as transaction:
                    yield transaction
            else:
                with self._nested(outer):
                    yield outer

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold a connection that reads one state of the database, including the writes of an open transaction."""
        with errors_of(self.path):
            if self._writer_thread == threading.get_ident():
                yield self._writer
                return
            reader = self._reader()
            try:
                reader.execute("BEGIN")
                yield reader
            finally:
                self._hand_back(reader)

    @contextlib.contextmanager
    def alone(self) -> Iterator[sqlite3.Connection]:
        """Hold the writing connection outside any transaction, for statements that need that."""
        with self._write_lock, errors_of(self.path):
            if self._transaction is not None or self._closed:
                raise StoreError(
                    str(self.path), "a transaction is open in this thread", "do this outside an epoch"
                )
            yield self._writer

    def backup(self, target: Path) -> None:
        """Copy one state of the database to a new file, while others read and write."""
        with errors_of(self.path):
            source = self._connect(read_only=True)
        with contextlib.closing(source), file_errors_of(target):
            copy_database(source, target)

    def close(self) -> None:
        """Close the file; closing again has no effect."""
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
            try:
                with errors_of(self.path):
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
            if transaction.lost is not None:
                raise transaction.lost
            if (transaction.seq, transaction.time) != (seq, time):
                self._writer.execute(
                    "UPDATE counters SET seq = ?, time = ?", (transaction.seq, transaction.time)
                )
            self._writer.execute("COMMIT")
            self._cut_log_back()
        except (sqlite3.Error, StoreFullError):
            self._end()
            # On a full disk no commit copies the log into the database any more. This does, so that the log can
            # start again in the space that it has.
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            raise
        finally:
            self._end()

    def _cut_log_back(self) -> None:
        """Truncate the log if readers, which overlap all the time, have prevented that for long."""
        # The data is committed, so an error here must not be raised.
        with contextlib.suppress(sqlite3.Error, OSError):
            if self._log.stat().st_size <= self._longest_log:
                return
            try:
                self._writer.execute(f"PRAGMA busy_timeout = {_STAND_BACK}")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._writer.execute(f"PRAGMA busy_timeout = {int(1000 * _PATIENCE)}")
            # Do not wait at every commit for a long reader, such as a backup.
            self._longest_log = max(BYTES_AHEAD, 2 * self._log.stat().st_size)

    def _end(self) -> None:
        self._transaction = self._writer_thread = None
        # No transaction is open after a commit; a full disk may have aborted it too.
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @contextlib.contextmanager
    def _nested(self, outer: Transaction) -> Iterator[None]:
        """On an error, undo only what was written inside, if the outer transaction is still open."""
        if outer.lost is not None:
            raise outer.lost
        seq, time = outer.seq, outer.time
        outer.db.execute("SAVEPOINT nested")
        try:
            yield
        except BaseException as error:
            if outer.db.in_transaction:
                outer.db.execute("ROLLBACK TO nested")
                outer.db.execute("RELEASE nested")
            elif isinstance(error, sqlite3.Error):
                # A full disk aborts the whole transaction.
                outer.lost = told(error, self.path)
            outer.seq, outer.time = seq, time
            raise
        outer.db.execute("RELEASE nested")

    def _connect(self, *, read_only: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute(f"PRAGMA query_only = {int(read_only)}")
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
        # While the log is there, so that a crash never leaves the note without the log.
        with contextlib.suppress(sqlite3.Error, OSError):
            self._writer.execute(f"PRAGMA busy_timeout = {_STAND_BACK}")
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                self._note.close()
        self._writer.close()
        if not self._log.exists():
            self._note.close()


def _prepare(connection: sqlite3.Connection, path: Path, cores_per_unit: float) -> None:
    """Make a connection the writer of a database in WAL mode with the present schema."""
    if not check_version(connection, path):
        # Works only before the first table is created, and writes: freed pages can then be returned to the disk
        # step by step.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    unmark_copy(connection)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreError(
            str(path), "the file system has no shared memory", "put the database on a local disk"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_AHEAD}")
    connection.execute(f"PRAGMA journal_size_limit = {BYTES_AHEAD}")
    connection.execute(f"PRAGMA cache_size = -{WRITER_MEMORY}")
    upgrade(connection, path, cores_per_unit)
    connection.execute("PRAGMA foreign_keys = ON")
