"""Starts jobs: has their kinds prepare them, and passes them on to the engine."""

from collections.abc import Mapping, Sequence

from typing_extensions import override

from slaq.core.errors import SlaqError
from slaq.core.events import Event, JobEnded
from slaq.core.job import JobSpec, JobState
from slaq.core.scarcity import scarce
from slaq.ports import Engine
from slaq.service.kinds import Progress
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite.records import JobRow


class PreparingEngine(Engine):
    """An engine that has a job's kind prepare the job before it starts.

    A job that cannot start ends as failed. Where the service is short of descriptors, processes or memory, the job
    is tried again until it can.
    """

    def __init__(self, engine: Engine, live_jobs: LiveJobs) -> None:
        self._engine = engine
        self._live_jobs = live_jobs
        self._ended: list[JobEnded] = []
        #: The jobs that are to be tried again, by their ids.
        self._later: dict[str, Progress] = {}

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
        try:
            store.begin_attempt(
                before.id,
                at=now,
                first_iteration=progress.last_iteration + 1,
                log_start=job.kind.files(before.id).reports_size(),
                fresh_curve=fresh_curve,
            )
            self._live_jobs.replace_row(store.job(before.id))
        except (SlaqError, OSError) as error:
            self._fail(before.id, progress, error)
            return
        self._launch(job, progress)

    def _launch(self, job: LiveJob, progress: Progress) -> None:
        """Have a job prepared and pass it on, now or later."""
        try:
            job.kind.prepare(job.row, job.submission, progress)
            self._engine.start(job.row.spec)
        except (SlaqError, OSError) as error:
            if scarce(error):
                self._later[job.row.id] = progress
            else:
                self._fail(job.row.id, progress, error)
            return
        self._live_jobs.publish("job.started", job)
        if job.kind.remote is not None:
            job.kind.remote.catch_up(job.row.id)

    def _fail(self, job_id: str, progress: Progress, error: Exception) -> None:
        again = " again" if progress.attempts else ""
        self._end(job_id, JobState.FAILED, f"could not be started{again}: {error}")

    def _end(self, job_id: str, state: JobState, reason: str) -> None:
        end = JobEnded(job_id=job_id, at=self._live_jobs.clock.now(), state=state, reason=reason)
        self._ended.append(end)

    @override
    def stop(self, job_id: str) -> None:
        if self._later.pop(job_id, None) is None:
            self._engine.stop(job_id)
        else:
            self._end(job_id, JobState.CANCELLED, "stopped on request")

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
        ended, self._ended = self._ended, []
        return [*ended, *self._engine.poll()]


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
