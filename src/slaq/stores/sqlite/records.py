"""The records that the durable store returns: jobs, curves and log entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import TypedDict

from slaq.core.allocation import Grant
from slaq.core.arrays import Floats, Integers
from slaq.core.decision import Decision
from slaq.core.events import Event
from slaq.core.job import JobSpec, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """Which submission a job is: no other one has all of this, of the same name or in a restored database."""

    #: The number in the order of submission.
    number: int
    id: str
    owner: str
    submitted_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """The stored state of a job. Times are seconds on the scheduler's clock, Unix seconds in a service."""

    #: The number in the order of submission; never reused.
    number: int
    id: str
    #: The spec that the scheduler uses.
    spec: JobSpec
    owner: str
    #: The submission as received; must not be changed.
    submission: Mapping[str, Any]
    tags: tuple[str, ...]
    state: JobState
    #: One sentence on why the job ended or waits.
    reason: str
    paused: bool
    submitted_at: float
    #: The time of the first start.
    started_at: float | None
    ended_at: float | None
    #: The number of starts.
    attempts: int
    #: Of the last start: the iteration from which the job continued, and the offset in its log.
    attempt_first_iteration: int
    attempt_log_start: int
    #: The bytes of the job's report file that have been read.
    report_offset: int
    #: The number of the present curve; a job that is run again from the beginning begins another.
    curve: int
    #: The position in the log at which that curve began.
    curve_seq: int
    #: The last iteration reported; -1 before the first loss.
    iteration: int
    #: How many iterations it said it will make in all; None where it said nothing.
    total: int | None
    #: Where its losses come from, and what is wrong with that, in words; empty while that is not known.
    loss_source: str
    loss_trouble: str
    #: The threads that it got when it last began, and why; None before. The most bytes of memory that it took.
    threads: int | None
    threads_reason: str
    memory_peak: int
    #: The first, last and best loss; None if there is none, or if the last one is NaN.
    first_loss: float | None
    loss: float | None
    best_loss: float | None
    #: CPU seconds of all attempts, as far as they are known.
    cpu_seconds: float
    #: The share of the whole reduction reached so far, as forecast.
    reduction: float
    #: Cores that the job holds.
    cores: float

    @property
    def identity(self) -> JobIdentity:
        """Which submission it is."""
        return JobIdentity(number=self.number, id=self.id, owner=self.owner, submitted_at=self.submitted_at)


class JobFilters(TypedDict, total=False):
    """What stored jobs are chosen by, beside their state; None for any."""

    owner: str | None
    tag: str | None
    group: str | None
    #: Only jobs whose numbers lie between these, both left out.
    after_number: int | None
    before_number: int | None
    #: Submitted at this moment or later.
    submitted_since: float | None
    #: Not ended, or ended at this moment or later.
    ended_since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCurve:
    """Some observations of one job as arrays of one length, in ascending order of iteration."""

    iteration: Integers
    #: When each was observed.
    at: Floats
    #: NaN for losses that are not finite.
    loss: Floats
    #: Since the observation before, as in `Observation`.
    cpu_seconds: Floats
    wall_seconds: Floats
    #: The metrics reported with each loss.
    metrics: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One entry of the log: the events of one `append`, or a decision."""

    #: The position in the log.
    seq: int
    events: Sequence[Event] = ()
    decision: Decision | None = None
    #: The grant with its credits, if it was recorded.
    grant: Grant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be removed."""

    #: The ids of the jobs; the caller removes their files.
    jobs: tuple[str, ...]
    observations: int
    allocations: int
    decisions: int
    #: The bytes by which the database shrank; an estimate for a dry run.
    bytes: int
    #: By job, why something of its folder is left; the service goes on deleting it.
    left: Mapping[str, str] = field(default_factory=dict)
