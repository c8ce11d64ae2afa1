"""External jobs: they run elsewhere, report to the service, and learn from the service what they may use."""

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

from typing_extensions import override

from slaq.core.errors import RequestError, StoreFullError
from slaq.core.job import JobState
from slaq.engines.goals import Goal
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.reports import Item, parse_report
from slaq.engines.regular_file import open_regular
from slaq.kinds.files import JobFolder
from slaq.service.kinds import Description, JobKind, Progress, Recovered, Remote
from slaq.service.records import Submission
from slaq.stores.sqlite.records import JobIdentity, JobRow

#: Bytes of reports passed on at a time.
PIECE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalKind(JobKind, Remote):
    """Takes reports and ends; `Submission.external` says that there is nothing to start."""

    #: The folder with a folder for each job.
    folder: Path
    #: Gives the engine what a job does.
    give: Callable[[str, ExternalJob], None]
    runner: ExternalRunner
    #: One lock for each job whose reports are being passed on, by the job's id.
    _locks: WeakValueDictionary[str, threading.Lock] = field(default_factory=WeakValueDictionary)
    _finding: threading.Lock = field(default_factory=threading.Lock)
    name = "external"

    @property
    @override
    def remote(self) -> Remote:
        return self

    @override
    def check(self, submission: Submission, owner: str) -> None:
        """Accept every owner: nothing runs here, so the owner needs no account."""

    @override
    def describe(self, submission: Submission) -> Description:
        # With `max_cores` the job uses cores of this cluster, and competes for them.
        return Description(
            name="external", summary="runs elsewhere", watched=submission.options["max_cores"] is None
        )

    @override
    def files(self, job: JobIdentity) -> JobFolder:
        return JobFolder(jobs=self.folder, job=job)

    @override
    def prepare(self, row: JobRow, submission: Submission, progress: Progress) -> None:
        files = self.files(row.identity)
        with files.made():
            work = ExternalJob(
                goal=Goal.asked(submission.options),
                last_iteration=progress.last_iteration,
                first_loss=progress.first_loss,
                # Less than was read before, where the folder was lost and made anew.
                reach=min(progress.report_offset, files.reports_size()),
            )
            self.give(row.id, work)

    @override
    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        """Return nothing: the job has gone on meanwhile, and its reports are passed on once it is started."""
        return Recovered()

    @override
    def report(self, job: JobIdentity, lines: bytes, *, offset: int, source: str) -> int:
        if not lines.endswith(b"\n"):
            raise RequestError("the last line of the reports does not end; send whole lines")
        files = self.files(job)
        with self._lock(job.id):
            try:
                if not files.ours:
                    files.make()
                base = files.base_of(source, offset)
                reached = files.append_reports(lines, offset=base + offset)
            except OSError as error:
                # The part that was written counts: when the lines are sent again, the rest is added.
                raise StoreFullError(str(files.reports), error.strerror or str(error)) from error
            # Reports from before the job's start are passed on in small pieces, so that no other job waits.
            self._pass_on(job, len(lines))
        return reached - base

    @override
    def catch_up(self, job: JobIdentity) -> bool:
        with self._lock(job.id):
            return self._pass_on(job, PIECE)

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        running = self.runner.running(job_id)
        if running:
            self.runner.end(job_id, state, reason)
        return running

    def _lock(self, job_id: str) -> threading.Lock:
        with self._finding:
            return self._locks.setdefault(job_id, threading.Lock())

    def _pass_on(self, job: JobIdentity, most: int) -> bool:
        """Give the engine what the job has reported and the engine has not read, so many bytes or a little more.

        Returns whether that is all. Nothing is passed on before the job's start.
        """
        reach = self.runner.reach(job.id)
        if reach is None:
            return True
        end = reach + most
        with open(open_regular(self.files(job).reports), "rb") as file:
            file.seek(reach)
            # In pieces: a job may have reported for days before it is started. A line that a full disk cut
            # short waits for its rest.
            while b"\n" in (lines := file.read(PIECE) + file.readline()):
                lines = lines[: lines.rfind(b"\n") + 1]
                # Read here, because the engine lets no other job report meanwhile.
                readings = list(_readings(lines, reach))
                reach += len(lines)
                self.runner.report(job.id, readings, reach)
                if reach >= end:
                    return reach >= os.fstat(file.fileno()).st_size
        return True


def _readings(lines: bytes, offset: int) -> Iterator[Item]:
    """Yield what the lines of reports, which begin at byte `offset` of the file, say; skip other lines."""
    for line in lines.splitlines(keepends=True):
        offset += len(line)
        said = parse_report(line, offset)
        if said is not None:
            yield said.item
