"""What the service asks of a kind of jobs; the kinds themselves are in `slaq.kinds`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slaq.core.errors import UnknownNameError
from slaq.core.events import LossObserved
from slaq.core.job import JobState
from slaq.jobs.options import IfLost
from slaq.service.records import LogChunk, Submission
from slaq.stores.sqlite.records import JobIdentity, JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A description of a submission."""

    #: What to call the job where its owner gives no name.
    name: str
    #: One line that says what the job runs.
    summary: str
    #: Whether the job uses none of this cluster's cores, so that it is given none.
    watched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job had come before a start; the defaults are those of its first start."""

    #: How often it was started.
    attempts: int = 0
    #: The number of the last loss that the store has; -1 where it has none.
    last_iteration: int = -1
    first_loss: float | None = None
    #: Seconds since its first start.
    seconds: float = 0.0
    #: CPU seconds of its attempts so far.
    cpu_seconds: float = 0.0
    #: How many bytes of its reports were read, where the service counts them.
    report_offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What is found of a job that was running when the service ended."""

    #: Losses that the job reported and the store does not have, in order.
    unread: Sequence[LossObserved] = ()
    if_lost: IfLost = IfLost.RESUME


class JobFiles(Protocol):
    """The files of one job: of one submission, never those of another that has or had the same name."""

    @property
    def directory(self) -> str:
        """The folder that holds them."""
        ...

    def reports_size(self) -> int:
        """Return how many bytes of reports there are."""
        ...

    def read_log(self, offset: int, limit: int, *, ended: bool) -> LogChunk:
        """Return a piece of what the job printed; a negative offset counts from the end.

        Raises BusyError while the job keeps the service from reading.
        """
        ...

    def remove(self) -> str:
        """Delete all of them; return why something is left, which is deleted later, or nothing.

        Raises OSError where they could not even be moved out of the way.
        """
        ...


class Remote(Protocol):
    """Receives reports of jobs that run elsewhere. Every method may be called from any thread."""

    def report(self, job: JobIdentity, lines: bytes, *, offset: int, source: str) -> int:
        """Keep reports and pass them on to the engine; return how many bytes of the source's reports there are.

        The lines begin at that byte of the source's reports; what is known already is ignored. They are on
        disk when this returns.
        """
        ...

    def catch_up(self, job: JobIdentity) -> bool:
        """Pass on a piece of what was reported before the engine started the job; return whether that was all."""
        ...

    def end(self, job_id: str, state: JobState, reason: str) -> bool:
        """End a job with the state that its owner reports; return whether the engine runs the job."""
        ...


class JobKind(Protocol):
    """One kind of jobs: what it accepts, how its jobs are run, and how they are found after a restart."""

    @property
    def name(self) -> str:
        """The name of the kind, which is also the field of a submission that holds the work."""
        ...

    @property
    def remote(self) -> Remote | None:
        """Receives the reports of jobs that run elsewhere; None if the engine runs the jobs."""
        ...

    def check(self, submission: Submission, owner: str) -> None:
        """Raise a SlaqError where the submission cannot run as a job of that owner."""
        ...

    def describe(self, submission: Submission) -> Description:
        """Return a description of a submission."""
        ...

    def files(self, job: JobIdentity) -> JobFiles:
        """Return a job's files, whether or not they exist."""
        ...

    def prepare(self, row: JobRow, submission: Submission, progress: Progress) -> None:
        """Make the job's files and give its work to the engine, which can then start the job by its id.

        Where this raises a SlaqError or an OSError, it leaves nothing behind.
        """
        ...

    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        """Return what is found of a job that was running when the service ended."""
        ...


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of jobs that a service takes, by name."""

    by_name: Mapping[str, JobKind] = field(default_factory=dict)

    @classmethod
    def of(cls, *kinds: JobKind) -> "Kinds":
        """Return these kinds."""
        return cls({kind.name: kind for kind in kinds})

    def __iter__(self) -> Iterator[JobKind]:
        return iter(self.by_name.values())

    def find(self, submission: Submission) -> JobKind:
        """Return the kind of a job; raises a SlaqError if the submission does not have exactly one."""
        if submission.kind not in self.by_name:
            raise UnknownNameError("kind of job", submission.kind, self.by_name)
        return self.by_name[submission.kind]

    def files(self, job: JobIdentity) -> set[JobFiles]:
        """Return the files that a job of any kind may have left."""
        return {kind.files(job) for kind in self}
