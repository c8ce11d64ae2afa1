"""What is done to a job under way: held, changed, reported on, ended."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from slaq.core.errors import ConflictError, JobOptionError, RequestError, StoreFullError
from slaq.core.job import JobState
from slaq.jobs.options import check_options
from slaq.service.access import Access
from slaq.service.records import Identity
from slaq.service.scheduling import Scheduling
from slaq.service.standing import Standing, how_ended
from slaq.service.work import check_tags


class Steering:
    """Steers the jobs that the asker may touch. What a method did is on disk, and soon decided on."""

    def __init__(self, work: Scheduling, access: Access, check_open: Callable[[], None]) -> None:
        self._work = work
        self._access = access
        self._check_open = check_open

    def pause(self, who: Identity, job_id: str, *, paused: bool) -> Standing:
        """Hold a job, or let it go on."""
        work = self._work
        with work.lock:
            job = self._unfinished(who, job_id)
            if job.row.paused != paused:
                job.row = work.store.change(job_id, paused=paused)
                if job_id in work.roster.ids:
                    (work.roster.pause if paused else work.roster.resume)(job_id)
                work.publish("job.paused" if paused else "job.resumed", job)
        work.wake()
        return job

    def cancel(self, who: Identity, job_id: str) -> Standing:
        """Ask for a job's end."""
        work = self._work
        with work.lock:
            job = self._unfinished(who, job_id)
            if job.row.state is JobState.QUEUED:
                work.end(job_id, JobState.CANCELLED, "stopped on request")
            else:
                work.station.engine.stop(job_id)
        work.wake()
        return job

    def change(
        self,
        who: Identity,
        job_id: str,
        *,
        weight: float | None,
        tags: Sequence[str] | None,
        max_cores: float | None,
    ) -> Standing:
        """Change what a job was given; None leaves a thing as it is."""
        check_options(weight=weight, max_cores=max_cores)
        check_tags(tags or ())
        work = self._work
        changes: dict[str, Any] = {}
        if weight is not None:
            changes["weight"] = weight
        if tags is not None:
            changes["tags"] = tuple(tags)
        if max_cores is not None:
            changes["max_units"] = max(1, min(round(max_cores * work.units_per_core), work.capacity))
        with work.lock:
            job = self._unfinished(who, job_id)
            job.row = work.store.change(job_id, **changes)
            if job_id in work.roster.ids:
                if weight is not None:
                    work.roster.reweigh(job_id, weight)
                if max_cores is not None:
                    work.roster.relimit(job_id, changes["max_units"])
            if max_cores is not None:
                job.submission = replace(job.submission, max_cores=max_cores)
        work.publish("job.changed", job, {"weight": weight, "tags": tags, "max_cores": max_cores})
        work.wake()
        return job

    def report(self, who: Identity, job_id: str, lines: bytes, *, offset: int, source: str) -> int:
        """Take what a job reported elsewhere; return how far its reports now reach."""
        if not lines.endswith(b"\n"):
            raise RequestError("the last line of the reports has no end; send whole lines")
        job = self._unfinished(who, job_id)
        files = self._work.launcher.files(job_id)
        # Not the scheduler's lock: writing to the disk must not hold up decisions.
        with job.reporting:
            try:
                if not files.directory.exists():
                    files.make(None, None)
                base = files.base_of(source)
                reached = files.append_reports(lines, offset=base + offset)
            except OSError as error:
                # What was written of it counts: sent again, the rest is added.
                raise StoreFullError(str(files.reports), error.strerror or str(error)) from error
        self._work.take_reports(job)
        return reached - base

    def end(self, who: Identity, job_id: str, state: JobState, reason: str) -> Standing:
        """Take note that a job which runs elsewhere has ended."""
        if not state.ended:
            raise JobOptionError("state", str(state), "completed, failed or cancelled")
        work = self._work
        with work.lock:
            job = self._unfinished(who, job_id)
            if not job.submission.external:
                raise ConflictError(f"job {job_id!r} is run by this service", "cancel it instead")
            if work.station.external.running(job_id):
                work.station.external.end(job_id, state, reason)
            else:
                work.end(job_id, state, reason)
        work.wake()
        return job

    def _unfinished(self, who: Identity, job_id: str) -> Standing:
        self._check_open()
        job = self._access.own(who, job_id)
        if job.state.ended:
            raise ConflictError(
                f"job {job_id!r} has {how_ended(job.state)}", "submit it again to run it anew"
            )
        return job
