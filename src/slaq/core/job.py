"""What a job is: its specification, its state, and what it reports."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Whether a job competes by its loss."""

    #: Trains a model and reports its loss: competes for capacity.
    ML = "ml"
    #: Any other work: held at its fair share or its reservation, outside the competition.
    OTHER = "other"


class JobState(StrEnum):
    """Where a job stands in its life."""

    #: Known to the store, not yet started.
    QUEUED = "queued"
    RUNNING = "running"
    #: Under way, and held without units until its owner resumes it.
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the job will never run again."""
        return self not in (JobState.QUEUED, JobState.RUNNING, JobState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One training run as its owner asked for it."""

    id: str
    #: Seconds on the scheduler's clock at which the job becomes due.
    arrival: float = 0.0
    kind: Kind = Kind.ML
    #: Multiplies the job's gain, or its fair share.
    weight: float = 1.0
    #: Units it holds at all times, as far as the capacity allows.
    min_units: int = 0
    #: Units beyond which it cannot run faster; None where it has no such limit.
    max_units: int | None = None
    #: The loss its owner is content with; taken as its asymptote.
    target_loss: float | None = None
    #: Units that a job of kind OTHER holds; None for its fair share.
    reserved_units: int | None = None
    #: Whose job it is, where capacity is shared between owners.
    owner: str = ""
    #: Seconds on the scheduler's clock by which its target is wanted; None for no such wish.
    deadline: float | None = None
    #: The share of its whole reduction that is its target, where it has no target loss; None for 95% where it
    #: has a deadline.
    wanted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One loss as reported, with what it cost."""

    #: How many iterations the job had finished; 0 is the loss before the first one.
    iteration: int
    loss: float
    #: CPU seconds spent since the observation before.
    cpu_seconds: float = 0.0
    #: Seconds passed since the observation before.
    wall_seconds: float = 0.0
