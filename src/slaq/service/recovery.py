"""What a service does first: finds the jobs of an earlier one, and has them go on as their owners asked."""

import logging
from dataclasses import dataclass, replace

import numpy as np

from slaq.core.allocation import Allocation
from slaq.core.errors import SlaqError, SnapshotError
from slaq.core.events import JobEnded
from slaq.core.job import JobSpec, JobState
from slaq.core.roster import Roster
from slaq.service.launching import Launcher
from slaq.service.records import IfLost
from slaq.service.standing import Board, submission_of
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite_records import JobRow

_log = logging.getLogger(__name__)

LOST = "the service was lost while it ran, and its owner asked not to run it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Brings board, roster and engine to where the store says they were."""

    store: SqliteStore
    roster: Roster
    board: Board
    launcher: Launcher

    def recover(self, now: float) -> list[JobSpec]:
        """Return the jobs to start, in the order of submission; their rows are in the roster already."""
        rows = self.store.rows([JobState.QUEUED, JobState.RUNNING])
        running = [self._read_up(row, now) for row in rows if row.state is JobState.RUNNING]
        self._restore_roster(running, now)
        starts = [row.spec for row in running if self._relaunch(row, now)]
        for row in self.store.rows([JobState.QUEUED, JobState.RUNNING]):
            self.board.replace_row(row)
        if rows:
            _log.info("jobs recovered", extra={"queued": len(rows) - len(running), "running": len(starts)})
        return starts

    def _read_up(self, row: JobRow, now: float) -> JobRow:
        events = self.launcher.left_unread(row, now)
        if not events:
            return row
        self.store.append(events)
        return self.store.job(row.id)

    def _restore_roster(self, rows: list[JobRow], now: float) -> None:
        """Restore the curves and balances: the last snapshot, and what came after it."""
        kept = self.store.snapshot()
        seq = -1
        if kept is not None:
            try:
                self.roster.restore(kept[0])
                seq = kept[1]
            except SnapshotError as error:
                # The curves are read again from the first loss on: slower, and the same.
                _log.warning("snapshot refused", extra={"reason": str(error)})
        known = {row.id: row for row in rows}
        for job_id in [
            job_id for job_id in self.roster.ids if job_id in known and known[job_id].curve_seq > seq
        ]:
            self._dismiss(job_id, now)  # begins anew
        for row in rows:
            if row.id not in self.roster.ids:
                self.roster.admit(row.spec, row.started_at or now)
        for batch in self.store.events_since(seq):
            self.roster.absorb(batch.events)
            if batch.decision is not None and batch.allocation is not None:
                self._hold(batch.allocation, batch.decision.time)
        for job_id in [job_id for job_id in self.roster.ids if job_id not in known]:
            self._dismiss(job_id, now)
        for row in rows:
            (self.roster.pause if row.paused else self.roster.resume)(row.id)
        self.roster.stand_still(now)

    def _hold(self, allocation: Allocation, at: float) -> None:
        """Have the jobs that are still there hold what was decided."""
        here = np.array([job_id in self.roster.ids for job_id in allocation.ids], dtype=bool)
        ids = tuple(job_id for job_id in allocation.ids if job_id in self.roster.ids)
        rows = np.array([self.roster.ids[job_id] for job_id in ids], dtype=np.int64)
        owed = allocation.owner_credit
        kept = replace(
            allocation,
            ids=ids,
            units=allocation.units[here],
            credit=allocation.credit[here],
            owner_credit=owed if len(owed) == len(self.roster.owners) else np.empty(0),
        )
        self.roster.hold(rows, kept, at)

    def _relaunch(self, row: JobRow, now: float) -> bool:
        """Get a job that was running ready to run again; return whether it is."""
        asked = submission_of(row)
        if asked.if_lost is IfLost.FAIL and not asked.external:
            self._end(row, LOST, now)
            return False
        fresh = asked.if_lost is IfLost.RESTART and not asked.external
        try:
            self.launcher.launch(row, now, fresh_curve=fresh)
        except (SlaqError, OSError) as error:
            self._end(row, f"it could not be started again: {error}", now)
            return False
        if fresh:
            self._dismiss(row.id, now)
            self.roster.admit(row.spec, now)
        return True

    def _end(self, row: JobRow, reason: str, now: float) -> None:
        end = JobEnded(job_id=row.id, at=now, state=JobState.FAILED, reason=reason)
        self.store.append([end])
        self.roster.absorb([end])

    def _dismiss(self, job_id: str, now: float) -> None:
        self.roster.absorb([JobEnded(job_id=job_id, at=now, state=JobState.CANCELLED)])
