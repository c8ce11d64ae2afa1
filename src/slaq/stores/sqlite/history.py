"""The queries of the durable store; each result is consistent, even during writes."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any, Unpack

import numpy as np
from typing_extensions import override

from slaq.core.decision import Decision
from slaq.core.errors import UnknownJobError
from slaq.core.events import CapacityChanged, Event
from slaq.core.job import JobSpec, JobState
from slaq.ports import History
from slaq.stores.sqlite.events import Row, other_event
from slaq.stores.sqlite.file import DatabaseFile
from slaq.stores.sqlite.log import batches_since, events_of
from slaq.stores.sqlite.packing import spec_of, storable, submission_of, unpack_decision
from slaq.stores.sqlite.queries import SQL
from slaq.stores.sqlite.records import JobFilters, JobRow, LogEntry, StoredCurve

#: The columns of `jobs` in a JobRow, in its order; the other fields are stored as JSON.
_COLUMNS = tuple(one.name for one in fields(JobRow) if one.name not in ("spec", "submission"))
_CONDITIONS = {
    "owner": "owner = ?",
    "tag": "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)",
    "group": "group_name = ?",
    "after_number": "number > ?",
    "before_number": "number < ?",
    "submitted_since": "submitted_at >= ?",
    "ended_since": "(ended_at IS NULL OR ended_at >= ?)",
}
_LATEST = "COALESCE(ended_at, submitted_at) DESC, number DESC"
_SELECT = f"SELECT {', '.join(_COLUMNS)}, spec, submission FROM jobs JOIN requests ON job = number"


#: Rows of iteration, moment, loss, CPU seconds and wall seconds; NULL for what is no number.
CurvePart = list[list[Any]]


class SqliteHistory(History):
    """Reads a database file, including the writes of an open transaction of the same thread."""

    def __init__(self, file: DatabaseFile) -> None:
        self._file = file

    def job(self, job_id: str) -> JobRow:
        """Return the row of one job."""
        with self._file.reading() as db:
            found = db.execute(f"{_SELECT} WHERE id = ?", (storable(job_id),)).fetchone()
        if found is None:
            raise UnknownJobError(job_id)
        return _job_row(found)

    def rows(
        self,
        states: Collection[JobState] | None = None,
        *,
        limit: int | None = None,
        last: int | None = None,
        **filters: Unpack[JobFilters],
    ) -> list[JobRow]:
        """Return jobs in the order of submission; with `last` only so many, those that ended last."""
        # A page is full soon by going through the jobs in order ("+": without the index, which has those of
        # several states in another); all of them are found by their state, however many others there are. The
        # jobs of a group are found by its name.
        whole = (limit is None and last is None) or len(states or ()) == 1
        column = "state" if whole and filters.get("group") is None else "+state"
        where, values = _where(states, filters, column)
        query = f"{_SELECT} WHERE {where} ORDER BY number LIMIT ?"
        if last is not None:
            latest = f"SELECT number FROM jobs WHERE {where} ORDER BY {_LATEST} LIMIT ?"
            query = f"{_SELECT} WHERE number IN ({latest}) ORDER BY number LIMIT ?"
            values.append(last)
        with self._file.reading() as db:
            found = db.execute(query, (*values, -1 if limit is None else limit)).fetchall()
        return [_job_row(row) for row in found]

    def count(self, states: Collection[JobState] | None = None, **filters: Unpack[JobFilters]) -> int:
        """Return how many jobs `rows` would return without a limit."""
        where, values = _where(states, filters, "+state")
        with self._file.reading() as db:
            return int(db.execute(f"SELECT count(*) FROM jobs WHERE {where}", values).fetchone()[0])

    def last_number(self, name: str) -> int:
        """Return the largest number after a name and a dash in the id of any job; 1 if there is none."""
        with self._file.reading() as db:
            found = db.execute(SQL["last_number"], {"name": storable(name)}).fetchone()
        return int(found[0] or 1)

    def owners(self, ids: Collection[str]) -> dict[str, str]:
        """Return the owner of each job; leave out unknown and pruned jobs."""
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
        """Return the decision of an epoch, or the last one; None if there is none."""
        where = "" if epoch is None else "WHERE epoch = ?"
        with self._file.reading() as db:
            found = db.execute(
                f"SELECT body FROM decisions {where} ORDER BY seq DESC LIMIT 1",
                () if epoch is None else (epoch,),
            ).fetchone()
        return None if found is None else unpack_decision(found[0])

    def decisions_since(self, epoch: int, limit: int | None = None, every: int = 1) -> list[Decision]:
        """Return the decisions of later epochs than this, in order; those whose number `every` divides."""
        query = "SELECT body FROM decisions WHERE epoch > ? AND epoch % ? = 0 ORDER BY epoch, seq LIMIT ?"
        with self._file.reading() as db:
            found = db.execute(query, (epoch, every, -1 if limit is None else limit)).fetchall()
        return [unpack_decision(body) for (body,) in found]

    def cluster_events(self) -> Sequence[CapacityChanged]:
        """Return the events that belong to no job, in order."""
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
    ) -> StoredCurve:
        """Return the job's losses after an iteration; every nth and the last one for plots."""
        with self._file.reading() as db:
            job, present, last = self._numbers(db, job_id)
            about = {"job": job, "curve": present if curve is None else curve, "after": after, "last": last}
            about |= {"every_nth": every_nth, "limit": -1 if limit is None else limit}
            found = db.execute(SQL["observations"], about).fetchall()
        columns = list(zip(*found, strict=True)) or [()] * 6
        # NumPy converts NULL back to NaN.
        return StoredCurve(
            iteration=np.array(columns[0], dtype=np.int64),
            **{
                name: np.array(column, dtype=np.float64)
                for name, column in zip(
                    ("at", "loss", "cpu_seconds", "wall_seconds"), columns[1:5], strict=True
                )
            },
            metrics=[json.loads(text) if text else {} for text in columns[5]],
        )

    def curves(self, ids: Collection[str], most: int) -> dict[str, CurvePart]:
        """Return the losses of several jobs in one pass: of a longer curve than `most`, evenly spaced ones."""
        with self._file.reading() as db:
            found = db.execute(SQL["curves"], {"ids": json.dumps(list(ids)), "most": most}).fetchall()
        curves: dict[str, CurvePart] = {job_id: [] for job_id in ids}
        for job_id, *loss in found:
            curves[job_id].append(loss)
        return curves

    def allocations(
        self, job_id: str, *, since: float = 0.0, limit: int | None = None
    ) -> list[tuple[float, int]]:
        """Return the changes of the job's cores from a moment on: times and cores."""
        with self._file.reading() as db:
            about = {"job": self._number(db, job_id), "since": since, "limit": -1 if limit is None else limit}
            return db.execute(SQL["allocations"], about).fetchall()

    @property
    def seq(self) -> int:
        """The last position in the log of events and decisions."""
        with self._file.reading() as db:
            return int(db.execute("SELECT seq FROM counters").fetchone()[0])

    def snapshot(self) -> tuple[bytes, int] | None:
        """Return the last snapshot of the scheduler's state and its position in the log."""
        with self._file.reading() as db:
            found = db.execute("SELECT body, seq FROM snapshots").fetchone()
        return None if found is None else (found[0], found[1])

    def events_since(self, seq: int) -> Iterator[LogEntry]:
        """Yield the log entries after a position in the log, in order.

        Losses are included only for the present curves of unfinished jobs; a job whose `curve_seq` is later than
        `seq` has begun a new curve. All entries are of the moment when the first is requested.
        """
        with self._file.reading() as db:
            yield from batches_since(db, seq)

    def last_time(self) -> float:
        """Return the latest moment stored; 0 for an empty store."""
        with self._file.reading() as db:
            return float(db.execute("SELECT time FROM counters").fetchone()[0])

    def meta(self, key: str) -> str | None:
        """Return the text stored under this key; None if there is none."""
        with self._file.reading() as db:
            found = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def check(self) -> list[str]:
        """Return the defects of the database, one sentence each; empty if it has none."""
        with self._file.reading() as db:
            found = [str(told) for (told,) in db.execute("PRAGMA integrity_check")]
            strays = db.execute("PRAGMA foreign_key_check").fetchall()
        found.extend(f"a row of {table} belongs to no job" for table, *_ in strays)
        return [] if found == ["ok"] else found

    @staticmethod
    def _numbers(db: sqlite3.Connection, job_id: str) -> tuple[int, int, int]:
        query = "SELECT number, curve, iteration FROM jobs WHERE id = ?"
        found = db.execute(query, (storable(job_id),)).fetchone()
        if found is None:
            raise UnknownJobError(job_id)
        job, curve, iteration = found
        return job, curve, iteration

    def _number(self, db: sqlite3.Connection, job_id: str) -> int:
        return self._numbers(db, job_id)[0]


def _where(
    states: Collection[JobState] | None, filters: JobFilters, column: str
) -> tuple[str, list[str | int | float]]:
    """Return the condition on jobs, and its values in order."""
    conditions = ["1"]
    values: list[str | int | float] = []
    if states is not None:
        conditions.append(f"{column} IN ({', '.join(repr(str(JobState(one))) for one in states)})")
    for name, condition in _CONDITIONS.items():
        value: Any = filters.get(name)
        if value is not None:
            conditions.append(condition)
            values.append(storable(value) if isinstance(value, str) else value)
    return " AND ".join(conditions), values


def _job_row(row: Row) -> JobRow:
    *columns, spec, submission = row
    values = dict(zip(_COLUMNS, columns, strict=True))
    values["state"] = JobState(values["state"])
    values["paused"] = bool(values["paused"])
    values["tags"] = tuple(json.loads(values["tags"]))
    return JobRow(spec=spec_of(spec), submission=submission_of(submission), **values)
