"""Starts jobs: has their kinds prepare them, and passes them on to the engine."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from typing_extensions import override

from slaq.core.errors import SlaqError, StoreError
from slaq.core.events import CurveBegan, Event, JobDelayed, JobEnded, JobLost, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.core.scarcity import scarce
from slaq.jobs.options import IfLost
from slaq.ports import Engine
from slaq.service.kinds import Progress
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite.records import JobRow

#: Why a job ended that was lost and is not to be run again.
LOST = "the service lost the job while it ran, and the job's owner asked not to run it again"

_log = logging.getLogger(__name__)


class PreparingEngine(Engine):
    """An engine that has a job's kind prepare the job before it starts.

    A job that cannot start ends as failed. Where the service is short of descriptors, processes or memory, the job
    is tried again until it can. A job that was lost is started again, or ended, as its owner asked with `if_lost`.
    """

    def __init__(self, engine: Engine, live_jobs: LiveJobs) -> None:
        self._engine = engine
        self._live_jobs = live_jobs
        #: What happened to jobs while they were started; the next poll returns it.
        self._events: list[Event] = []
        #: The jobs that are to be tried again, by their ids.
        self._later: dict[str, Progress] = {}
        #: Jobs that run elsewhere and reported before they were started, of which not all is passed on yet.
        self._behind: dict[str, LiveJob] = {}

    @override
    def capacity(self) -> float:
        return self._engine.capacity()

    @override
    def start(self, spec: JobSpec) -> None:
        job = self._live_jobs.jobs[spec.id]
        if job.row.attempts == 0:
            self.begin(job)
        elif job.ending:
            self._end(job, JobState.CANCELLED, "stopped on request")
        else:
            self._begin_lost(job)

    def begin(self, job: LiveJob, *, fresh_curve: bool = False) -> None:
        """Start a job; with `fresh_curve` its iterations count from the beginning again."""
        progress = _fresh(job.row) if fresh_curve else self._progress(job.row)
        try:
            self._store_start(job, progress, fresh_curve=fresh_curve)
        except Exception as error:
            self._fail(job, progress, error)
        else:
            self._launch(job, progress)

    @override
    def stop(self, job_id: str) -> None:
        if self._later.pop(job_id, None) is None:
            self._engine.stop(job_id)
        else:
            self._end(self._live_jobs.jobs[job_id], JobState.CANCELLED, "stopped on request")

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        self._engine.grant(cores)

    @override
    def poll(self) -> Sequence[Event]:
        later, self._later = self._later, {}
        for job_id, progress in later.items():
            job = self._live_jobs.jobs.get(job_id)
            if job is not None:
                self._launch(job, progress)
        self._catch_up()
        events, self._events = self._events, []
        return [*events, *self._engine.poll()]

    def _catch_up(self) -> None:
        """Have what was reported early passed on: a piece of each owner, because all decisions wait for it."""
        served = set()
        for job_id, job in list(self._behind.items()):
            if job.row.owner in served or job.kind.remote is None:
                continue
            served.add(job.row.owner)
            del self._behind[job_id]
            try:
                if not job.kind.remote.catch_up(job.row.identity):
                    self._behind[job_id] = job
            except OSError as error:
                _log.warning("reports not read", extra={"job": job_id, "reason": str(error)})
                self._behind[job_id] = job

    def _begin_lost(self, job: LiveJob) -> None:
        """Start a job that the engine lost, from where its reports end or from the beginning, or end it."""
        now, progress = self._live_jobs.clock.now(), self._progress(job.row)
        try:
            # What it reported up to its loss was stored with the epoch in which the loss was told.
            row = self._live_jobs.replace_row(self._live_jobs.store.job(job.row.id)).row
            found = job.kind.recover(row, job.submission, now)
            if found.if_lost is IfLost.FAIL:
                self._end(job, JobState.FAILED, LOST)
                return
            fresh = found.if_lost is IfLost.RESTART
            unread = list(found.unread)
            if fresh:
                # They belong to the curve that ends here.
                self._live_jobs.store.append(unread)
                unread = []
            progress = _fresh(row) if fresh else self._progress(row, unread)
            self._store_start(job, progress, fresh_curve=fresh)
        except StoreError as error:
            # Nothing can be started while the disk is full: the next epoch tries again.
            self._events.append(JobLost(job_id=job.row.id, at=now, reason=str(error)))
        except Exception as error:
            self._fail(job, progress, error)
        else:
            self._events += unread
            if fresh:
                job.forget_curve()
                self._events.append(CurveBegan(job_id=job.row.id, at=now))
            self._launch(job, progress)

    def _store_start(self, job: LiveJob, progress: Progress, *, fresh_curve: bool) -> None:
        """Store that a job starts, and where in its reports this attempt begins."""
        store = self._live_jobs.store
        store.begin_attempt(
            job.row.id,
            at=self._live_jobs.clock.now(),
            first_iteration=progress.last_iteration + 1,
            log_start=job.kind.files(job.row.identity).reports_size(),
            fresh_curve=fresh_curve,
        )
        self._live_jobs.replace_row(store.job(job.row.id))

    def _launch(self, job: LiveJob, progress: Progress) -> None:
        """Have a job prepared and pass it on, now or later."""
        try:
            job.kind.prepare(job.row, job.submission, progress)
            self._engine.start(job.row.spec)
        except Exception as error:
            if scarce(error):
                self._later[job.row.id] = progress
                self._delay(job, str(error))
            else:
                self._fail(job, progress, error)
            return
        if job.delayed:
            self._delay(job, "")
        self._live_jobs.publish("job.started", job)
        if job.kind.remote is not None:
            self._behind[job.row.id] = job

    def _delay(self, job: LiveJob, reason: str) -> None:
        now = self._live_jobs.clock.now()
        self._events.append(JobDelayed(job_id=job.row.id, at=now, reason=reason))

    def _progress(self, row: JobRow, unread: Sequence[LossObserved] = ()) -> Progress:
        """Return how far a job has come, with losses that are in its files and not in the store yet."""
        now = self._live_jobs.clock.now()
        known = Progress(
            attempts=row.attempts,
            last_iteration=row.iteration,
            first_loss=row.first_loss,
            seconds=0.0 if row.started_at is None else max(now - row.started_at, 0.0),
            cpu_seconds=row.cpu_seconds,
            report_offset=row.report_offset,
        )
        if not unread:
            return known
        first = unread[0].observation.loss if known.first_loss is None else known.first_loss
        return replace(known, last_iteration=unread[-1].observation.iteration, first_loss=first)

    def _fail(self, job: LiveJob, progress: Progress, error: Exception) -> None:
        """End a job that cannot be started; whatever the reason is, it is no other job's end."""
        again = " again" if progress.attempts else ""
        reason = f"could not be started{again}: {error}"
        if not isinstance(error, SlaqError | OSError):
            _log.error("job could not be started", extra={"job": job.row.id}, exc_info=error)
            reason = f"could not be started{again} because of a defect of slaq; see the service's log"
        self._end(job, JobState.FAILED, reason)

    def _end(self, job: LiveJob, state: JobState, reason: str) -> None:
        now = self._live_jobs.clock.now()
        self._events.append(JobEnded(job_id=job.row.id, at=now, state=state, reason=reason))


def _fresh(row: JobRow) -> Progress:
    """Return the progress of a job that begins from nothing."""
    return Progress(attempts=row.attempts, cpu_seconds=row.cpu_seconds)
