"""What is asked of a command and what becomes of it: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from slaq.core.job import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The Unix user a command runs as, where the engine may choose: it must be root."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """One command to run as a job. At most one of `loss_pattern` and `loss_file` is given."""

    #: The program and its arguments, as they are: no shell reads them.
    argv: tuple[str, ...]
    #: Where slaq keeps the job's own files (its reports); created where it does not exist.
    directory: Path
    #: Where standard output and standard error go; appended to where it exists.
    log: Path
    #: Where the command runs; None for where the engine runs.
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: Whether `env` is added to the engine's own environment, rather than being all there is.
    inherit_env: bool = True
    #: None for the engine's own user.
    run_as: RunAs | None = None
    #: A regular expression over output lines, with a group for the loss (the only one, or the one named `loss`)
    #: and perhaps one named `iteration`. Where neither this nor a file is given, `slaq.report` is listened to.
    loss_pattern: str | None = None
    #: A CSV file with a header, or JSON Lines, that the command writes; relative to where it runs.
    loss_file: Path | None = None
    #: The column or key of that file which holds the loss.
    loss_column: str = "loss"
    #: Cores beyond which more threads would only get in each other's way; None for all cores.
    max_cores: float | None = None
    #: The number its first loss gets; above 0 when the job goes on after a restart.
    first_iteration: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSeen:
    """A loss was read. Times in these records are seconds of `time.monotonic()`."""

    job_id: str
    at: float
    #: Its CPU seconds are those of the whole process tree.
    observation: Observation
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateSeen:
    """The command announced a new learning rate."""

    job_id: str
    at: float
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSourceFailed:
    """The losses cannot be read, nor will be; the command itself goes on."""

    job_id: str
    at: float
    #: One sentence.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExited:
    """The command has ended, and nothing of its process tree is left."""

    job_id: str
    at: float
    #: The exit status; below zero, the signal that ended it.
    status: int
    #: Whether it ended because it was told to.
    stopped: bool
    #: CPU seconds of the whole tree, from start to end.
    cpu_seconds: float
    #: How many losses were read.
    losses: int
    #: The last lines of its output.
    tail: str
    #: Why it could not be started or was lost; empty where it ran.
    fault: str = ""

    @property
    def reason(self) -> str:
        """Why it ended, in a few words; empty where it ended well."""
        if self.fault:
            return self.fault
        if self.status < 0:
            return f"killed by {_signal_name(-self.status)}"
        return f"exit status {self.status}" if self.status else ""


Record = LossSeen | LearningRateSeen | LossSourceFailed | CommandExited


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"
