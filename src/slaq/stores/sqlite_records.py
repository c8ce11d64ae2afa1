"""What the durable store hands out: a job as it stands, its curve, and what a restart has to take in again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slaq.core.allocation import Allocation
from slaq.core.arrays import Floats, Integers
from slaq.core.decision import Decision
from slaq.core.events import Event
from slaq.core.job import JobSpec, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What is durable about a job. Times are seconds on the scheduler's clock, Unix seconds in a service."""

    #: Order of submission: ascending, never used twice.
    number: int
    id: str
    #: What the scheduler goes by.
    spec: JobSpec
    owner: str
    #: What its owner asked for, as it came; not to be changed.
    submission: Mapping[str, Any]
    tags: tuple[str, ...]
    state: JobState
    #: Why it ended, or why it waits; one sentence.
    reason: str
    paused: bool
    submitted_at: float
    #: Its first start.
    started_at: float | None
    ended_at: float | None
    #: How often it was started.
    attempts: int
    #: Of its last start: the iteration it went on from, and where in its log that began.
    attempt_first_iteration: int
    attempt_log_start: int
    #: How far into what it reports itself its reports have been taken in.
    report_offset: int
    #: Which of its curves the rest is about; a job that is run from the beginning again begins another.
    curve: int
    #: The place in the log at which that curve began.
    curve_seq: int
    #: The last iteration reported; -1 before the first loss.
    iteration: int
    #: The first, last and best loss; None where there is none, or where the last one was no number.
    first_loss: float | None
    loss: float | None
    best_loss: float | None
    cpu_seconds: float
    #: The share of its whole reduction done so far, as far as known.
    reduction: float
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Some observations of one job as arrays of one length, in ascending order of iteration."""

    iteration: Integers
    #: When each was observed.
    at: Floats
    #: NaN where it was no number.
    loss: Floats
    #: Since the observation before, as in `Observation`.
    cpu_seconds: Floats
    wall_seconds: Floats
    #: What was reported beside the loss; empty mappings where nothing was.
    metrics: Sequence[Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One entry of the log: the events of one `append`, or a decision."""

    #: Its place in the log.
    seq: int
    events: Sequence[Event] = ()
    decision: Decision | None = None
    #: What it granted and left owed, where that was recorded.
    allocation: Allocation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be."""

    #: The ids of the jobs, whose files are left to the caller.
    jobs: tuple[str, ...]
    observations: int
    allocations: int
    decisions: int
    #: By which the database shrank; estimated where nothing was removed.
    bytes: int
