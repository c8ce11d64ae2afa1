"""The jobs that have not ended, kept in memory: showing them costs no query."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from slaq.core.decision import Decision
from slaq.core.errors import SlaqError
from slaq.core.events import (
    CpuUsed,
    DemandChanged,
    EndForeseen,
    Event,
    JobDelayed,
    JobEnded,
    JobRetried,
    LossObserved,
    LossSourceChanged,
    ThreadsChosen,
)
from slaq.core.explanation import standing_of
from slaq.core.job import JobSpec, JobState
from slaq.core.progress import has_shown_its_end
from slaq.core.stopping import Aim, reduction_made, still_to_come
from slaq.ports import Clock
from slaq.service.event_broker import EventBroker
from slaq.service.kinds import Kinds
from slaq.service.live_job import UNKNOWN, LiveJob
from slaq.service.records import NoticeKind, Prospect
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobRow

#: A job with more losses is not measured by its curve, which takes long to read: its last decision has.
LONGEST_MEASURED = 10_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What has happened since the service was opened."""

    observations: int = 0
    ended: Counter[JobState] = field(default_factory=Counter)


@dataclass(slots=True)
class LiveJobs:
    """All jobs whose end is not stored yet. Only one thread at a time changes them; any thread may read them."""

    store: SqliteStore
    kinds: Kinds
    broker: EventBroker
    clock: Clock
    jobs: dict[str, LiveJob] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    #: Called with each job whose end is stored.
    ended: Callable[[LiveJob], None] = lambda job: None
    #: Ends that are not in the store yet: until they are, their jobs are shown as they were.
    _ends: dict[str, JobEnded] = field(default_factory=dict)

    def find(self, job_id: str) -> LiveJob:
        """Return a job, live or ended; raises UnknownJobError."""
        return self.jobs.get(job_id) or self.read(self.store.job(job_id))

    def read(self, row: JobRow) -> LiveJob:
        """Return a stored job that is not live."""
        return LiveJob.of(row, self.kinds)

    def replace_row(self, row: JobRow) -> LiveJob:
        """Replace a job's row by what is stored now; add a job that is not here yet."""
        job = self.jobs.get(row.id)
        if job is None:
            job = self.jobs[row.id] = self.read(row)
        else:
            job.row = row
        return job

    def publish(self, kind: NoticeKind, job: LiveJob, body: Mapping[str, object] | None = None) -> None:
        """Publish a notice about a job: its state and reason, unless the body says otherwise."""
        facts = {"state": str(job.state), "reason": job.reason} if body is None else body
        self.broker.publish(kind, self.clock.now(), facts, job_id=job.row.id, owner=job.row.owner)

    # Before the start

    def queued(self) -> Iterable[JobSpec]:
        """Return the jobs that have not been started, paused ones included, by ascending arrival."""
        waiting = [job.row for job in self.jobs.values() if job.row.state is JobState.QUEUED]
        return [row.spec for row in sorted(waiting, key=lambda row: (row.spec.arrival, row.number))]

    def hold(self, held: Mapping[str, str]) -> None:
        """Show why queued jobs were not started, and publish each reason that has changed."""
        for job_id, reason in held.items():
            job = self.jobs[job_id]
            if job.state is JobState.QUEUED and reason != job.waiting:
                job.waiting = reason
                self.publish("job.waiting", job)

    # Events and decisions

    def take(self, events: Iterable[Event]) -> None:
        """Count losses and ends; an ended job is displayed as before until `settle`, when its end is stored."""
        for event in events:
            if isinstance(event, LossObserved) and event.job_id in self.jobs:
                self.jobs[event.job_id].observe(event)
                self.counts.observations += 1
            elif isinstance(event, CpuUsed) and event.job_id in self.jobs:
                self.jobs[event.job_id].use(event)
            elif isinstance(event, JobDelayed) and event.job_id in self.jobs:
                self._delay(self.jobs[event.job_id], event)
            elif isinstance(event, DemandChanged) and event.job_id in self.jobs:
                self.jobs[event.job_id].demand = event.demand
            elif isinstance(event, EndForeseen) and event.job_id in self.jobs:
                self.jobs[event.job_id].total = event.iterations
            elif isinstance(event, ThreadsChosen) and event.job_id in self.jobs:
                job = self.jobs[event.job_id]
                job.threads, job.threads_reason = event.threads, event.reason
            elif isinstance(event, JobRetried) and event.job_id in self.jobs:
                job = self.jobs[event.job_id]
                job.row = replace(job.row, attempts=job.row.attempts + 1)
                self.publish("job.started", job)
            elif isinstance(event, LossSourceChanged) and event.job_id in self.jobs:
                self._source(self.jobs[event.job_id], event)
            elif isinstance(event, JobEnded) and event.job_id in self.jobs and event.job_id not in self._ends:
                self._ends[event.job_id] = event
                self.counts.ended[event.state] += 1
                owner = self.jobs[event.job_id].row.owner
                about = {
                    "job": event.job_id,
                    "owner": owner,
                    "state": str(event.state),
                    "reason": event.reason,
                }
                _log.info("job ended", extra=about)

    def _source(self, job: LiveJob, event: LossSourceChanged) -> None:
        """Show where losses come from, and publish it."""
        job.loss_source, job.loss_trouble = event.sentence, event.trouble
        self.publish(
            "job.source",
            job,
            {"loss_source": event.sentence, "loss_trouble": event.trouble, "series": event.series},
        )

    def _delay(self, job: LiveJob, event: JobDelayed) -> None:
        """Show why a started job does not run, and publish the reason if it has changed."""
        if job.delayed != event.sentence:
            job.delayed = event.sentence
            self.publish("job.waiting", job)

    def decide(self, decision: Decision, prospects: Mapping[str, Prospect]) -> list[tuple[str, float]]:
        """Apply a decision to the views; return the jobs that reached `stop_at`, with their reduction."""
        done = []
        held = set(decision.ids)
        columns = (decision.ids, decision.cores.tolist(), decision.made.tolist())
        for row, (job_id, cores, made) in enumerate(zip(*columns, strict=True)):
            job = self.jobs.get(job_id)
            if job is None:
                continue
            job.cores, job.reduction = cores, made
            job.prospect = prospects.get(job_id, UNKNOWN)
            job.standing = standing_of(decision, row)
            if job.enough is not None and job.enough.found(job.iteration + 1, job.reduction):
                done.append((job_id, job.reduction))
        for job_id, job in self.jobs.items():
            if job_id not in held:
                job.cores = 0.0
        return done

    def publish_progress(self, ids: Sequence[str]) -> None:
        """Publish what these jobs have reported since the last time."""
        for job_id in ids:
            job = self.jobs.get(job_id)
            if job is None or not job.fresh:
                continue
            job.fresh = False
            body = {
                "iteration": job.iteration,
                "loss": job.losses.last,
                "reduction": job.reduction,
                "cores": job.cores,
                "diverged": job.losses.diverged,
            }
            self.publish("job.observed", job, body)

    # Ends

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """End a job that the engine does not run; its end is stored when this returns."""
        end = JobEnded(job_id=job_id, at=self.clock.now(), state=state, reason=reason)
        self.store.append([end])
        self.take([end])
        self._remove(job_id)

    def settle(self) -> None:
        """Show and publish the ends so far: all of them are stored."""
        for job_id in list(self._ends):
            self._remove(job_id)

    def _remove(self, job_id: str) -> None:
        end, job = self._ends.pop(job_id), self.jobs[job_id]
        self._measure(job, end)
        job.row = replace(job.row, state=end.state, reason=end.reason, ended_at=end.at)
        del self.jobs[job_id]
        self.publish("job.ended", job)
        self.ended(job)

    def _measure(self, job: LiveJob, end: JobEnded) -> None:
        """Measure how far a job came by its whole curve.

        The last decision saw the same curve, but not always all of it, and coarser where losses came fast.
        """
        asked = job.submission.options
        maximize = job.row.spec.maximize
        # A job that completed by itself has no reason.
        stopped_at = asked["stop_at"] if end.reason else None
        aim = Aim(target=asked["target_loss"], stopped_at=stopped_at, maximize=maximize)
        # A job that cannot be measured has ended all the same.
        with suppress(SlaqError):
            if has_shown_its_end(end.state, aim.target, aim.stopped_at):
                first, best = job.losses.first, job.losses.best
                job.reduction = 0.0 if first is None or best is None else float(best != first)
            elif 0 < job.iteration < LONGEST_MEASURED:
                seen = self.store.observations(job.row.id)
                left = still_to_come(seen.iteration, seen.loss, job.total, asked["max_iterations"])
                job.reduction = reduction_made(seen.loss, replace(aim, left=left), end.state)
            else:
                return
            self.store.change(job.row.id, reduction=job.reduction)
