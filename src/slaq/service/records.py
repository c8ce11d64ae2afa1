"""What users ask of the service and what it shows them: values only, all of them JSON at heart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slaq.core.job import JobState


class IfLost(StrEnum):
    """What becomes of a command that was running when the service was lost."""

    #: Run again; it goes on by itself from what it kept in its directory, and its curve goes on too.
    RESUME = "resume"
    #: Run again from the beginning, with a fresh curve.
    RESTART = "restart"
    #: Not run again: reported as failed.
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who asks."""

    user: str
    #: The Unix user behind it; None where a token stands for someone without an account here.
    uid: int | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job as its owner asks for it. Exactly one of `command`, `program` and `external` is given."""

    #: Whose job it is, where that is not who submits it; for admins.
    user: str | None = None
    #: What to call it; the service adds a number where a job of that name is there already.
    name: str | None = None
    #: The program and its arguments, as they are: no shell reads them.
    command: tuple[str, ...] | None = None
    #: A [[job]] table of a jobs file with `algorithm` or `program`: run by slaq in a process of its own.
    program: Mapping[str, Any] | None = None
    #: Runs elsewhere: the service starts nothing and takes its reports. With `max_cores` it competes for cores of
    #: this machine, and the service says how many it may use; without, it is only watched.
    external: bool = False
    #: The interpreter for a `program`; None for the service's own.
    python: str | None = None
    #: Where it runs; None for the job's own directory.
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    min_cores: float = 0.0
    #: None for no limit of its own.
    max_cores: float | None = None
    target_loss: float | None = None
    #: Ends the job once this share of its whole reduction is done.
    stop_at: float | None = None
    #: Seconds after submission by which its target (`target_loss`, or `stop_at`, or 95%) is wanted.
    by: float | None = None
    max_iterations: int | None = None
    #: Seconds it may run.
    time_budget: float | None = None
    max_restarts: int = 0
    if_lost: IfLost = IfLost.RESUME
    loss_pattern: str | None = None
    loss_file: str | None = None
    loss_column: str = "loss"
    #: False for other work, held at its fair share.
    trains: bool = True
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """When a job is expected to be good enough; times are Unix seconds, None where that is never."""

    #: Expected moments of 90% and 95% of its whole reduction, at the units it holds now.
    at_90: float | None = None
    at_95: float | None = None
    #: The probability of making its target by its deadline; None where it has none.
    chance: float | None = None
    #: The target cannot be made, as far as can be foreseen.
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as the service shows it. Times are Unix seconds."""

    id: str
    owner: str
    state: JobState
    #: Why it ended, or why it waits; one sentence.
    reason: str
    #: "command", "program" or "external".
    work: str
    #: One line that says what it runs.
    summary: str
    trains: bool
    tags: tuple[str, ...]
    weight: float
    min_cores: float
    max_cores: float | None
    target_loss: float | None
    stop_at: float | None
    deadline: float | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    units: int
    #: Units as cores.
    cores: float
    #: The last iteration reported; -1 before the first loss.
    iteration: int
    first_loss: float | None
    loss: float | None
    best_loss: float | None
    #: The share of its whole reduction done so far, as far as known.
    reduction: float
    diverged: bool
    cpu_seconds: float
    #: How often it was started.
    attempts: int
    directory: str
    prospect: Prospect


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """One user's standing."""

    user: str
    weight: float
    #: None for no limit.
    max_jobs: int | None
    max_cores: float | None
    queued: int
    running: int
    paused: int
    units: int
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The whole of it at a glance."""

    version: str
    policy: str
    cores: int
    units_per_core: int
    capacity: int
    granted: int
    epoch: int
    epoch_seconds: float
    started_at: float
    now: float
    queued: int
    running: int
    paused: int
    #: How CPU shares are enforced.
    throttle: str | None
    #: What is wrong, in one sentence each; empty when all is well.
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that happened, as the event stream tells it."""

    #: Ascending, never used twice, also over restarts.
    number: int
    #: "job.submitted", "job.started", "job.observed", "job.paused", "job.resumed", "job.changed", "job.ended",
    #: "decision", "cluster.changed".
    kind: str
    at: float
    job_id: str | None
    #: Whose job it is about; None for what everyone may see.
    owner: str | None
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of what a job printed."""

    offset: int
    data: bytes
    next_offset: int
    #: Nothing more will come.
    ended: bool
