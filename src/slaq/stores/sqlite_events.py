"""Events as rows: taken in with where each job then stands, and read back."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from slaq.core.errors import UnknownJobError
from slaq.core.events import CapacityChanged, CurveBegan, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobState, Observation
from slaq.stores.sqlite_file import Transaction
from slaq.stores.sqlite_packing import storable
from slaq.stores.sqlite_queries import SQL

Row = tuple[Any, ...]
OtherEvent = LearningRateChanged | CurveBegan | JobEnded | CapacityChanged
T = TypeVar("T", bound=OtherEvent)

_KINDS: Mapping[str, type[OtherEvent]] = {
    "learning-rate": LearningRateChanged,
    "curve": CurveBegan,
    "ended": JobEnded,
    "capacity": CapacityChanged,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(slots=True)
class _Standing:
    """Where a job stands, as the events of one batch move it."""

    number: int
    curve: int
    state: JobState
    units: int
    iteration: int
    first: float | None
    loss: float | None
    best: float | None
    cpu_seconds: float
    late_seq: int
    report_offset: int

    def take(self, observation: Observation) -> None:
        """Count a loss; the last one too where it is the latest iteration's."""
        loss = observation.loss
        if observation.iteration > self.iteration:
            self.iteration = observation.iteration
            self.loss = loss
        if observation.cpu_seconds == observation.cpu_seconds:
            self.cpu_seconds += observation.cpu_seconds
        if abs(loss) < float("inf"):
            if self.first is None:
                self.first = loss
            if self.best is None or loss < self.best:
                self.best = loss

    def row(self) -> Row:
        """Return the columns that losses change."""
        return (
            *(self.iteration, self.first, self.loss, self.best),
            *(self.cpu_seconds, self.late_seq, self.report_offset, self.number),
        )


def keep_events(transaction: Transaction, events: Sequence[Event]) -> None:
    """Write some events and where they leave their jobs; nothing where one belongs to no job."""
    standings = _standings(transaction.db, events)
    observed: list[tuple[Row, Observation, _Standing]] = []
    late: list[tuple[Row, Observation, _Standing]] = []
    others: list[tuple[int, OtherEvent]] = []
    for seq, event in enumerate(events, start=transaction.seq + 1):
        transaction.see(event.at)
        if isinstance(event, LossObserved):
            standing, one = standings[event.job_id], event.observation
            metrics = json.dumps(dict(event.metrics)) if event.metrics else None
            row = (
                *(standing.number, standing.curve, one.iteration, seq, event.at),
                *(one.loss, one.cpu_seconds, one.wall_seconds, metrics),
            )
            standing.report_offset = max(standing.report_offset, event.reach or 0)
            if one.iteration > standing.iteration:
                observed.append((row, one, standing))
                standing.take(one)
            else:
                late.append((row, one, standing))
        else:
            others.append((seq, event))
    # By job, because rows of one job lie side by side.
    transaction.db.executemany(SQL["keep_observation"], sorted(row for row, _, _ in observed))
    for row, one, standing in late:
        # Reported before, as by a job that went on from a checkpoint, or reported out of order.
        if transaction.db.execute(SQL["keep_observation"], row).rowcount:
            standing.late_seq = row[3]
            standing.take(one)
    moved = {standing.number: standing for _, _, standing in (*observed, *late)}
    transaction.db.executemany(SQL["keep_standing"], [standing.row() for standing in moved.values()])
    _keep_others(transaction.db, others, standings)
    transaction.seq += len(events)
    transaction.db.execute("INSERT INTO batches (last_seq) VALUES (?)", (transaction.seq,))


def _standings(db: sqlite3.Connection, events: Sequence[Event]) -> dict[str, _Standing]:
    named = dict.fromkeys(event.job_id for event in events if not isinstance(event, CapacityChanged))
    found = {
        job_id: _Standing(number, curve, JobState(state), *rest)
        for job_id, number, curve, state, *rest in db.execute(SQL["standings"], (json.dumps(list(named)),))
    }
    for job_id in named:
        if job_id not in found:
            raise UnknownJobError(job_id)
    return found


def _keep_others(
    db: sqlite3.Connection, events: Iterable[tuple[int, OtherEvent]], standings: Mapping[str, _Standing]
) -> None:
    for seq, event in events:
        number = None
        if not isinstance(event, CapacityChanged):
            standing = standings[event.job_id]
            number = standing.number
            if isinstance(event, JobEnded):
                if standing.state.ended:
                    # A job ends once.
                    continue
                standing.state = event.state
                db.execute(SQL["end_job"], (event.state, storable(event.reason), event.at, number))
                if standing.units:
                    db.execute(SQL["allocate"], (number, event.at, 0))
        body = {
            one.name: getattr(event, one.name) for one in fields(event) if one.name not in ("job_id", "at")
        }
        db.execute(SQL["keep_event"], (seq, number, event.at, _NAMES[type(event)], json.dumps(body)))


def loss_observed(job_id: str, row: Row) -> LossObserved:
    """Return the event of a row (iteration, at, loss, cpu seconds, wall seconds, metrics)."""
    iteration, at, loss, cpu, wall, metrics = row
    return LossObserved(
        job_id=job_id,
        at=at,
        observation=Observation(
            iteration=iteration, loss=number(loss), cpu_seconds=number(cpu), wall_seconds=number(wall)
        ),
        metrics=json.loads(metrics) if metrics else {},
    )


def other_event(job_id: str | None, row: Row) -> OtherEvent:
    """Return the event of a row (at, kind, body)."""
    at, kind, body = row
    values: dict[str, Any] = {"at": at, **json.loads(body)}
    if job_id is not None:
        values["job_id"] = job_id
    if "state" in values:
        values["state"] = JobState(values["state"])
    return _KINDS[kind](**values)


def number(value: float | None) -> float:
    """Return what was stored; SQLite keeps what is no number as NULL."""
    return float("nan") if value is None else value
