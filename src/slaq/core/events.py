"""The events that an engine reports to the scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from slaq.core.demand import Demand
from slaq.core.job import JobState, Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class LossObserved:
    """A job finished an iteration and reported its loss."""

    job_id: str
    #: Seconds on the scheduler's clock.
    at: float
    observation: Observation
    #: Other numbers reported with the loss.
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)
    #: The byte offset, in the job's reports, at which this loss ends; None if offsets are not tracked.
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateChanged:
    """A job announced a new learning rate, which changes its loss curve from here on."""

    job_id: str
    at: float
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBegan:
    """A job began to train another model: its next losses form a new curve."""

    job_id: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandChanged:
    """A running job reported what it can use from now on."""

    job_id: str
    at: float
    demand: Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class EndForeseen:
    """A running job reported how many iterations it will make in all."""

    job_id: str
    at: float
    #: The number of its last iteration; at least 1.
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadsChosen:
    """A job had its first turn and began, with so many threads."""

    job_id: str
    at: float
    threads: int
    #: One sentence without a subject on why so many.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSourceChanged:
    """It was found where a job's losses come from, or why none can be read; both may be told again."""

    job_id: str
    at: float
    #: The series that is read, and where it stands; empty until that is known.
    series: str = ""
    place: str = ""
    #: What else there is to read.
    others: tuple[str, ...] = ()
    #: What is wrong, and what to type instead; empty where nothing is.
    trouble: str = ""

    @property
    def sentence(self) -> str:
        """Where the losses come from, for a person; empty until that is known."""
        if not self.series:
            return ""
        others = f"; there is also {', '.join(self.others)} (--loss NAME chooses)" if self.others else ""
        return f"{self.series!r} in {self.place}{others}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUsed:
    """A job used CPU time, whether or not it reported a loss."""

    job_id: str
    at: float
    #: CPU seconds of all attempts of the job together.
    cpu_seconds: float
    #: The cores that it can keep busy at a time; 0 if unknown.
    parallel: int = 0
    #: Bytes of memory that its processes take up; 0 if unknown.
    memory: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingChanged:
    """A job stopped or resumed reporting losses; it competes by its loss only while it reports losses."""

    job_id: str
    at: float
    trains: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDelayed:
    """A started job does not run yet, because its machine is short of something, or runs now."""

    job_id: str
    at: float
    #: What the machine said, or what the job waits for; empty once the job runs.
    reason: str
    #: Whether `reason` goes on from the job's name, because the job waits for something that will come.
    waits: bool = False

    @property
    def sentence(self) -> str:
        """Why the job does not run, in words that go on from its name; empty if it runs."""
        if self.waits or not self.reason:
            return self.reason
        return f"cannot run yet ({self.reason}); slaq keeps trying"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnding(JobDelayed):
    """A running job was told to end, and has some time to do so."""

    #: Seconds until what is left of it is killed.
    grace: float

    @property
    @override
    def sentence(self) -> str:
        return f"was told to end ({self.reason}); what is left of it {self.grace:g} s later is killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLost:
    """A job stopped running through no fault of its own; it has not ended, and can be started again."""

    job_id: str
    at: float
    #: One sentence on what happened.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRetried:
    """A job failed and is started again, as its owner asked for."""

    job_id: str
    at: float
    #: How it failed.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A job ended."""

    job_id: str
    at: float
    state: JobState
    #: One sentence on why the job did not complete; else empty.
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """The number of cores changed."""

    at: float
    #: The cores from now on.
    capacity: float


#: The events about one job.
JobEvent = (
    LossObserved
    | LearningRateChanged
    | CurveBegan
    | DemandChanged
    | EndForeseen
    | ThreadsChosen
    | LossSourceChanged
    | CpuUsed
    | TrainingChanged
    | JobDelayed
    | JobLost
    | JobRetried
    | JobEnded
)
Event = JobEvent | CapacityChanged

#: Events that say how things are now, and are no part of a job's history.
PASSING = (CpuUsed, JobDelayed)
