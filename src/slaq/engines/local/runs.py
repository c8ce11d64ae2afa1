"""What the engine keeps of each program job and of each of its tasks while they run."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from slaq.core.job import JobState
from slaq.engines.buckets import Bucket
from slaq.engines.local.nursery import Child
from slaq.engines.local.orders import ProgramJob
from slaq.engines.local.shared import Segment
from slaq.engines.local.wire import NOTHING


class Turn(Enum):
    """What a driver does."""

    #: Its process is not there, or not any more.
    ABSENT = auto()
    #: It waits to be let go on.
    WAITS = auto()
    #: It runs its program.
    RUNS = auto()
    #: It waits for the results of a map.
    MAPS = auto()


@dataclass(slots=True, kw_only=True)
class Run:
    """A program job from its start to its end."""

    number: int
    job_id: str
    job: ProgramJob
    segment: Segment
    directory: Path
    log: int
    bucket: Bucket = field(default_factory=Bucket)
    # The driver.
    driver: Child | None = None
    turn: Turn = Turn.ABSENT
    #: Whether it holds a core while it runs, as long turns do.
    seated: bool = False
    #: CPU seconds of this driver that have been accounted for, and of its usual turn.
    driver_cpu: float = 0.0
    turn_cpu: float = 0.0
    #: The same at the beginning of its turn and at the last look at it, and when that look was.
    turn_began: float = 0.0
    looked: tuple[float, float] = (0.0, 0.0)
    #: When its turn began, and how long it usually takes.
    let_go_at: float = 0.0
    turn_wall: float = 0.0
    #: How often it was started again.
    restarts: int = 0
    # The map it is in.
    map: int = 0
    call: memoryview = NOTHING
    queue: deque[int] = field(default_factory=deque)
    missing: set[int] = field(default_factory=set)
    #: How often a worker died of each partition's task.
    lost: dict[int, int] = field(default_factory=dict)
    #: When its program began to run.
    began_at: float | None = None
    # What it has reported.
    iteration: int = -1
    reported_at: float = 0.0
    #: CPU seconds since then, and in all.
    cpu: float = 0.0
    total_cpu: float = 0.0
    # Its end: asked for, in which state and why; then when it will be killed.
    ending: JobState | None = None
    reason: str = ""
    deadline: float = float("inf")
    ended_at: float | None = None

    def pay(self, cpu_seconds: float) -> None:
        """Account for CPU that the job has used."""
        self.bucket.pay(cpu_seconds)
        self.cpu += cpu_seconds
        self.total_cpu += cpu_seconds

    def pay_driver(self, so_far: float) -> None:
        """Account for what the driver has used, given all of it so far."""
        used = so_far - self.driver_cpu
        if used > 0:
            self.driver_cpu = so_far
            self.pay(used)

    @property
    def wants_core(self) -> bool:
        """Whether it has something to run now."""
        return bool(self.queue) or self.turn is Turn.WAITS

    @property
    def works(self) -> bool:
        """Whether it wants a core, or has tasks on some."""
        return self.wants_core or self.bucket.running > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of a map, on a worker."""

    run: Run
    #: Tells maps of the job's driver from those of one that died.
    restarts: int
    map: int
    index: int

    @property
    def missed(self) -> bool:
        """Whether the driver still waits for its result."""
        run = self.run
        return self.restarts == run.restarts and self.map == run.map and self.index in run.missing
