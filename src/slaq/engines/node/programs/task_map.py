"""The map that a driver waits for: tasks still to run, results still missing, tasks that lost their worker."""

from collections import deque
from dataclasses import dataclass, field

from slaq.engines.node.wire import NOTHING

#: How often a task may lose its worker.
ATTEMPTS = 3


@dataclass(slots=True)
class TaskMap:
    """One function over all partitions of a job's data."""

    #: Counted by the driver, from 1.
    number: int = 0
    #: The packed function and its arguments.
    call: memoryview = NOTHING
    #: Partitions whose task is to be run.
    queue: deque[int] = field(default_factory=deque)
    #: Partitions whose result the driver waits for.
    missing: set[int] = field(default_factory=set)
    #: How often a worker died of each partition's task.
    _lost: dict[int, int] = field(default_factory=dict)

    def begin(self, number: int, call: memoryview, partitions: int) -> None:
        """Take a new map, with a task for each partition."""
        self.number, self.call = number, call
        self.missing = set(range(partitions))
        # A program that gave up the map before, as at an alarm, may have left tasks of it.
        self.queue = deque(range(partitions))
        self._lost.clear()

    def drop(self) -> None:
        """Forget the map: its driver waits for it no longer."""
        self.call = NOTHING
        self.queue.clear()
        self.missing.clear()

    def lose(self, index: int) -> int:
        """Take note that the worker of a task died; return how often that has happened to this task."""
        self._lost[index] = self._lost.get(index, 0) + 1
        return self._lost[index]
