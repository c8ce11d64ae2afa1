"""The durable store: jobs, losses, decisions and the state of the scheduler in one SQLite database."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.errors import DuplicateJobError, UnknownNameError
from slaq.core.events import Event
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.stores.sqlite_events import Row, keep_events
from slaq.stores.sqlite_file import DatabaseFile, Transaction
from slaq.stores.sqlite_history import SqliteHistory
from slaq.stores.sqlite_packing import (
    pack_credits,
    pack_decision,
    spec_of,
    spec_text,
    storable,
    submission_text,
)
from slaq.stores.sqlite_pruning import Retention, prune, would_prune
from slaq.stores.sqlite_queries import SQL
from slaq.stores.sqlite_records import JobRow, Pruned

#: What `change` may change: columns, and fields of the spec.
_CHANGEABLE = (
    *("tags", "state", "reason", "paused", "started_at", "ended_at", "attempt_first_iteration"),
    *("attempt_log_start", "report_offset", "reduction", "units", "owner"),
)
_SPEC_FIELDS = tuple(one.name for one in fields(JobSpec) if one.name != "id")


class SqliteStore(SqliteHistory, Store):
    """Keeps everything in a database file of its own, which no other process may have open.

    A method that writes returns once what it wrote is on disk; inside `epoch()`, once that ends. What it
    cannot write it raises, and then nothing of it is kept. All methods may be called from any thread.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(DatabaseFile(Path(path)))

    @property
    def path(self) -> Path:
        """Where the database is; its write-ahead log and its lock lie beside it."""
        return self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._file.close()

    @contextlib.contextmanager
    def epoch(self) -> Iterator[None]:
        """Join all that this thread writes inside into one transaction; other threads wait to write."""
        with self._file.writing():
            yield

    # Jobs

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        self.submit_job(spec, owner=spec.owner, submission={}, at=self.last_time())

    def submit_job(self, spec: JobSpec, *, owner: str, submission: Mapping[str, Any], at: float) -> JobRow:
        """Queue a job with all that its owner asked for."""
        tags = json.dumps(list(submission.get("tags", ())))
        with self._file.writing() as transaction:
            db = transaction.db
            cursor = db.execute(SQL["submit"], (spec.id, owner, spec.arrival, tags, at))
            if not cursor.rowcount:
                raise DuplicateJobError(spec.id)
            db.execute(
                "INSERT INTO requests (job, spec, submission) VALUES (?, ?, ?)",
                (cursor.lastrowid, spec_text(spec), submission_text(submission)),
            )
            transaction.see(at)
            return self.job(spec.id)

    @override
    def due(self, now: float, limit: int | None = None) -> Sequence[JobSpec]:
        """As the port says, so many at most; a job returned is marked as running, a paused one is passed over."""
        about = {"now": now, "limit": -1 if limit is None else limit}
        with self._file.reading() as reader:
            if reader.execute(SQL["due"], about).fetchone() is None:
                return ()
        with self._file.writing() as transaction:
            found = transaction.db.execute(SQL["due"], about).fetchall()
            transaction.db.executemany(SQL["mark_due"], [(now, job) for job, _ in found])
            return [spec_of(text) for _, text in found]

    @override
    def pending(self) -> bool:
        with self._file.reading() as db:
            return db.execute("SELECT 1 FROM jobs WHERE state = 'queued' LIMIT 1").fetchone() is not None

    def begin_attempt(
        self,
        job_id: str,
        *,
        at: float,
        first_iteration: int = 0,
        log_start: int = 0,
        fresh_curve: bool = False,
    ) -> int:
        """Mark a job as running, started once more; return how often it has been started.

        With `fresh_curve` its iterations count from the beginning again; the curve so far is kept, and is no
        longer the job's present one.
        """
        with self._file.writing() as transaction:
            about = {"number": self._number(transaction.db, job_id), "at": at}
            if fresh_curve:
                transaction.seq += 1
                transaction.db.execute(SQL["begin_curve"], about | {"seq": transaction.seq})
            about |= {"first_iteration": first_iteration, "log_start": log_start}
            transaction.db.execute(SQL["begin_attempt"], about)
            transaction.see(at)
            return self.job(job_id).attempts

    def change(self, job_id: str, **values: Any) -> JobRow:
        """Change columns of a job (tags, state, reason, paused, ...) or fields of its spec."""
        for name in values:
            if name not in _CHANGEABLE and name not in _SPEC_FIELDS:
                raise UnknownNameError("column", name, sorted({*_CHANGEABLE, *_SPEC_FIELDS}))
        with self._file.writing() as transaction:
            row = self.job(job_id)
            spec = replace(row.spec, **{name: values[name] for name in values if name in _SPEC_FIELDS})
            if spec != row.spec:
                transaction.db.execute(
                    "UPDATE requests SET spec = ? WHERE job = ?", (spec_text(spec), row.number)
                )
            columns = {name: values[name] for name in values if name in _CHANGEABLE}
            if "tags" in columns:
                columns["tags"] = json.dumps(list(columns["tags"]))
            if "reason" in columns:
                columns["reason"] = storable(columns["reason"])
            if spec.arrival != row.spec.arrival:
                columns["arrival"] = spec.arrival
            if columns:
                assignments = ", ".join(f"{name} = ?" for name in columns)
                transaction.db.execute(
                    f"UPDATE jobs SET {assignments} WHERE number = ?", (*columns.values(), row.number)
                )
            return self.job(job_id)

    # What happened

    @override
    def append(self, events: Sequence[Event]) -> None:
        if events:
            with self._file.writing() as transaction:
                keep_events(transaction, events)

    @override
    def record(self, decision: Decision, allocation: Allocation) -> None:
        body = pack_decision(decision)
        credits = pack_credits(allocation)
        with self._file.writing() as transaction:
            transaction.seq += 1
            transaction.see(decision.time)
            row = (transaction.seq, decision.epoch, decision.time, decision.capacity, body, credits)
            transaction.db.execute(SQL["record"], row)
            _keep_units(transaction, decision)

    @override
    def checkpoint(self, job_id: str) -> bytes | None:
        """Return None: what a job keeps lies in its directory, and grows too large for a database."""
        return None

    # What a restart goes on from

    def save_snapshot(self, blob: bytes, *, at: float, seq: int | None = None) -> None:
        """Keep the scheduler's state as of this place in the log, where it has come to by default."""
        with self._file.writing() as transaction:
            place = transaction.seq if seq is None else seq
            transaction.db.execute(SQL["snapshot"], (place, at, blob))
            transaction.see(at)

    def next_notice(self, count: int = 1) -> range:
        """Return that many numbers that were never returned before, ascending."""
        with self._file.writing() as transaction:
            (last,) = transaction.db.execute("SELECT notice FROM counters").fetchone()
            transaction.db.execute("UPDATE counters SET notice = ?", (last + count,))
        return range(last + 1, last + count + 1)

    def set_meta(self, key: str, value: str | None) -> None:
        """Keep a text under a name; None forgets it."""
        with self._file.writing() as transaction:
            transaction.db.execute("DELETE FROM meta WHERE key = ?", (key,))
            if value is not None:
                transaction.db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the whole database as it is now to a new file, while others go on reading and writing."""
        self._file.backup(Path(path))

    def prune(
        self,
        *,
        before: float | None = None,
        keep_jobs: int | None = None,
        keep_decisions: int | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove jobs that ended before a moment and beyond the newest ones, and decisions likewise.

        Not inside `epoch()`: it takes many transactions, between which others write.
        """
        retention = Retention(before=before, keep_jobs=keep_jobs, keep_decisions=keep_decisions)
        return would_prune(self._file, retention) if dry_run else prune(self._file, retention)


def _keep_units(transaction: Transaction, decision: Decision) -> None:
    """Keep what each job holds and how far it has come; jobs that the decision does not name hold nothing."""
    held = {job_id: (job, units) for job_id, job, units in transaction.db.execute(SQL["holdings"])}
    changed: list[Row] = []
    standing: list[Row] = []
    for job_id, units, loss in zip(
        decision.ids, decision.units.tolist(), decision.loss.tolist(), strict=True
    ):
        job, before = held.pop(job_id, (None, 0))
        if job is None:
            continue
        if units != before:
            changed.append((job, decision.time, units))
        # The normalised loss is NULL, and the reduction stays, where it is no number.
        standing.append((units, loss, job))
    for job, before in held.values():
        if before:
            changed.append((job, decision.time, 0))
            standing.append((0, None, job))
    transaction.db.executemany(SQL["keep_units"], standing)
    transaction.db.executemany(SQL["allocate"], changed)
