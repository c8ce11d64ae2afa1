"""Read the log back: all events of one job, or everything after a position."""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import TypeVar

from slaq.core.events import Event
from slaq.stores.sqlite.events import loss_observed, other_event
from slaq.stores.sqlite.packing import unpack_credits, unpack_decision
from slaq.stores.sqlite.queries import SQL
from slaq.stores.sqlite.records import LogEntry

T = TypeVar("T")
#: A value with its position in the log.
Placed = tuple[int, T]

_place = itemgetter(0)


def events_of(db: sqlite3.Connection, job_id: str, number: int) -> list[Event]:
    """Return all events of one job in order, including those of earlier curves."""
    found: list[Placed[Event]] = [
        (row[0], loss_observed(job_id, row[1:])) for row in db.execute(SQL["all_curves"], (number,))
    ]
    others = db.execute("SELECT seq, at, kind, body FROM events WHERE job = ?", (number,))
    found.extend((row[0], other_event(job_id, row[1:])) for row in others)
    return [event for _, event in sorted(found, key=_place)]


def batches_since(db: sqlite3.Connection, seq: int) -> Iterator[LogEntry]:
    """Yield the log entries after this position, in order.

    After a snapshot these are few, and are read from the ends of the curves. From the beginning of the log they
    may not fit into memory, and are read one by one.
    """
    snapshot = db.execute("SELECT seq FROM snapshots").fetchone()
    if snapshot is not None and seq >= snapshot[0]:
        losses: Iterable[Placed[Event]] = sorted(_ends(db, seq), key=_place)
    else:
        losses = heapq.merge(*_curves(db, seq), key=_place)
    others = (
        (place, other_event(job_id, tuple(row)))
        for place, job_id, *row in db.execute(SQL["others_since"], (seq,))
    )
    lasts = db.execute("SELECT last_seq, NULL FROM batches WHERE last_seq > ? ORDER BY last_seq", (seq,))
    limits = heapq.merge(lasts, _decisions_since(db, seq), key=_place)
    yield from _cut(heapq.merge(losses, others, key=_place), limits)


def _cut(events: Iterable[Placed[Event]], limits: Iterable[Placed[LogEntry | None]]) -> Iterator[LogEntry]:
    """Yield the events up to each limit as one entry, and the decisions among the limits in order."""
    coming = iter(events)
    following = next(coming, None)
    for last, decision in limits:
        together: list[Event] = []
        while following is not None and following[0] <= last:
            together.append(following[1])
            following = next(coming, None)
        if together:
            yield LogEntry(seq=last, events=tuple(together))
        if decision is not None:
            yield decision


def _ends(db: sqlite3.Connection, seq: int) -> Iterator[Placed[Event]]:
    """Yield the losses of unfinished jobs after this position, those of each job from the last one backwards."""
    for job_id, number, curve, late_seq in db.execute(SQL["unfinished_curves"]).fetchall():
        if late_seq > seq:
            # Some losses came out of order, so all of them have to be read.
            for row in db.execute(SQL["curve_after"], (number, curve, seq)):
                yield row[0], loss_observed(job_id, row[1:])
            continue
        for row in db.execute(SQL["curve_backwards"], (number, curve)):
            if row[0] <= seq:
                break
            yield row[0], loss_observed(job_id, row[1:])


def _curves(db: sqlite3.Connection, seq: int) -> Iterator[Iterator[Placed[Event]]]:
    """Yield, for each unfinished job, its losses after this position in order."""
    for job_id, number, curve, late_seq in db.execute(SQL["unfinished_curves"]).fetchall():
        query = SQL["curve_after"] + (" ORDER BY seq" if late_seq else " ORDER BY iteration")
        yield _losses(db.execute(query, (number, curve, seq)), job_id)


def _losses(rows: sqlite3.Cursor, job_id: str) -> Iterator[Placed[Event]]:
    for row in rows:
        yield row[0], loss_observed(job_id, row[1:])


def _decisions_since(db: sqlite3.Connection, seq: int) -> Iterator[Placed[LogEntry]]:
    for place, body, credits in db.execute(
        "SELECT seq, body, credits FROM decisions WHERE seq > ? ORDER BY seq", (seq,)
    ):
        decision = unpack_decision(body)
        grant = None if credits is None else unpack_credits(decision, credits)
        yield place, LogEntry(seq=place, decision=decision, grant=grant)
