"""The log read back: all that happened to a job, and what came after a place in it."""

import heapq
import sqlite3
from collections.abc import Iterator

from slaq.core.decision import Decision
from slaq.core.events import Event
from slaq.stores.sqlite_events import Row, loss_observed, other_event
from slaq.stores.sqlite_packing import unpack_credits, unpack_decision
from slaq.stores.sqlite_queries import SQL
from slaq.stores.sqlite_records import Batch


def events_of(db: sqlite3.Connection, job_id: str, number: int) -> list[Event]:
    """Return all that happened to one job, in order; those of earlier curves too."""
    found: list[tuple[int, Event]] = [
        (row[0], loss_observed(job_id, row[1:])) for row in db.execute(SQL["all_curves"], (number,))
    ]
    others = db.execute("SELECT seq, at, kind, body FROM events WHERE job = ?", (number,))
    found.extend((row[0], other_event(job_id, row[1:])) for row in others)
    return [event for _, event in sorted(found, key=lambda one: one[0])]


def batches_since(db: sqlite3.Connection, seq: int) -> Iterator[Batch]:
    """Yield what was appended and decided after this place, as it came."""
    events = _events_since(db, seq)
    place = 0
    for last, decision in heapq.merge(
        ((last, None) for (last,) in db.execute("SELECT last_seq FROM batches WHERE last_seq > ?", (seq,))),
        _decisions_since(db, seq),
        key=lambda one: one[0],
    ):
        if decision is not None:
            yield decision
            continue
        start = place
        while place < len(events) and events[place][0] <= last:
            place += 1
        if place > start:
            yield Batch(seq=last, events=tuple(event for _, event in events[start:place]))


def _events_since(db: sqlite3.Connection, seq: int) -> list[tuple[int, Event]]:
    """Return the losses of unfinished jobs and all other events after this place, in order."""
    found: list[tuple[int, Event]] = []
    for job_id, number, curve, late_seq in db.execute(SQL["unfinished_curves"]).fetchall():
        for row in _curve_since(db, seq, (number, curve), in_order=late_seq <= seq):
            found.append((row[0], loss_observed(job_id, row[1:])))
    others = db.execute(
        "SELECT seq, id, events.at, kind, body FROM events LEFT JOIN jobs ON number = job WHERE seq > ?",
        (seq,),
    )
    found.extend((row[0], other_event(row[1], row[2:])) for row in others)
    return sorted(found, key=lambda one: one[0])


def _curve_since(
    db: sqlite3.Connection, seq: int, curve: tuple[int, int], *, in_order: bool
) -> Iterator[Row]:
    """Yield the losses of one curve after this place; from the end backwards where none came out of order."""
    if not in_order:
        yield from db.execute(SQL["curve_after"], (*curve, seq))
        return
    cursor = db.execute(SQL["curve_backwards"], curve)
    for row in cursor:
        if row[0] <= seq:
            cursor.close()
            return
        yield row


def _decisions_since(db: sqlite3.Connection, seq: int) -> Iterator[tuple[int, Batch]]:
    for place, body, credits in db.execute(
        "SELECT seq, body, credits FROM decisions WHERE seq > ? ORDER BY seq", (seq,)
    ):
        decision: Decision = unpack_decision(body)
        allocation = None if credits is None else unpack_credits(decision, credits)
        yield place, Batch(seq=place, decision=decision, allocation=allocation)
