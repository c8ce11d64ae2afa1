"""Restores the jobs of an earlier run and decides which of them are restarted."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slaq.core.allocation import Grant
from slaq.core.errors import SnapshotError
from slaq.core.events import JobEnded
from slaq.core.job import JobState
from slaq.core.roster import Roster
from slaq.jobs.options import IfLost
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobRow

_log = logging.getLogger(__name__)

LOST = "the service ended while the job ran, and the job's owner asked not to run it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A job that was running and is started again."""

    job: LiveJob
    #: Whether its loss curve starts anew.
    fresh_curve: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Restores the live jobs and the roster from the store."""

    roster: Roster
    live_jobs: LiveJobs

    @property
    def store(self) -> SqliteStore:
        """The store that the jobs are read from."""
        return self.live_jobs.store

    def recover(self, now: float) -> list[Restart]:
        """Return the jobs to start, in the order of submission; they have their rows in the roster already."""
        wishes = {
            row.id: self._read_unread(row, now) for row in self._unfinished() if row.state is JobState.RUNNING
        }
        rows = self._unfinished()
        self._restore_roster([row for row in rows if row.id in wishes], now)
        starts = []
        for row in rows:
            wish = wishes.get(row.id)
            if wish is IfLost.FAIL:
                self._end(row, LOST, now)
                continue
            job = self.live_jobs.replace_row(row)
            job.demand = self.roster.said(row.id)
            if wish is not None:
                starts.append(self._restart(job, wish, now))
        if rows:
            _log.info("jobs recovered", extra={"queued": len(rows) - len(wishes), "running": len(starts)})
        return starts

    def _unfinished(self) -> Sequence[JobRow]:
        return self.store.rows([JobState.QUEUED, JobState.RUNNING])

    def _read_unread(self, row: JobRow, now: float) -> IfLost:
        """Store the reports of a job that were not read yet; return the owner's choice of `if_lost`."""
        job = self.live_jobs.read(row)
        found = job.kind.recover(row, job.submission, now)
        self.store.append(found.unread)
        return found.if_lost

    def _restore_roster(self, rows: list[JobRow], now: float) -> None:
        """Restore curves and balances from the last snapshot and what came after it."""
        kept = self.store.snapshot()
        seq = -1
        if kept is not None:
            try:
                self.roster.restore(kept[0])
                seq = kept[1]
            except SnapshotError as error:
                # Reading the curves from the first loss on takes longer and gives the same.
                _log.warning("snapshot refused", extra={"reason": str(error)})
        known = {row.id: row for row in rows}
        for job_id in [
            job_id for job_id in self.roster.ids if job_id in known and known[job_id].curve_seq > seq
        ]:
            self._dismiss(job_id, now)  # its curve began after the snapshot
        for row in rows:
            if row.id not in self.roster.ids:
                self.roster.admit(row.spec, row.started_at or now)
        for batch in self.store.events_since(seq):
            self.roster.absorb(batch.events)
            if batch.decision is not None and batch.grant is not None:
                self._hold(batch.grant, batch.decision.time)
        for job_id in [job_id for job_id in self.roster.ids if job_id not in known]:
            self._dismiss(job_id, now)
        for row in rows:
            (self.roster.pause if row.paused else self.roster.resume)(row.id)
        self.roster.stand_still(now)

    def _hold(self, grant: Grant, at: float) -> None:
        """Give the jobs that are still there what was granted."""
        here = np.array([job_id in self.roster.ids for job_id in grant.ids], dtype=bool)
        ids = tuple(job_id for job_id in grant.ids if job_id in self.roster.ids)
        rows = np.array([self.roster.ids[job_id] for job_id in ids], dtype=np.int64)
        owed = grant.owner_credit
        kept = replace(
            grant,
            ids=ids,
            cores=grant.cores[here],
            credit=grant.credit[here],
            size_credit=grant.size_credit[here],
            owner_credit=owed if len(owed) == len(self.roster.owners) else np.empty(0),
        )
        self.roster.hold(rows, kept, at)

    def _restart(self, job: LiveJob, wish: IfLost, now: float) -> Restart:
        fresh = wish is IfLost.RESTART
        if fresh:
            self._dismiss(job.row.id, now)
            self.roster.admit(job.row.spec, now)
        return Restart(job=job, fresh_curve=fresh)

    def _end(self, row: JobRow, reason: str, now: float) -> None:
        end = JobEnded(job_id=row.id, at=now, state=JobState.FAILED, reason=reason)
        self.store.append([end])
        self.roster.absorb([end])

    def _dismiss(self, job_id: str, now: float) -> None:
        self.roster.absorb([JobEnded(job_id=job_id, at=now, state=JobState.CANCELLED)])
