"""Commands: any program with its arguments, run as a process tree of its owner."""

from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from slaq.config.values import command_name
from slaq.core.errors import CommandError
from slaq.engines.node.commands.checks import check_words
from slaq.jobs.options import LONGEST_TEXT
from slaq.kinds.processes import Command, ProcessJobs
from slaq.service.kinds import Description, JobFiles, JobKind, Progress, Recovered
from slaq.service.records import Submission
from slaq.stores.sqlite.records import JobIdentity, JobRow

#: Words of a command.
MOST_WORDS = 1_000


@dataclass(frozen=True, slots=True)
class CommandKind(JobKind):
    """Runs `Submission.command` as it is: no shell reads it."""

    processes: ProcessJobs
    name = "command"
    remote = None

    @override
    def check(self, submission: Submission, owner: str) -> None:
        self.processes.check(submission, owner)
        words = submission.command or ()
        check_words(words)
        if len(words) > MOST_WORDS or sum(map(len, words)) > LONGEST_TEXT:
            raise CommandError(
                "the command is too long",
                f"give at most {MOST_WORDS} words and {LONGEST_TEXT} characters in all",
            )

    @override
    def describe(self, submission: Submission) -> Description:
        assert submission.command is not None
        name = Path(command_name(submission.command)).stem
        return Description(name=name, summary=" ".join(submission.command))

    @override
    def files(self, job: JobIdentity) -> JobFiles:
        return self.processes.files(job)

    @override
    def prepare(self, row: JobRow, submission: Submission, progress: Progress) -> None:
        assert submission.command is not None
        command = Command(argv=submission.command, retry=submission.options["retry"])
        self.processes.prepare(row, submission, progress, command)

    @override
    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        return self.processes.recover(row, submission, now)
