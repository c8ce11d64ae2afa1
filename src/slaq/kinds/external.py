"""External jobs: they run elsewhere, report to the service, and learn from the service what they may use."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from typing_extensions import override

from slaq.core.errors import RequestError, StoreFullError
from slaq.core.job import JobState
from slaq.engines.goals import Goal
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.reports import Item, Reading, parse_report
from slaq.engines.regular_file import open_regular
from slaq.kinds.files import JobFolder
from slaq.service.kinds import Description, JobKind, Progress, Recovered, Remote
from slaq.service.records import Submission
from slaq.stores.sqlite.records import JobIdentity, JobRow

#: Bytes of reports passed on at a time.
PIECE = 2**20
#: Locks that jobs share between them; two jobs with one lock only wait for each other's reports.
LOCKS = 64


def _locks() -> tuple[threading.Lock, ...]:
    return tuple(threading.Lock() for _ in range(LOCKS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalKind(JobKind, Remote):
    """Takes reports and ends; `Submission.external` says that there is nothing to start."""

    #: The folder with a folder for each job.
    folder: Path
    #: Gives the engine what a job does.
    give: Callable[[str, ExternalJob], None]
    runner: ExternalRunner
    _locks: tuple[threading.Lock, ...] = field(default_factory=_locks)
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
            self._pass_on(job)
        return reached - base

    @override
    def catch_up(self, job: JobIdentity) -> None:
        with self._lock(job.id):
            self._pass_on(job)

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        running = self.runner.running(job_id)
        if running:
            self.runner.end(job_id, state, reason)
        return running

    def _lock(self, job_id: str) -> threading.Lock:
        return self._locks[hash(job_id) % LOCKS]

    def _pass_on(self, job: JobIdentity) -> None:
        """Give the engine what the job has reported and the engine has not read; nothing before its start."""
        reach = self.runner.reach(job.id)
        if reach is None:
            return
        with open(open_regular(self.files(job).reports), "rb") as file:
            file.seek(reach)
            # In pieces: a job may have reported for days before it is started. A line that a full disk cut
            # short waits for its rest.
            while b"\n" in (lines := file.read(PIECE) + file.readline()):
                lines = lines[: lines.rfind(b"\n") + 1]
                self.runner.report(job.id, _readings(lines, reach), reach + len(lines))
                reach += len(lines)


def _readings(lines: bytes, offset: int) -> Iterator[Item]:
    """Yield what lines of reports say, the first of them at this byte of the file; skip what is no report."""
    for line in lines.splitlines(keepends=True):
        offset += len(line)
        said = parse_report(line)
        if said is None:
            continue
        item = said.item
        yield replace(item, reach=offset) if isinstance(item, Reading) else item
