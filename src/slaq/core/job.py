"""A job: its specification, its state, and its observations."""

from dataclasses import dataclass, field
from enum import StrEnum

from slaq.core.demand import Demand


class JobState(StrEnum):
    """The state of a job."""

    #: Stored, and not started yet.
    QUEUED = "queued"
    RUNNING = "running"
    #: Started, and without cores until its owner resumes it.
    PAUSED = "paused"
    COMPLETED = "completed"
    #: Ended by itself, or because of it, with a last loss that is no finite number.
    DIVERGED = "diverged"
    FAILED = "failed"
    CANCELLED = "cancelled"
    #: Ended, as its owner asked, because it had practically no chance to become the best of its search.
    BEATEN = "beaten"

    @property
    def ended(self) -> bool:
        """Whether the job will never run again."""
        return self not in (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)

    @property
    def perfect(self) -> str:
        """The word for an ended job that goes on from "has": "failed", or "been cancelled"."""
        return f"been {self}" if self in (JobState.CANCELLED, JobState.BEATEN) else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job as its owner submitted it."""

    id: str
    #: Seconds on the scheduler's clock at which the job becomes due.
    arrival: float = 0.0
    #: Whether the job trains a model, reports its loss and competes by it. Any other job does not compete, and
    #: holds its fair share or its reservation.
    trains: bool = True
    #: Whether what it reports should rise, as an accuracy does; what is called its loss is then that number.
    maximize: bool = False
    #: Multiplies the job's gain, or its fair share.
    weight: float = 1.0
    #: What the job can use.
    demand: Demand = field(default_factory=Demand)
    #: The loss that the owner wants to reach; taken as the asymptote of the curve.
    target_loss: float | None = None
    #: Cores that a job which does not compete holds; None for its fair share.
    reserved: float | None = None
    #: The user that submitted the job.
    owner: str = ""
    #: Seconds on the scheduler's clock by which the target should be reached; None for no deadline.
    deadline: float | None = None
    #: The share of the whole reduction that is the target, for a job without a target loss. None means 95% for a
    #: job with a deadline, and no target for other jobs.
    stop_at: float | None = None
    #: The number of iterations after which it ends, as its owner asks; None for no such end.
    max_iterations: int | None = None
    #: Ids of the jobs that must have completed before this one starts, and of those that must have ended.
    after: tuple[str, ...] = ()
    after_any: tuple[str, ...] = ()
    #: The group of its owner that the job belongs to; empty for none.
    group: str = ""
    #: Whether the jobs of its group are a search, of which the best one is wanted soon.
    best_first: bool = False
    #: Whether the job is ended once it has practically no chance to become the best of its search.
    stop_losers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One reported loss, with the cost of its iteration."""

    #: The number of finished iterations; 0 for the loss before the first.
    iteration: int
    loss: float
    #: CPU seconds since the previous observation.
    cpu_seconds: float = 0.0
    #: Wall-clock seconds since the previous observation.
    wall_seconds: float = 0.0
    #: Seconds of these in which the job was let run, and those times the cores that it had then; None where the
    #: job runs all the time on what it was granted.
    run_seconds: float | None = None
    seat_seconds: float | None = None
