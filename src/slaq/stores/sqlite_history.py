"""The reading side of the durable store: every answer is one state of the database, whoever writes meanwhile."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields

import numpy as np
from typing_extensions import override

from slaq.core.decision import Decision
from slaq.core.errors import UnknownJobError
from slaq.core.events import CapacityChanged, Event
from slaq.core.job import JobSpec, JobState
from slaq.ports import History
from slaq.stores.sqlite_events import Row, other_event
from slaq.stores.sqlite_file import DatabaseFile
from slaq.stores.sqlite_log import batches_since, events_of
from slaq.stores.sqlite_packing import spec_of, storable, submission_of, unpack_decision
from slaq.stores.sqlite_queries import SQL
from slaq.stores.sqlite_records import Batch, Curve, JobRow

#: The columns of `jobs` that a JobRow shows, in its order; the rest of it is JSON beside them.
_COLUMNS = tuple(one.name for one in fields(JobRow) if one.name not in ("spec", "submission"))
_SELECT = f"SELECT {', '.join(_COLUMNS)}, spec, submission FROM jobs JOIN requests ON job = number"


class SqliteHistory(History):
    """What is in a database file; inside a transaction of the same thread, also what that wrote so far."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def job(self, job_id: str) -> JobRow:
        """Return one job as it stands."""
        with self._file.reading() as db:
            found = db.execute(f"{_SELECT} WHERE id = ?", (storable(job_id),)).fetchone()
        if found is None:
            raise UnknownJobError(job_id)
        return _job_row(found)

    def rows(
        self,
        states: Collection[JobState] | None = None,
        *,
        owner: str | None = None,
        tag: str | None = None,
        after_number: int | None = None,
        before_number: int | None = None,
        limit: int | None = None,
    ) -> list[JobRow]:
        """Return jobs in the order of submission, those between two numbers."""
        conditions = ["1"]
        values: list[str | int] = []
        if states is not None:
            # A page is full soon by going through the jobs in order ("+": without the index, which has those
            # of several states in another); all of them are found by their state, however many others there are.
            column = "state" if limit is None or len(states) == 1 else "+state"
            conditions.append(f"{column} IN ({', '.join(repr(str(JobState(one))) for one in states)})")
        if owner is not None:
            conditions.append("owner = ?")
            values.append(storable(owner))
        if tag is not None:
            conditions.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)")
            values.append(storable(tag))
        if after_number is not None:
            conditions.append("number > ?")
            values.append(after_number)
        if before_number is not None:
            conditions.append("number < ?")
            values.append(before_number)
        query = f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY number LIMIT ?"
        with self._file.reading() as db:
            found = db.execute(query, (*values, -1 if limit is None else limit)).fetchall()
        return [_job_row(row) for row in found]

    def owners(self, ids: Collection[str]) -> dict[str, str]:
        """Return whose job each of these is; those that nobody submitted, or that were pruned, are left out."""
        with self._file.reading() as db:
            return dict(db.execute(SQL["owners"], (json.dumps(list(ids)),)).fetchall())

    @override
    def jobs(self) -> Sequence[JobSpec]:
        with self._file.reading() as db:
            return [spec_of(text) for (text,) in db.execute("SELECT spec FROM requests ORDER BY job")]

    @override
    def events(self, job_id: str) -> Sequence[Event]:
        with self._file.reading() as db:
            return events_of(db, job_id, self._number(db, job_id))

    @override
    def decisions(self) -> Sequence[Decision]:
        with self._file.reading() as db:
            found = db.execute("SELECT body FROM decisions ORDER BY seq").fetchall()
        return [unpack_decision(body) for (body,) in found]

    def decision(self, epoch: int | None = None) -> Decision | None:
        """Return the decision of an epoch, or the last one; None where there is none."""
        where = "" if epoch is None else "WHERE epoch = ?"
        with self._file.reading() as db:
            found = db.execute(
                f"SELECT body FROM decisions {where} ORDER BY seq DESC LIMIT 1",
                () if epoch is None else (epoch,),
            ).fetchone()
        return None if found is None else unpack_decision(found[0])

    def decisions_since(self, epoch: int, limit: int | None = None) -> list[Decision]:
        """Return the decisions of later epochs than this, in order."""
        query = "SELECT body FROM decisions WHERE epoch > ? ORDER BY epoch, seq LIMIT ?"
        with self._file.reading() as db:
            found = db.execute(query, (epoch, -1 if limit is None else limit)).fetchall()
        return [unpack_decision(body) for (body,) in found]

    def cluster_events(self) -> Sequence[CapacityChanged]:
        """Return what happened to the cluster rather than to one job, in order."""
        with self._file.reading() as db:
            found = db.execute("SELECT at, kind, body FROM events WHERE job IS NULL ORDER BY seq").fetchall()
        events = (other_event(None, row) for row in found)
        return [event for event in events if isinstance(event, CapacityChanged)]

    def observations(
        self,
        job_id: str,
        *,
        after: int = -1,
        limit: int | None = None,
        every_nth: int = 1,
        curve: int | None = None,
    ) -> Curve:
        """Return the job's losses after an iteration; every nth and the last one for plots."""
        with self._file.reading() as db:
            job, present, last = self._standing(db, job_id)
            about = {"job": job, "curve": present if curve is None else curve, "after": after, "last": last}
            about |= {"every_nth": every_nth, "limit": -1 if limit is None else limit}
            found = db.execute(SQL["observations"], about).fetchall()
        columns = list(zip(*found, strict=True)) or [()] * 6
        # What SQLite keeps as NULL, NumPy makes NaN again.
        return Curve(
            iteration=np.array(columns[0], dtype=np.int64),
            **{
                name: np.array(column, dtype=np.float64)
                for name, column in zip(
                    ("at", "loss", "cpu_seconds", "wall_seconds"), columns[1:5], strict=True
                )
            },
            metrics=[json.loads(text) if text else {} for text in columns[5]],
        )

    def allocations(
        self, job_id: str, *, since: float = 0.0, limit: int | None = None
    ) -> list[tuple[float, int]]:
        """Return when the job's units changed, and to what, from a moment on."""
        with self._file.reading() as db:
            about = {"job": self._number(db, job_id), "since": since, "limit": -1 if limit is None else limit}
            return db.execute(SQL["allocations"], about).fetchall()

    @property
    def seq(self) -> int:
        """Where the log of events and decisions has come to."""
        with self._file.reading() as db:
            return int(db.execute("SELECT seq FROM counters").fetchone()[0])

    def snapshot(self) -> tuple[bytes, int] | None:
        """Return the state last kept and its place in the log."""
        with self._file.reading() as db:
            found = db.execute("SELECT body, seq FROM snapshots").fetchone()
        return None if found is None else (found[0], found[1])

    def events_since(self, seq: int) -> Iterator[Batch]:
        """Yield what was appended and decided after a place in the log, in order, as it came.

        Of losses, those of unfinished jobs and their present curves only; a job whose `curve_seq` is later
        than `seq` begins anew. All of it is of the moment when the first is asked for.
        """
        with self._file.reading() as db:
            yield from batches_since(db, seq)

    def last_time(self) -> float:
        """Return the latest moment stored; 0 for a store that never saw one."""
        with self._file.reading() as db:
            return float(db.execute("SELECT time FROM counters").fetchone()[0])

    def meta(self, key: str) -> str | None:
        """Return what was kept under this name."""
        with self._file.reading() as db:
            found = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def check(self) -> list[str]:
        """Return what is wrong with the database, one sentence each; nothing where it is sound."""
        with self._file.reading() as db:
            found = [str(told) for (told,) in db.execute("PRAGMA integrity_check")]
            strays = db.execute("PRAGMA foreign_key_check").fetchall()
        found.extend(f"a row of {table} belongs to no job" for table, *_ in strays)
        return [] if found == ["ok"] else found

    @staticmethod
    def _standing(db: sqlite3.Connection, job_id: str) -> tuple[int, int, int]:
        query = "SELECT number, curve, iteration FROM jobs WHERE id = ?"
        found = db.execute(query, (storable(job_id),)).fetchone()
        if found is None:
            raise UnknownJobError(job_id)
        job, curve, iteration = found
        return job, curve, iteration

    def _number(self, db: sqlite3.Connection, job_id: str) -> int:
        return self._standing(db, job_id)[0]


def _job_row(row: Row) -> JobRow:
    *columns, spec, submission = row
    values = dict(zip(_COLUMNS, columns, strict=True))
    values["state"] = JobState(values["state"])
    values["paused"] = bool(values["paused"])
    values["tags"] = tuple(json.loads(values["tags"]))
    return JobRow(spec=spec_of(spec), submission=submission_of(submission), **values)
