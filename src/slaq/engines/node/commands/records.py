"""What is asked of a command and what becomes of it: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slaq.core.events import (
    CpuUsed,
    CurveBegan,
    DemandChanged,
    EndForeseen,
    JobDelayed,
    LearningRateChanged,
    LossObserved,
    LossSourceChanged,
    ThreadsChosen,
    TrainingChanged,
)
from slaq.engines.processes import how_it_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The Unix user a command runs as, where the node may choose: it must be root."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command to run as a job. At most one of `loss_pattern` and `loss_file` is given."""

    #: The program and its arguments, as they are: no shell reads them.
    argv: tuple[str, ...]
    #: Where slaq keeps the job's own files (its reports, its share); created where it does not exist.
    directory: Path
    #: Where standard output and standard error go; appended to where it exists.
    log: Path
    #: Where the command runs; None for where the node runs.
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: Whether `env` is added to the node's own environment, rather than being all there is.
    inherit_env: bool = True
    #: None for the node's own user.
    run_as: RunAs | None = None
    #: A regular expression over output lines, with a group for the loss (the only one, or the one named `loss`)
    #: and perhaps one named `iteration`. Where neither this nor a file is given, reports of losses count.
    loss_pattern: str | None = None
    #: A CSV file with a header, or JSON Lines, that the command writes; relative to where it runs.
    loss_file: Path | None = None
    #: The column or key of that file which holds the loss.
    loss_column: str = "loss"
    #: Where neither is given: whether losses are looked for in the output and in files, and the series to choose.
    search: bool = True
    loss_series: str | None = None
    #: Whether losses are expected: a command that tells none for long is held as other work, and its owner is told.
    trains: bool = True
    #: Whether it was started before: what was held of it then may hold no longer.
    again: bool = False
    #: Cores that it gets at most, however many are idle; None for all cores.
    max_cores: float | None = None
    #: The threads that its owner chose, and the number beyond which more did not make earlier runs faster; None
    #: where nobody chose, or nothing is known.
    threads: int | None = None
    useful_threads: int | None = None
    #: Bytes of memory that its owner declared; None if undeclared.
    memory: int | None = None
    #: Files it may have open, until it asks for more; None for as many as the node.
    open_files: int | None = None
    #: Seconds it has to end once it is told to; None for what is usual on its node.
    grace: float | None = None
    #: The number its first loss gets; above 0 when the job goes on after a restart.
    first_iteration: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command to start, with everything settled."""

    job_id: str
    #: Names the process tree of this start of the command, and of no other.
    tree: str
    #: In the environment of its processes, and known to nobody else: see `marks`.
    mark: str
    spec: CommandSpec
    cwd: Path
    env: Mapping[str, str]
    #: The file that the command's reports are appended to.
    reports: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSourceFailed:
    """The losses cannot be read, now or later; the command itself goes on."""

    job_id: str
    #: One sentence.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExited:
    """The command has ended, and nothing of its process tree is left."""

    job_id: str
    #: The exit status; below zero, the signal that ended it.
    status: int
    #: Whether it ended because it was told to.
    stopped: bool = False
    #: CPU seconds of the whole tree, from start to end.
    cpu_seconds: float = 0.0
    #: The last lines of its output.
    tail: str = ""
    #: Why it could not be started or was lost; empty where it ran.
    fault: str = ""
    #: Whether what runs commands was lost, and the command with it through no fault of its own.
    lost: bool = False

    @property
    def reason(self) -> str:
        """Why the command failed, in a few words; empty if it succeeded."""
        return self.fault or (how_it_ended(self.status) if self.status else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatsTaken:
    """Commands now occupy so many cores in their turns."""

    seats: int
    #: Of no job.
    job_id: str = ""


#: What the supervisor tells of commands; the times of events are seconds of `time.monotonic()`.
Record = (
    LossObserved
    | LearningRateChanged
    | DemandChanged
    | EndForeseen
    | ThreadsChosen
    | LossSourceChanged
    | CurveBegan
    | TrainingChanged
    | CpuUsed
    | LossSourceFailed
    | JobDelayed
    | SeatsTaken
    | CommandExited
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The supervisor is ready to run commands."""

    #: How CPU shares are enforced, and why better ways are not used.
    throttle: str
    refused: Mapping[str, str]
    #: The supervisor's process id.
    pid: int
