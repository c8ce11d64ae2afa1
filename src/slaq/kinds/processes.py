"""Jobs that run as process trees of their owners on this machine: what commands and programs share."""

import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from slaq.core.errors import JobOptionError
from slaq.core.events import LossObserved
from slaq.core.job import Observation
from slaq.engines.goals import Goal
from slaq.engines.node.commands.marks import clear_away
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.commands.unread import Allowance
from slaq.engines.node.reports import Reading
from slaq.jobs import variables
from slaq.jobs.options import PATHS, IfLost, losses_are_searched
from slaq.kinds.accounts import Account, account_of
from slaq.kinds.files import JobFolder
from slaq.service.kinds import Progress, Recovered
from slaq.service.records import Submission
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobIdentity, JobRow

#: The name under which the store keeps the secret that the processes of the service that ran last are marked with;
#: and the name under which earlier versions kept a common prefix of their marks, which nothing bears any more.
_SECRET, _PREFIX = "process-secret", "processes"

_log = logging.getLogger(__name__)


def mark_processes(store: SqliteStore) -> str:
    """Kill the processes that a killed service has left; return a secret that marks the new ones."""
    before = store.meta(_SECRET)
    if before is not None:
        clear_away(before)
    secret = secrets.token_hex(32)
    store.set_meta(_SECRET, secret)
    store.set_meta(_PREFIX, None)
    return secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What a job runs: the program with its arguments, and the definition where slaq reads one."""

    argv: tuple[str, ...]
    #: How often it is run again after it failed.
    retry: int = 0
    definition: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessJobs:
    """Gives jobs to the engine as commands of their owners, and finds what they left."""

    #: The folder with a folder for each job.
    folder: Path
    #: Gives the engine what a job does.
    give: Callable[[str, CommandJob], None]
    #: Cores of this machine.
    cores: int
    #: Files that a job may have open, until it asks for more; None for as many as the service.
    open_files: int | None = None
    #: By owner: what may be looked through of their jobs' reports while everyone waits.
    _allowances: dict[str, Allowance] = field(default_factory=dict)

    def files(self, job: JobIdentity) -> JobFolder:
        """Return a job's folder."""
        return JobFolder(jobs=self.folder, job=job)

    def check(self, submission: Submission, owner: str) -> None:
        """Raise where the owner has no account here, or a path is relative: to a service it means nothing."""
        account_of(owner)
        for name in PATHS:
            path = str(dict(submission.options).get(name) or "/")
            if not PurePath(path).is_absolute():
                raise JobOptionError(name, path, "a whole path, from / on")

    def prepare(self, row: JobRow, submission: Submission, progress: Progress, command: Command) -> None:
        """Make the job's files and give the command to the engine; where this raises, nothing is left behind."""
        account, files = account_of(row.owner), self.files(row.identity)
        with files.made(account.run_as, command.definition):
            self.give(row.id, self._job(row, submission, progress, command, account))

    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        """Return the losses that were reported and not read before the crash, and the job's `if_lost`."""
        asked = submission.options
        if_lost = IfLost(asked["if_lost"])
        if asked.get("loss_pattern") is not None or asked.get("loss_file") is not None:
            return Recovered(if_lost=if_lost)
        known = row.iteration + 1 - row.attempt_first_iteration
        try:
            allowance = self._allowances.setdefault(row.owner, Allowance())
            found = self.files(row.identity).unread_reports(
                start=row.attempt_log_start, known=known, last=row.iteration, allowance=allowance
            )
        except Exception as error:
            # Whatever the job has left there, the others are recovered.
            _log.exception("reports not recovered", extra={"job": row.id, "reason": str(error)})
            return Recovered(if_lost=if_lost)
        if found:
            _log.info("reports recovered", extra={"job": row.id, "count": len(found)})
        return Recovered(unread=list(_observed(row, found, now)), if_lost=if_lost)

    def _job(
        self, row: JobRow, submission: Submission, progress: Progress, command: Command, account: Account
    ) -> CommandJob:
        asked, files = submission.options, self.files(row.identity)
        loss_file = asked.get("loss_file")
        own = {
            variables.JOB: row.id,
            variables.FOLDER: str(files.state),
            variables.ATTEMPT: str(progress.attempts + 1),
            variables.ITERATION: str(progress.last_iteration + 1),
        }
        spec = CommandSpec(
            argv=command.argv,
            directory=files.path,
            log=files.log,
            cwd=files.state if asked["cwd"] is None else Path(asked["cwd"]),
            env=account.environment() | dict(asked["env"]) | own,
            inherit_env=False,
            run_as=account.run_as if account.run_as.uid != os.getuid() else None,
            loss_pattern=asked.get("loss_pattern"),
            loss_file=None if loss_file is None else Path(loss_file),
            loss_column=asked.get("loss_column", "loss"),
            # Programs report; what they print is for people.
            search=losses_are_searched(asked) and command.definition is None,
            loss_series=asked.get("loss"),
            trains=asked["trains"],
            again=progress.attempts > 0,
            max_cores=row.spec.demand.most,
            threads=asked.get("threads"),
            memory=row.spec.demand.memory,
            open_files=self.open_files,
            grace=asked.get("grace"),
        )
        return CommandJob(
            command=spec,
            goal=Goal.asked(submission.options),
            retry=command.retry,
            last_iteration=progress.last_iteration,
            first_loss=progress.first_loss,
            spent_seconds=progress.seconds,
            spent_cpu=progress.cpu_seconds,
        )


def _observed(row: JobRow, found: Sequence[Reading], now: float) -> Iterator[LossObserved]:
    cpu_before: float | None = None
    at_before: float | None = None
    last = row.iteration
    for reading in found:
        iteration = last + 1 if reading.iteration is None else reading.iteration
        if iteration <= last:
            continue
        last = iteration
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
