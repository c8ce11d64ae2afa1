"""Remove old jobs and decisions in small transactions, so that other writers hardly wait."""

import json
import sqlite3
import time
from dataclasses import dataclass

from slaq.stores.sqlite.file import DatabaseFile
from slaq.stores.sqlite.queries import SQL
from slaq.stores.sqlite.records import JobIdentity, Pruned

#: Rows removed, and pages returned to the disk, in one transaction.
_ROWS_AT_ONCE = 20_000
_PAGES_AT_ONCE = 1_000
#: Decisions are larger than other rows.
_DECISIONS_AT_ONCE = 200
#: Seconds between two transactions, in which others can write.
_COURTESY = 0.001
#: Before the number of a removed job, in the key of a note that the job's folder is to be removed.
FOLDER = "folder:"
#: Approximate bytes of a row of observations or allocations, including its share of the pages.
_ROW_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneLimits:
    """What to remove: rows older than `before` that are not among the newest N; None for no such condition.

    Jobs are removed if a condition on jobs is given, decisions if a condition on decisions is given. Jobs that
    have not ended stay, and so do the last decision and those that a restart would read.
    """

    before: float | None = None
    keep_jobs: int | None = None
    keep_decisions: int | None = None

    def jobs(self, db: sqlite3.Connection) -> list[tuple[int, str]]:
        """Return number and id of the jobs to remove, in the order of their ends."""
        if self.before is None and self.keep_jobs is None:
            return []
        about = {"before": self.before, "keep": self.keep_jobs or 0}
        return db.execute(SQL["prunable_jobs"], about).fetchall()

    def last_seq(self, db: sqlite3.Connection) -> int:
        """Return the position in the log up to which decisions are removed."""
        if self.before is None and self.keep_decisions is None:
            return -1
        keep = 1 if self.keep_decisions is None else max(self.keep_decisions, 1)
        (seq,) = db.execute(SQL["prunable_decisions"], {"before": self.before, "keep": keep}).fetchone()
        return -1 if seq is None else int(seq)


def would_prune(file: DatabaseFile, retention: PruneLimits) -> Pruned:
    """Return what would be removed."""
    with file.reading() as db:
        jobs = retention.jobs(db)
        rows = {
            table: sum(
                db.execute(f"SELECT count(*) FROM {table} WHERE job = ?", (job,)).fetchone()[0]
                for job, _ in jobs
            )
            for table in ("observations", "allocations")
        }
        decisions, size = db.execute(
            "SELECT count(*), total(length(body)) FROM decisions WHERE seq <= ?", (retention.last_seq(db),)
        ).fetchone()
    return Pruned(
        jobs=tuple(job_id for _, job_id in jobs),
        observations=rows["observations"],
        allocations=rows["allocations"],
        decisions=decisions,
        bytes=int(size) + _ROW_BYTES * sum(rows.values()),
    )


def prune(file: DatabaseFile, retention: PruneLimits) -> Pruned:
    """Remove jobs and decisions and return the space to the disk; a job is removed whole or not at all."""
    with file.reading() as db:
        jobs, last_seq = retention.jobs(db), retention.last_seq(db)
    removed = {"observations": 0, "allocations": 0}
    waiting = list(reversed(jobs))
    while waiting:
        with file.writing() as transaction:
            rows = 0
            while waiting and rows < _ROWS_AT_ONCE:
                job, _ = waiting.pop()
                _note_folder(transaction.db, job)
                for table in removed:
                    count = transaction.db.execute(f"DELETE FROM {table} WHERE job = ?", (job,)).rowcount
                    removed[table] += count
                    rows += count
                transaction.db.execute("DELETE FROM jobs WHERE number = ?", (job,))
        time.sleep(_COURTESY)
    decisions = _prune_decisions(file, last_seq)
    with file.writing() as transaction:
        transaction.db.execute(SQL["prune_batches"])
        # Events that belong to no job are removed with the decisions of their time.
        transaction.db.execute("DELETE FROM events WHERE job IS NULL AND seq <= ?", (last_seq,))
    return Pruned(
        jobs=tuple(job_id for _, job_id in jobs),
        observations=removed["observations"],
        allocations=removed["allocations"],
        decisions=decisions,
        bytes=_give_back(file),
    )


def _note_folder(db: sqlite3.Connection, job: int) -> None:
    """Note that the folder of a job is to be removed, in the transaction that removes the job."""
    row = db.execute("SELECT number, id, owner, submitted_at FROM jobs WHERE number = ?", (job,)).fetchone()
    if row is not None:
        note = (f"{FOLDER}{job}", json.dumps(row))
        db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", note)


def folders_to_remove(file: DatabaseFile) -> list[JobIdentity]:
    """Return the jobs that were removed and whose folders were not, in the order of submission."""
    with file.reading() as db:
        notes = db.execute(SQL["folders_to_remove"], (FOLDER,)).fetchall()
    found = [json.loads(text) for (text,) in notes]
    return sorted(
        (
            JobIdentity(number=number, id=job_id, owner=owner, submitted_at=at)
            for number, job_id, owner, at in found
        ),
        key=lambda job: job.number,
    )


def _prune_decisions(file: DatabaseFile, last_seq: int) -> int:
    removed = 0
    while True:
        with file.writing() as transaction:
            about = (last_seq, _DECISIONS_AT_ONCE)
            count = transaction.db.execute(SQL["prune_decisions"], about).rowcount
        removed += count
        if count < _DECISIONS_AT_ONCE:
            return removed
        time.sleep(_COURTESY)


def _give_back(file: DatabaseFile) -> int:
    """Return free pages to the disk; return their bytes."""
    pages = 0
    while True:
        with file.alone() as db:
            before, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            # As a script, because `execute` only starts this statement: it counts as one that returns rows.
            db.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            (after,) = db.execute("PRAGMA page_count").fetchone()
            pages += before - after
            if free <= _PAGES_AT_ONCE or before == after:
                # The file shrinks at a checkpoint, which does not block readers.
                db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                return int(pages * size)
        time.sleep(_COURTESY)
