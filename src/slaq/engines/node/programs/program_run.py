"""A program job from its start to its end, as the dispatcher sees it."""

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from slaq.core.demand import Demand
from slaq.core.job import JobState, Observation
from slaq.engines.buckets import Bucket
from slaq.engines.node.programs.driver_handle import SHORT, DriverHandle, Turn
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.programs.messages import FAILED, MessageKind
from slaq.engines.node.programs.shared_data import Segment
from slaq.engines.node.programs.task_map import ATTEMPTS, TaskMap
from slaq.engines.node.wire import Head

#: Bytes from which a result is passed on without waiting for the others of its map.
LARGE = 1 << 16
#: In place of a log that could not be opened yet.
NO_LOG = -1

#: Seconds between two times that a program's CPU time is told, where it has grown by so many seconds.
TELL_SECONDS, TELL_GROWTH = 2.0, 0.01

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class ProgramRun:
    """One job: its driver, the map the driver is in, the CPU it uses, and its end."""

    number: int
    job_id: str
    job: ProgramJob
    segment: Segment
    directory: Path
    #: A descriptor, or NO_LOG.
    log: int
    driver: DriverHandle = field(default_factory=DriverHandle)
    map: TaskMap = field(default_factory=TaskMap)
    bucket: Bucket = field(default_factory=Bucket)
    #: The last iteration that was reported, when that was, and the CPU seconds used since.
    iteration: int = -1
    reported_at: float = field(default_factory=time.monotonic)
    cpu: float = 0.0
    #: CPU seconds used in all, and those that were told, whether or not with losses; when they were told.
    spent: float = 0.0
    told: float = 0.0
    told_at: float = field(default_factory=time.monotonic)
    #: What it last said it can use.
    demand: Demand | None = None
    #: How many iterations it last said it will make in all.
    total: int | None = None
    #: Until when no process is asked for, because the system had none for it.
    launch_at: float = 0.0
    #: Why it has no process yet, as last told.
    delayed: str = ""
    # Its end: in which state and why, once asked for; when it is killed at the latest; when it came.
    ending: JobState | None = None
    reason: str = ""
    deadline: float = float("inf")
    ended_at: float | None = None

    @property
    def wants_core(self) -> bool:
        """Whether it has something to run now."""
        return bool(self.map.queue) or self.driver.turn is Turn.WAITS

    @property
    def works(self) -> bool:
        """Whether it wants a core, or has tasks on some."""
        return self.wants_core or self.bucket.running > 0

    def pay(self, cpu_seconds: float) -> None:
        """Account for CPU that the job has used."""
        self.bucket.pay(cpu_seconds)
        self.cpu += cpu_seconds
        self.spent += cpu_seconds

    def untold(self, now: float) -> float | None:
        """Return the CPU seconds used in all, if it is time to tell them; None where nothing is new."""
        if self.spent < self.told + TELL_GROWTH or now < self.told_at + TELL_SECONDS:
            return None
        self.told, self.told_at = self.spent, now
        return self.spent

    def observe(self, iteration: int, loss: float) -> Observation | None:
        """Return a reported loss with what it cost.

        None for an iteration that was reported before: a driver that was started again repeats some.
        """
        now = time.monotonic()
        cpu, wall = self.cpu, now - self.reported_at
        self.cpu, self.reported_at = 0.0, now
        if iteration <= self.iteration:
            return None
        self.iteration = iteration
        return Observation(iteration=iteration, loss=loss, cpu_seconds=cpu, wall_seconds=wall)

    # The driver's map and its tasks.

    def begin_map(self, number: int, call: memoryview) -> None:
        """Queue a task for each partition."""
        self.driver.rest(Turn.MAPS)
        self.map.begin(number, call, self.job.data.count(self.job.partitions))
        if self.ending is not None:
            self.map.queue.clear()

    def task_done(self, task: "Task", head: Head, payload: memoryview) -> None:
        """Pass on what a task returned or raised; the driver goes on after the last one, or the first error."""
        if not task.missed:
            return
        self.map.missing.discard(task.index)
        result = Head(MessageKind.RESULT, head.flag, b=task.map, c=task.index)
        raised = head.flag == FAILED
        last = not self.map.missing and not raised
        # A driver whose next turn will be short needs no core of its own for it.
        at_once = last and self.driver.usual_cpu < SHORT and self.bucket.cores > 0
        # The driver is woken once for all small results of a map; large ones are sent while others are made.
        more = at_once if last else not raised and len(payload) < LARGE
        self.driver.send(result, [payload], more=more)
        if raised:
            self._abandon_map()
        elif last:
            self.map.drop()
            if at_once:
                self.driver.resume(holds_core=False)
            else:
                self.driver.turn = Turn.WAITS

    def task_lost(self, task: "Task", how: str) -> None:
        """Queue a task again whose worker died, unless the task seems to be what kills workers."""
        count = self.map.lose(task.index) if task.missed else 0
        if count >= ATTEMPTS:
            self.task_failed(task, f"its worker was lost ({how}), {count} times in a row")
        else:
            _log.warning(
                "task retried", extra={"job": self.job_id, "partition": task.index, "attempt": count}
            )
            self.task_returned(task)

    def task_returned(self, task: "Task") -> None:
        """Queue a task again that was not begun or not ended."""
        if task.missed and self.ended_at is None and self.ending is None:
            self.map.queue.appendleft(task.index)

    def task_failed(self, task: "Task", reason: str) -> None:
        """Tell the driver that a task cannot be run."""
        if task.missed and self.ended_at is None:
            self.driver.send(Head(MessageKind.LOST, b=task.map, c=task.index), [reason.encode()])
            self._abandon_map()

    def _abandon_map(self) -> None:
        """Let the driver go on with an error."""
        self.map.drop()
        self.driver.run_on()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of a map, on a worker."""

    run: ProgramRun
    #: The number of the driver whose map it is.
    driver: int
    map: int
    index: int

    @property
    def missed(self) -> bool:
        """Whether the driver still waits for its result."""
        driver, current = self.run.driver, self.run.map
        return (
            self.driver == driver.number
            and self.map == current.number
            and self.index in current.missing
            and driver.child is not None
        )
