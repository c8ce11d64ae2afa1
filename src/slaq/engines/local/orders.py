"""What a program job is, as its owner asked for it and as its driver is told."""

from dataclasses import dataclass

from slaq.jobs.data import Dataset, DataShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """A program with its data and the limits of its life."""

    #: The training program, pickled.
    program: bytes
    data: Dataset
    partitions: int
    #: End the job, as completed, once it has reported that many iterations.
    max_iterations: int | None = None
    #: End the job, as completed, that many seconds after its program began.
    time_budget: float | None = None
    #: The loss the owner is content with, and the share of the way to it after which the job is ended.
    target: float | None = None
    stop_at: float | None = None
    #: How often a driver that dies is started again.
    max_restarts: int = 2
    #: Seconds after which a task counts as hung.
    task_timeout: float | None = None
    #: Bytes that the driver, and each task, may allocate.
    memory_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """All that a driver is told at its start."""

    program: bytes
    shape: DataShape
    directory: str
    max_iterations: int | None
    target: float | None
    stop_at: float | None
    memory_limit: int | None
