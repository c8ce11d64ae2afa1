"""Starts jobs: has their kinds prepare them, and passes them on to the engine."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from slaq.core.errors import SlaqError
from slaq.core.events import Event, JobEnded
from slaq.core.job import JobSpec, JobState
from slaq.ports import Engine
from slaq.service.kinds import Progress
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite.records import JobRow


class PreparingEngine(Engine):
    """An engine that has a job's kind prepare the job before it starts. A job that cannot start ends as failed."""

    def __init__(self, engine: Engine, live_jobs: LiveJobs) -> None:
        self._engine = engine
        self._live_jobs = live_jobs
        self._failed: list[JobEnded] = []

    @override
    def capacity(self) -> float:
        return self._engine.capacity()

    @override
    def start(self, spec: JobSpec) -> None:
        self.begin(self._live_jobs.jobs[spec.id])

    def begin(self, job: LiveJob, *, fresh_curve: bool = False) -> None:
        """Start a job; with `fresh_curve` its iterations count from the beginning again."""
        now, before, store = self._live_jobs.clock.now(), job.row, self._live_jobs.store
        progress = _fresh(before) if fresh_curve else _progress(before, now)
        again = " again" if before.attempts else ""
        try:
            store.begin_attempt(
                before.id,
                at=now,
                first_iteration=progress.last_iteration + 1,
                log_start=job.kind.files(before.id).reports_size(),
                fresh_curve=fresh_curve,
            )
            self._live_jobs.replace_row(store.job(before.id))
            job.kind.prepare(job.row, job.submission, progress)
            self._engine.start(job.row.spec)
        except (SlaqError, OSError) as error:
            reason = f"could not be started{again}: {error}"
            self._failed.append(JobEnded(job_id=before.id, at=now, state=JobState.FAILED, reason=reason))
            return
        self._live_jobs.publish("job.started", job)
        if job.kind.remote is not None:
            job.kind.remote.catch_up(before.id)

    @override
    def stop(self, job_id: str) -> None:
        self._engine.stop(job_id)

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        self._engine.grant(cores)

    @override
    def poll(self) -> Sequence[Event]:
        failed, self._failed = self._failed, []
        return [*failed, *self._engine.poll()]


def _fresh(row: JobRow) -> Progress:
    """Return the progress of a job that begins from nothing."""
    return Progress(attempts=row.attempts, cpu_seconds=row.cpu_seconds)


def _progress(row: JobRow, now: float) -> Progress:
    return Progress(
        attempts=row.attempts,
        last_iteration=row.iteration,
        first_loss=row.first_loss,
        seconds=0.0 if row.started_at is None else max(now - row.started_at, 0.0),
        cpu_seconds=row.cpu_seconds,
        report_offset=row.report_offset,
    )
