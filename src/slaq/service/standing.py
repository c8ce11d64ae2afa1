"""Where every job under way stands, kept in memory for those who ask: what they see costs no query."""

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from slaq.core.decision import Decision
from slaq.core.enough import Enough
from slaq.core.events import Event, LossObserved
from slaq.core.job import JobState
from slaq.service.records import IfLost, JobView, Prospect, Submission
from slaq.service.work import summary_of
from slaq.stores.sqlite_records import JobRow

#: Nothing is known of the time to come.
UNKNOWN = Prospect()


def submission_of(row: JobRow) -> Submission:
    """Return what the owner of a stored job asked for."""
    said = dict(row.submission)
    said["if_lost"] = IfLost(said.get("if_lost", IfLost.RESUME))
    for name in ("command", "tags"):
        if said.get(name) is not None:
            said[name] = tuple(said[name])
    return Submission(**said)


def how_ended(state: JobState) -> str:
    """Return what a job in this state has done, or had done to it: it has ..."""
    return "been cancelled" if state is JobState.CANCELLED else str(state)


@dataclass(slots=True, eq=False)
class Standing:
    """One job: its durable row as it was when last read, and what has moved since."""

    row: JobRow
    submission: Submission
    prospect: Prospect = UNKNOWN
    iteration: int = -1
    first_loss: float | None = None
    loss: float | None = None
    best_loss: float | None = None
    diverged: bool = False
    cpu_seconds: float = 0.0
    units: int = 0
    reduction: float = 0.0
    enough: Enough | None = None
    #: A loss came since this was last asked.
    fresh: bool = False
    #: Held while reports that were sent are taken in.
    reporting: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, row: JobRow) -> "Standing":
        """Return where a stored job stands."""
        asked = submission_of(row)
        return cls(
            row=row,
            submission=asked,
            iteration=row.iteration,
            first_loss=row.first_loss,
            loss=row.loss,
            best_loss=row.best_loss,
            diverged=row.iteration >= 0 and row.loss is None,
            cpu_seconds=row.cpu_seconds,
            units=row.units,
            reduction=row.reduction,
            # With a target it is the engine that knows when that is reached.
            enough=Enough(asked.stop_at) if asked.stop_at is not None and asked.target_loss is None else None,
        )

    def observe(self, event: LossObserved) -> None:
        """Take in a loss."""
        seen = event.observation
        self.iteration = seen.iteration
        self.cpu_seconds += seen.cpu_seconds
        self.fresh = True
        self.diverged = not math.isfinite(seen.loss)
        if self.diverged:
            self.loss = None
            return
        self.loss = seen.loss
        if self.first_loss is None:
            self.first_loss = self.best_loss = seen.loss
        elif self.best_loss is None or seen.loss < self.best_loss:
            self.best_loss = seen.loss

    @property
    def state(self) -> JobState:
        """Its state, as shown."""
        return JobState.PAUSED if self.row.paused and not self.row.state.ended else self.row.state

    def view(self, units_per_core: int, directory: str) -> JobView:
        """Return what is shown of it."""
        row, asked = self.row, self.submission
        units = 0 if row.state.ended else self.units
        return JobView(
            id=row.id,
            owner=row.owner,
            state=self.state,
            reason=row.reason,
            work="command" if asked.command is not None else "external" if asked.external else "program",
            summary=summary_of(asked),
            trains=asked.trains,
            tags=row.tags,
            weight=row.spec.weight,
            min_cores=asked.min_cores,
            max_cores=asked.max_cores,
            target_loss=asked.target_loss,
            stop_at=asked.stop_at,
            deadline=row.spec.deadline,
            submitted_at=row.submitted_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            units=units,
            cores=units / units_per_core,
            iteration=self.iteration,
            first_loss=self.first_loss,
            loss=self.loss,
            best_loss=self.best_loss,
            reduction=self.reduction,
            diverged=self.diverged,
            cpu_seconds=self.cpu_seconds,
            attempts=row.attempts,
            directory=directory,
            prospect=UNKNOWN if row.state.ended else self.prospect,
        )


@dataclass(slots=True)
class Board:
    """All jobs whose end is not in the store. Changed by one thread at a time, read by any."""

    jobs: dict[str, Standing] = field(default_factory=dict)

    def take(self, events: Iterable[Event]) -> int:
        """Take in losses, and return how many; ends are for whoever keeps the rows."""
        count = 0
        for event in events:
            if isinstance(event, LossObserved) and (job := self.jobs.get(event.job_id)) is not None:
                job.observe(event)
                count += 1
        return count

    def decide(self, decision: Decision, prospects: Mapping[str, Prospect]) -> list[tuple[str, float]]:
        """Take in a decision; return the jobs that have come near enough to their end, and how near."""
        done = []
        held = set(decision.ids)
        for job_id, units, loss in zip(
            decision.ids, decision.units.tolist(), decision.loss.tolist(), strict=True
        ):
            job = self.jobs.get(job_id)
            if job is None:
                continue
            job.units, job.reduction = units, 1.0 - loss
            job.prospect = prospects.get(job_id, UNKNOWN)
            if job.enough is not None and job.enough.found(job.iteration + 1, job.reduction):
                done.append((job_id, job.reduction))
        for job_id, job in self.jobs.items():
            if job_id not in held:
                job.units = 0
        return done

    def replace_row(self, row: JobRow) -> Standing:
        """Keep the row of a job as it now is."""
        job = self.jobs.get(row.id)
        if job is None:
            job = self.jobs[row.id] = Standing.of(row)
        else:
            job.row = row
        return job

    def mark(self, job_id: str, state: JobState, reason: str, at: float) -> Standing:
        """Note the end of a job, which the store has by now, and let go of it."""
        job = self.jobs[job_id]
        job.row = replace(job.row, state=state, reason=reason, ended_at=at)
        del self.jobs[job_id]
        return job
