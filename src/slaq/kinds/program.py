"""Programs: tables of a jobs file, which slaq trains in a process tree of the job's owner."""

import math
import sys
from dataclasses import dataclass

from typing_extensions import override

from slaq.config.works import WORK_KEYS
from slaq.core.errors import UnknownNameError
from slaq.jobs.options import FIT, PROGRAM
from slaq.kinds.processes import Command, ProcessJobs
from slaq.service.kinds import Description, JobFiles, JobKind, Progress, Recovered
from slaq.service.records import Submission
from slaq.stores.sqlite.records import JobIdentity, JobRow

#: What a program's table may say; the options of the job stand beside the table.
PROGRAM_KEYS = tuple(key for key in WORK_KEYS if key not in ("fit", "command"))
#: The options that the process of a program takes care of. With `max_iterations` the program ends by itself, so
#: that it keeps its model.
OWN_OPTIONS = PROGRAM.options.keys() - FIT.options.keys() | {"max_iterations"}


@dataclass(frozen=True, slots=True)
class ProgramKind(JobKind):
    """Runs `Submission.program` by `python -m slaq.run_program`, with the interpreter that its owner names."""

    processes: ProcessJobs
    name = "program"
    remote = None

    @override
    def check(self, submission: Submission, owner: str) -> None:
        self.processes.check(submission, owner)
        for key in submission.program or ():
            if key not in PROGRAM_KEYS:
                raise UnknownNameError("key of a program", key, PROGRAM_KEYS)

    @override
    def describe(self, submission: Submission) -> Description:
        assert submission.program is not None
        table = submission.program
        runs = str(table.get("program") or table.get("algorithm") or "program")
        return Description(name=runs.rpartition(":")[2] or "program", summary=runs)

    @override
    def files(self, job: JobIdentity) -> JobFiles:
        return self.processes.files(job)

    @override
    def prepare(self, row: JobRow, submission: Submission, progress: Progress) -> None:
        assert submission.program is not None
        asked, most = submission.options, row.spec.demand.most
        own = {name: value for name, value in asked.items() if name in OWN_OPTIONS and value is not None}
        definition = {
            "job": {**submission.program, **own},
            "directory": asked["cwd"],
            "cores": max(
                1, math.ceil(self.processes.cores if most is None else min(most, self.processes.cores))
            ),
        }
        path = str(self.processes.files(row.identity).definition)
        python = str(asked["python"] or sys.executable)
        command = Command(argv=(python, "-m", "slaq.run_program", path), definition=definition)
        self.processes.prepare(row, submission, progress, command)

    @override
    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        return self.processes.recover(row, submission, now)
