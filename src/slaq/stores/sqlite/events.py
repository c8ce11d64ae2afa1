"""Write events as rows, update the rows of their jobs, and read events back."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from slaq.core.direction import best_of
from slaq.core.errors import UnknownJobError
from slaq.core.events import (
    CapacityChanged,
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    Event,
    JobDelayed,
    JobEnded,
    JobLost,
    JobRetried,
    LearningRateChanged,
    LossObserved,
    LossSourceChanged,
    ThreadsChosen,
    TrainingChanged,
)
from slaq.core.job import JobState, Observation
from slaq.core.progress import is_number
from slaq.stores.sqlite.file import Transaction
from slaq.stores.sqlite.packing import rebuilt, storable
from slaq.stores.sqlite.queries import SQL

Row = tuple[Any, ...]
OtherEvent = (
    LearningRateChanged
    | CurveBegan
    | DemandChanged
    | EndForeseen
    | ThreadsChosen
    | LossSourceChanged
    | TrainingChanged
    | JobLost
    | JobRetried
    | JobEnded
    | CapacityChanged
)
T = TypeVar("T", bound=OtherEvent)

_KINDS: Mapping[str, type[OtherEvent]] = {
    "learning-rate": LearningRateChanged,
    "curve": CurveBegan,
    "demand": DemandChanged,
    "total": EndForeseen,
    "threads": ThreadsChosen,
    "source": LossSourceChanged,
    "training": TrainingChanged,
    "lost": JobLost,
    "retried": JobRetried,
    "ended": JobEnded,
    "capacity": CapacityChanged,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(slots=True)
class _Progress:
    """The progress of one job, updated by the events of one batch."""

    number: int
    curve: int
    state: JobState
    maximize: int
    cores: float
    iteration: int
    first: float | None
    loss: float | None
    best: float | None
    cpu_observed: float
    late_seq: int
    report_offset: int

    def take(self, observation: Observation) -> None:
        """Count a loss; it becomes the last loss if it is of the latest iteration."""
        loss = observation.loss
        if observation.iteration > self.iteration:
            self.iteration = observation.iteration
            self.loss = loss if is_number(loss) else None
        if observation.cpu_seconds == observation.cpu_seconds:
            self.cpu_observed += observation.cpu_seconds
        if is_number(loss):
            if self.first is None:
                self.first = loss
            before = () if self.best is None else (self.best,)
            self.best = best_of((*before, loss), bool(self.maximize))

    def row(self) -> Row:
        """Return the columns that losses change."""
        return (
            *(self.iteration, self.first, self.loss, self.best),
            *(self.cpu_observed, self.cpu_observed, self.late_seq, self.report_offset, self.number),
        )


def keep_events(transaction: Transaction, events: Sequence[Event]) -> None:
    """Write events and update their jobs; write nothing if an event belongs to an unknown job."""
    progress = _progress_of(transaction.db, events)
    observed: list[tuple[Row, Observation, _Progress]] = []
    late: list[tuple[Row, Observation, _Progress]] = []
    others: list[tuple[int, OtherEvent]] = []
    used: list[tuple[float, int, int]] = []
    for seq, event in enumerate(events, start=transaction.seq + 1):
        transaction.see(event.at)
        if isinstance(event, LossObserved):
            job, one = progress[event.job_id], event.observation
            metrics = json.dumps(dict(event.metrics)) if event.metrics else None
            row = (
                *(job.number, job.curve, one.iteration, seq, event.at),
                *(one.loss, one.cpu_seconds, one.wall_seconds, metrics),
            )
            job.report_offset = max(job.report_offset, event.offset or 0)
            if one.iteration > job.iteration:
                observed.append((row, one, job))
                job.take(one)
            else:
                late.append((row, one, job))
        elif isinstance(event, CpuUsed):
            used.append((event.cpu_seconds, event.memory, progress[event.job_id].number))
        elif not isinstance(event, JobDelayed):
            others.append((seq, event))
    # Grouped by job, because rows of one job are adjacent in the table.
    transaction.db.executemany(SQL["keep_observation"], sorted(row for row, _, _ in observed))
    for row, one, job in late:
        # The iteration was reported before (by a job that continued from a checkpoint), or out of order.
        if transaction.db.execute(SQL["keep_observation"], row).rowcount:
            job.late_seq = row[3]
            job.take(one)
    moved = {job.number: job for _, _, job in (*observed, *late)}
    transaction.db.executemany(SQL["keep_progress"], [one.row() for one in moved.values()])
    transaction.db.executemany(SQL["keep_cpu"], used)
    _keep_others(transaction.db, others, progress)
    transaction.seq += len(events)
    transaction.db.execute("INSERT INTO batches (last_seq) VALUES (?)", (transaction.seq,))


def _progress_of(db: sqlite3.Connection, events: Sequence[Event]) -> dict[str, _Progress]:
    named = dict.fromkeys(event.job_id for event in events if not isinstance(event, CapacityChanged))
    found = {
        job_id: _Progress(number, curve, JobState(state), *rest)
        for job_id, number, curve, state, *rest in db.execute(SQL["progress"], (json.dumps(list(named)),))
    }
    for job_id in named:
        if job_id not in found:
            raise UnknownJobError(job_id)
    return found


def _keep_others(
    db: sqlite3.Connection, events: Iterable[tuple[int, OtherEvent]], progress: Mapping[str, _Progress]
) -> None:
    for seq, event in events:
        number = None
        if not isinstance(event, CapacityChanged):
            job = progress[event.job_id]
            number = job.number
            if isinstance(event, JobEnded):
                if job.state.ended:
                    # A job ends once.
                    continue
                job.state = event.state
                db.execute(SQL["end_job"], (event.state, storable(event.reason), event.at, number))
                if job.cores:
                    db.execute(SQL["allocate"], (number, event.at, 0))
            elif isinstance(event, EndForeseen):
                db.execute("UPDATE jobs SET total = ? WHERE number = ?", (event.iterations, number))
            elif isinstance(event, JobRetried):
                db.execute("UPDATE jobs SET attempts = attempts + 1 WHERE number = ?", (number,))
            elif isinstance(event, ThreadsChosen):
                db.execute(SQL["keep_threads"], (event.threads, event.reason, number))
            elif isinstance(event, LossSourceChanged):
                db.execute(SQL["keep_source"], (event.sentence, storable(event.trouble), number))
        body = {name: value for name, value in asdict(event).items() if name not in ("job_id", "at")}
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
    return rebuilt(_KINDS[kind], values)


def number(value: float | None) -> float:
    """Return the stored number; SQLite stores NaN as NULL."""
    return float("nan") if value is None else value
