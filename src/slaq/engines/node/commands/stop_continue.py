"""Lets process trees run and rest by continuing and stopping all their processes: needs no privilege."""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import override

from slaq.engines.node.commands.shares import Throttle
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.processes import send

#: Seconds between two scans for new processes; a scan is allowed this share of a core.
SCAN_SECONDS, SCAN_SHARE = 0.1, 0.01


@dataclass(slots=True)
class StoppedTree:
    """One process tree, and whether it stands still."""

    #: CPU seconds that it had used at the last scan.
    used: float = 0.0
    runs: bool = False
    #: The processes that were stopped and not continued since.
    stopped: set[int] = field(default_factory=set)


class StopContinue(Throttle):
    """SIGSTOP and SIGCONT to whole trees."""

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._trees: dict[str, StoppedTree] = {}
        self._scanned_at = -math.inf
        self._scan_every = SCAN_SECONDS

    @override
    def add(self, job: str, pid: int) -> None:
        if not self._table.members(job):
            self._table.plant(job, pid)
        self._trees[job] = StoppedTree(self._table.cpu_seconds(job))
        self.rest(job)

    @override
    def run(self, job: str, seats: int) -> None:
        tree = self._trees[job]
        # All of them, not only those known to be stopped: that is forgotten where CPU time that was used before
        # the stop is read after it, and a process left out here would stand still for ever.
        if tree.stopped or not tree.runs:
            send(self._table.members(job), signal.SIGCONT)
            tree.stopped = set()
        tree.runs = True

    @override
    def rest(self, job: str) -> None:
        tree = self._trees[job]
        tree.runs = False
        members = self._table.members(job)
        if members != tree.stopped:
            send(members - tree.stopped, signal.SIGSTOP)
            tree.stopped = set(members)

    @override
    def cpu_seconds(self, job: str) -> float:
        return self._table.cpu_seconds(job)

    @override
    def remove(self, job: str) -> None:
        if job in self._trees:
            self.run(job, 1)
            del self._trees[job]
        self._table.forget(job)

    @override
    def rests(self, job: str) -> bool:
        tree = self._trees.get(job)
        return tree is not None and not tree.runs

    @override
    def holder(self, pid: int) -> str | None:
        return None

    @override
    def tend(self) -> float:
        if not self._trees:
            return math.inf
        now = self._clock()
        if now >= self._scanned_at + self._scan_every:
            self._scan(now)
            self._catch()
            for job, tree in self._trees.items():
                used = self._table.cpu_seconds(job)
                if not tree.runs:
                    if used > tree.used:
                        tree.stopped.clear()  # someone continued it behind our back
                    self.rest(job)
                tree.used = used
        return self._scanned_at + self._scan_every - now

    def _scan(self, now: float) -> None:
        before = time.thread_time()
        self._table.scan()
        self._scanned_at = now
        self._scan_every = max(SCAN_SECONDS, (time.thread_time() - before) / SCAN_SHARE)

    def _catch(self) -> None:
        """Stop what belongs to a tree that stands still, and forks and exits too fast for a scan."""
        hidden = [job for job in self._trees if self._table.take_hidden(job)]
        if any(map(self.rests, hidden)):
            for pid in self._table.catch():
                if not self.rests(self._table.tree_of(pid) or ""):
                    send([pid], signal.SIGCONT)
