"""What can be done to a job that has not ended: pause, resume, cancel, change, report, end."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from slaq.core.errors import ConflictError, JobOptionError
from slaq.core.job import JobState
from slaq.jobs.options import CHANGES, JobChanges, ServiceOptions, conflict_in
from slaq.service.access import Access
from slaq.service.kinds import Remote
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.service.loop import EpochLoop
from slaq.service.records import Identity


class JobControl:
    """Changes jobs that the asker may change. What a method did is on disk, and counts in the next decision."""

    def __init__(
        self, loop: EpochLoop, live_jobs: LiveJobs, access: Access, check_open: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._live_jobs = live_jobs
        self._access = access
        self._check_open = check_open

    def pause(self, who: Identity, job_id: str, *, paused: bool) -> LiveJob:
        """Pause a job, or resume it."""
        with self._loop.changing() as scheduler:
            job = self._unfinished(who, job_id)
            if job.row.paused != paused:
                job.row = self._live_jobs.store.change(job_id, paused=paused)
                roster = scheduler.roster
                if job_id in roster.ids:
                    (roster.pause if paused else roster.resume)(job_id)
                self._live_jobs.publish("job.paused" if paused else "job.resumed", job)
        return job

    def cancel(self, who: Identity, job_id: str, *, now: bool = False) -> LiveJob:
        """Ask for a job's end; with `now` it is killed, whatever time it has left to end."""
        with self._loop.changing() as scheduler:
            job = self._unfinished(who, job_id)
            job.ending = True
            if job.row.state is JobState.QUEUED:
                self._live_jobs.end(job_id, JobState.CANCELLED, "stopped on request")
            else:
                scheduler.engine.stop(job_id)
                if now:
                    self._loop.kill(job_id)
        return job

    def change(self, who: Identity, job_id: str, changes: JobChanges) -> LiveJob:
        """Change a job's weight, tags or limit; what is not given stays as it is."""
        given = CHANGES.read(changes)
        columns = {name: value for name, value in given.items() if name != "max_cores"}
        with self._loop.changing() as scheduler:
            job = self._unfinished(who, job_id)
            options = cast(ServiceOptions, dict(job.submission.options) | given)
            conflict = conflict_in(options)
            if conflict is not None:
                raise conflict
            if "max_cores" in given:
                columns["demand"] = replace(job.row.spec.demand, most=given["max_cores"])
            job.row = self._live_jobs.store.change(job_id, **columns)
            job.submission = replace(job.submission, options=options)
            if job_id in scheduler.roster.ids and "weight" in given:
                scheduler.roster.reweigh(job_id, given["weight"])
            if job_id in scheduler.roster.ids and "max_cores" in given:
                scheduler.roster.relimit(job_id, given["max_cores"])
            self._live_jobs.publish("job.changed", job, given)
        return job

    def report(self, who: Identity, job_id: str, lines: bytes, *, offset: int, source: str) -> int:
        """Take what a job reported elsewhere; return how many bytes of its reports there are now."""
        # Not between two epochs: writing to the disk must not hold up decisions.
        job = self._unfinished(who, job_id)
        return _remote(job).report(job.row.identity, lines, offset=offset, source=source)

    def end(self, who: Identity, job_id: str, state: JobState, reason: str) -> LiveJob:
        """End an external job with the state that its owner reports."""
        if not state.ended:
            raise JobOptionError("state", str(state), "completed, diverged, failed or cancelled")
        # Not between two epochs either: the job may have much that was not passed on since its start.
        job = self._unfinished(who, job_id)
        while not _remote(job).catch_up(job.row.identity):
            self._check_open()
        with self._loop.changing():
            job = self._unfinished(who, job_id)
            remote = _remote(job)
            job.ending = True
            if not remote.end(job_id, state, reason):
                self._live_jobs.end(job_id, state, reason)
        return job

    def _unfinished(self, who: Identity, job_id: str) -> LiveJob:
        self._check_open()
        job = self._access.own(who, job_id)
        if job.state.ended:
            raise ConflictError(
                f"job {job_id!r} has {job.state.perfect}", "submit it again to run it once more"
            )
        return job


def _remote(job: LiveJob) -> Remote:
    if job.kind.remote is None:
        raise ConflictError(
            f"job {job.row.id!r} is run by this service, which reads its reports and sees its end itself",
            "cancel it to end it",
        )
    return job.kind.remote
