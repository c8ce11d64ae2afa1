"""Gets a job ready to run: its files, its work, and the runner that it is for."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slaq.core.events import LossObserved
from slaq.core.job import Observation
from slaq.engines.local.commands import CommandRunner
from slaq.engines.local.engine import LocalEngine
from slaq.engines.local.external import ExternalRunner
from slaq.engines.processes.sources import NewRate, Reading, parse_report
from slaq.engines.processes.unread import unread
from slaq.service.accounts import account_of
from slaq.service.files import JobFiles
from slaq.service.standing import submission_of
from slaq.service.work import Past, command_job, definition_of, external_job
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite_records import JobRow

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Knows where jobs live and who runs them."""

    jobs: Path
    store: SqliteStore
    engine: LocalEngine
    commands: CommandRunner
    external: ExternalRunner
    units_per_core: int

    def files(self, job_id: str) -> JobFiles:
        """Return the files of a job."""
        return JobFiles(self.jobs / job_id)

    def launch(self, row: JobRow, now: float, *, fresh_curve: bool = False) -> JobRow:
        """Have the job's runner prepared to start it; return its row, with one attempt more.

        Raises a SlaqError or OSError where it cannot run.
        """
        asked, files = submission_of(row), self.files(row.id)
        past = _past(row, now, fresh_curve=fresh_curve)
        if asked.external:
            files.make(None, None)
            self.external.prepare(row.id, external_job(asked, past))
            self.engine.assign(row.id, self.external)
        else:
            account = account_of(row.owner)
            files.make(account.run_as, definition_of(asked, row.spec, self.units_per_core))
            job = command_job(asked, row.spec, files, account, past, self.units_per_core)
            self.commands.prepare(row.id, job)
            self.engine.assign(row.id, self.commands)
        self.store.begin_attempt(
            row.id,
            at=now,
            first_iteration=past.last_iteration + 1,
            log_start=files.reports_size(),
            fresh_curve=fresh_curve,
        )
        return self.store.job(row.id)

    def left_unread(self, row: JobRow, now: float) -> list[LossObserved]:
        """Return what a lost run of a command reported and the store never saw."""
        asked = submission_of(row)
        if asked.external or asked.loss_pattern is not None or asked.loss_file is not None:
            return []
        known = row.iteration + 1 - row.attempt_first_iteration
        found = unread(self.files(row.id).reports, start=row.attempt_log_start, known=known)
        if found:
            _log.info("reports recovered", extra={"job": row.id, "count": len(found)})
        return list(_observed(row, found, now))

    def take_reports(self, job_id: str) -> None:
        """Pass on what a job that runs elsewhere has reported since the last time; one caller at a time."""
        reach = self.external.reach(job_id)
        if reach is None:
            return
        with self.files(job_id).reports.open("rb") as file:
            file.seek(reach)
            lines = file.read()
        self.external.report(job_id, _readings(lines, reach), reach + len(lines))


def _readings(lines: bytes, offset: int) -> Iterator[Reading | NewRate]:
    """Yield what lines of reports say, the first of them at this offset of the file; nonsense is passed over."""
    for line in lines.splitlines(keepends=True):
        offset += len(line)
        said = parse_report(line)
        if said is None:
            continue
        item = said.item
        if isinstance(item, NewRate):
            yield item
        else:
            yield Reading(loss=item.loss, at=item.at, cpu=item.cpu, reach=offset, metrics=item.metrics)


def _past(row: JobRow, now: float, *, fresh_curve: bool) -> Past:
    if fresh_curve:
        return Past(attempts=row.attempts)
    return Past(
        attempts=row.attempts,
        last_iteration=row.iteration,
        first_loss=row.first_loss,
        seconds=0.0 if row.started_at is None else max(now - row.started_at, 0.0),
        reach=row.report_offset,
    )


def _observed(row: JobRow, found: list[Reading], now: float) -> Iterator[LossObserved]:
    cpu_before: float | None = None
    at_before: float | None = None
    for iteration, reading in enumerate(found, start=row.iteration + 1):
        cpu, at = reading.cpu, reading.at
        yield LossObserved(
            job_id=row.id,
            at=now,
            observation=Observation(
                iteration=iteration,
                loss=reading.loss,
                cpu_seconds=0.0 if cpu is None or cpu_before is None else max(cpu - cpu_before, 0.0),
                wall_seconds=0.0 if at is None or at_before is None else max(at - at_before, 0.0),
            ),
            metrics=reading.metrics,
        )
        cpu_before, at_before = cpu, at
