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

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.errors import DuplicateJobError, UnknownNameError
from slaq.core.events import Event
from slaq.core.job import JobSpec
from slaq.ports import Store
from slaq.stores.sqlite.events import Row, keep_events
from slaq.stores.sqlite.file import DatabaseFile, Transaction
from slaq.stores.sqlite.history import SqliteHistory
from slaq.stores.sqlite.packing import (
    pack_credits,
    pack_decision,
    spec_of,
    spec_text,
    storable,
    submission_text,
)
from slaq.stores.sqlite.pruning import FOLDER, PruneLimits, folders_to_remove, prune, would_prune
from slaq.stores.sqlite.queries import SQL
from slaq.stores.sqlite.records import JobIdentity, JobRow, Pruned

#: The columns and the fields of the spec that `change` accepts.
_CHANGEABLE = (
    *("tags", "state", "reason", "paused", "started_at", "ended_at", "attempt_first_iteration"),
    *("attempt_log_start", "report_offset", "reduction", "cores", "owner"),
)
_SPEC_FIELDS = tuple(one.name for one in fields(JobSpec) if one.name != "id")


class SqliteStore(SqliteHistory, Store):
    """Keeps everything in a database file that no other process may open.

    A method that writes returns when its data is on disk; inside `epoch()`, the data is on disk when the epoch
    ends. If a method raises, nothing of its data is stored. All methods may be called from any thread.
    """

    def __init__(self, path: str | os.PathLike[str], *, cores_per_unit: float = 1.0) -> None:
        """Open or create a database; `cores_per_unit` converts the amounts of a version 1 database."""
        super().__init__(DatabaseFile(Path(path), cores_per_unit))

    @property
    def path(self) -> Path:
        """The path of the database; its write-ahead log and its lock are in the same folder."""
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
        """Make all writes of this thread inside the block one transaction; other threads wait to write."""
        with self._file.writing():
            yield

    # Jobs

    def submit(self, spec: JobSpec) -> None:
        """Queue a job until its arrival."""
        self.submit_job(spec, owner=spec.owner, submission={}, at=self.last_time())

    def submit_job(self, spec: JobSpec, *, owner: str, submission: Mapping[str, Any], at: float) -> JobRow:
        """Queue a job with its whole submission."""
        tags = json.dumps(list(submission.get("tags", ())))
        group = submission.get("group")
        with self._file.writing() as transaction:
            db = transaction.db
            row = (spec.id, owner, spec.arrival, tags, spec.maximize, group, at)
            cursor = db.execute(SQL["submit"], row)
            if not cursor.rowcount:
                raise DuplicateJobError(spec.id)
            db.execute(
                "INSERT INTO requests (job, spec, submission) VALUES (?, ?, ?)",
                (cursor.lastrowid, spec_text(spec), submission_text(submission)),
            )
            transaction.see(at)
            return self.job(spec.id)

    @override
    def queued(self) -> Sequence[JobSpec]:
        """Return the queued jobs as the port says, without paused ones."""
        with self._file.reading() as reader:
            return [spec_of(text) for (text,) in reader.execute(SQL["queued"])]

    @override
    def started(self, job_id: str, now: float) -> None:
        with self._file.writing() as transaction:
            transaction.db.execute(SQL["started"], (now, job_id))

    def begin_attempt(
        self,
        job_id: str,
        *,
        at: float,
        first_iteration: int = 0,
        log_start: int = 0,
        fresh_curve: bool = False,
    ) -> int:
        """Mark a job as started again; return the number of its starts.

        With `fresh_curve` its iterations count from 0 in a new curve; the earlier curve stays in the store.
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
    def record(self, decision: Decision, grant: Grant) -> None:
        body = pack_decision(decision)
        credits = pack_credits(grant)
        with self._file.writing() as transaction:
            transaction.seq += 1
            transaction.see(decision.time)
            row = (transaction.seq, decision.epoch, decision.time, decision.capacity, body, credits)
            transaction.db.execute(SQL["record"], row)
            _keep_cores(transaction, decision)

    # The state that a restart reads

    def save_snapshot(self, blob: bytes, *, at: float, seq: int | None = None) -> None:
        """Store the scheduler's state as of this position in the log, by default its end."""
        with self._file.writing() as transaction:
            place = transaction.seq if seq is None else seq
            transaction.db.execute(SQL["snapshot"], (place, at, blob))
            transaction.see(at)

    def next_notice(self, count: int = 1) -> range:
        """Return `count` ascending numbers that were never returned before."""
        with self._file.writing() as transaction:
            (last,) = transaction.db.execute("SELECT notice FROM counters").fetchone()
            transaction.db.execute("UPDATE counters SET notice = ?", (last + count,))
        return range(last + 1, last + count + 1)

    def set_meta(self, key: str, value: str | None) -> None:
        """Store a text under a key; None removes it."""
        with self._file.writing() as transaction:
            transaction.db.execute("DELETE FROM meta WHERE key = ?", (key,))
            if value is not None:
                transaction.db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the present database to a new file, while others read and write."""
        self._file.backup(Path(path))

    def prune(
        self,
        *,
        before: float | None = None,
        keep_jobs: int | None = None,
        keep_decisions: int | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove jobs that ended before a moment and are not among the newest N, and decisions likewise.

        The caller removes the folders of the jobs: those that `folders_to_remove` returns, also after a crash.
        Must not be called inside `epoch()`, because it makes many transactions.
        """
        retention = PruneLimits(before=before, keep_jobs=keep_jobs, keep_decisions=keep_decisions)
        return would_prune(self._file, retention) if dry_run else prune(self._file, retention)

    def folders_to_remove(self) -> list[JobIdentity]:
        """Return the jobs that `prune` removed and whose folders have not been removed yet."""
        return folders_to_remove(self._file)

    def folders_removed(self, jobs: Sequence[JobIdentity]) -> None:
        """Take note that the folders of removed jobs are gone."""
        if jobs:
            with self._file.writing() as transaction:
                keys = [(f"{FOLDER}{job.number}",) for job in jobs]
                transaction.db.executemany("DELETE FROM meta WHERE key = ?", keys)


def _keep_cores(transaction: Transaction, decision: Decision) -> None:
    """Store the cores and the reduction of each job; jobs that are not in the decision hold 0 cores."""
    held = {job_id: (job, cores) for job_id, job, cores in transaction.db.execute(SQL["holdings"])}
    changed: list[Row] = []
    standing: list[Row] = []
    for job_id, cores, made in zip(
        decision.ids, decision.cores.tolist(), decision.made.tolist(), strict=True
    ):
        job, before = held.pop(job_id, (None, 0.0))
        if job is None:
            continue
        if cores != before:
            changed.append((job, decision.time, cores))
        # A share that is not a number is stored as NULL, and the reduction stays as it was.
        standing.append((cores, made, job))
    for job, before in held.values():
        if before:
            changed.append((job, decision.time, 0))
            standing.append((0, None, job))
    transaction.db.executemany(SQL["keep_cores"], standing)
    transaction.db.executemany(SQL["allocate"], changed)
