"""What a program job is: as its owner asked for it, and as its driver is told."""

from dataclasses import dataclass, field
from pathlib import Path

from slaq.engines.goals import Goal
from slaq.jobs.data import Dataset, DataShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob:
    """A program with its data and the limits of its life."""

    #: The training program, pickled.
    program: bytes
    data: Dataset
    partitions: int
    goal: Goal = field(default_factory=Goal)
    #: How often a driver that dies is started again.
    retry: int = 2
    #: Seconds after which a task counts as hung.
    task_timeout: float | None = None
    #: Bytes that the driver, and each task, may allocate.
    memory: int | None = None
    #: The file that an earlier run of the program left as its checkpoint; None to begin anew.
    checkpoint: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOrders:
    """All that a driver is told at its start."""

    program: bytes
    shape: DataShape
    directory: Path
    goal: Goal
    memory: int | None


def orders_for(job: ProgramJob, directory: Path) -> DriverOrders:
    """Return what the driver of a job is told."""
    return DriverOrders(
        program=job.program,
        shape=job.data.shape(job.partitions),
        directory=directory,
        goal=job.goal,
        memory=job.memory,
    )
