"""What an engine tells the scheduler, in the past tense."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from slaq.core.job import JobState, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class LossObserved:
    """A job finished an iteration and reported its loss."""

    job_id: str
    #: Seconds on the scheduler's clock.
    at: float
    observation: Observation
    #: What else was reported with it.
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    #: Where in what the job has reported, in bytes, this loss ends; None where nobody counts.
    reach: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateChanged:
    """A job announced a new learning rate: its curve bends here."""

    job_id: str
    at: float
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBegan:
    """A job began to train another model: its losses from here on are a curve of their own."""

    job_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A job came to its end."""

    job_id: str
    at: float
    state: JobState
    #: Why, where it did not complete; one sentence.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """Units were gained or lost."""

    at: float
    capacity: int


Event = LossObserved | LearningRateChanged | CurveBegan | JobEnded | CapacityChanged
