"""CPU shares by stopping and continuing processes: needs no privilege.

Each process tree earns CPU seconds at its share and pays what it used. A tree without tokens is stopped, and
continued when it has enough for a run of 50 ms: shorter runs at small shares lose half the work to cold caches.
"""

import math
import signal
import time
from collections.abc import Callable

from typing_extensions import override

from slaq.engines.buckets import TokenBucket
from slaq.engines.node.commands.shares import Throttle
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.processes import send

#: Seconds between two looks at the jobs that run.
TICK = 0.02
#: CPU seconds at which a tree is continued.
SLOT = 0.05
#: A tree may save up what it gets in so many seconds, in addition to one slot.
SAVING_SECONDS = 0.25
#: CPU seconds it can at most be behind.
DEEPEST_DEBT = 1.0
#: Seconds between two scans for new processes; a scan is allowed this share of a core.
SCAN_SECONDS, SCAN_SHARE = 0.1, 0.01


class ThrottledTree(TokenBucket):
    """The tokens of one process tree, and whether it runs."""

    __slots__ = ("due", "running", "stopped", "used")

    def __init__(self, now: float, used: float) -> None:
        super().__init__(now)
        #: CPU seconds the tree had used when the tokens were last settled.
        self.used = used
        self.running = False
        #: When to look at the tree again.
        self.due = math.inf
        #: Who was stopped and not continued since.
        self.stopped: set[int] = set()

    def account(self, now: float, used: float) -> None:
        """Bring the tokens up to date, given all CPU seconds used so far."""
        saved = 0.0 if math.isinf(self.cores) else self.cores * SAVING_SECONDS
        self.settle(now, used=used - self.used, least=-DEEPEST_DEBT, most=SLOT + saved)
        self.used = used

    def look_again_at(self) -> float:
        """Return when there will be something to do.

        A tree that runs is watched; one that stands still waits until it has earned its slot.
        """
        if self.running:
            return self._settled_at + TICK
        if self.cores <= 0.0:
            return math.inf
        # Less than half a tick early or late makes no difference, and saves waking up for each tree.
        return self._settled_at + max((SLOT - self.tokens) / self.cores, TICK / 2)


class StopContinue(Throttle):
    """SIGSTOP and SIGCONT to whole trees, driven by measured CPU time."""

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._trees: dict[str, ThrottledTree] = {}
        self._scanned_at = -math.inf
        self._scan_every = SCAN_SECONDS

    @override
    def add(self, job: str, pid: int) -> None:
        if not self._table.members(job):
            self._table.plant(job, pid)
        tree = ThrottledTree(self._clock(), self._table.cpu_seconds(job))
        self._trees[job] = tree
        self._stop(job, tree)

    @override
    def set(self, job: str, cores: float) -> None:
        tree = self._trees[job]
        tree.account(self._clock(), self._table.cpu_seconds(job))
        first = tree.cores <= 0.0 < cores and tree.tokens >= 0.0
        tree.cores = cores
        if first:
            tree.tokens = max(tree.tokens, SLOT)  # a new job begins at once
        self._apply(job, tree)

    @override
    def cpu_seconds(self, job: str) -> float:
        return self._table.cpu_seconds(job)

    @override
    def remove(self, job: str) -> None:
        tree = self._trees.pop(job, None)
        if tree is not None:
            self._continue(job, tree)
        self._table.forget(job)

    @override
    def still(self, job: str) -> bool:
        tree = self._trees.get(job)
        return tree is not None and not tree.running

    @override
    def holder(self, pid: int) -> str | None:
        return None

    @override
    def tick(self) -> float:
        if not self._trees:
            return math.inf
        now = self._clock()
        scanned = now >= self._scanned_at + self._scan_every
        if scanned:
            self._scan(now)
            self._catch()
        for job, tree in self._trees.items():
            if scanned or tree.due <= now:
                used = self._table.cpu_seconds(job)
                if not tree.running and used > tree.used:
                    tree.stopped.clear()  # someone continued it behind our back
                tree.account(now, used)
                self._apply(job, tree)
        next_due = min(tree.due for tree in self._trees.values())
        return min(next_due, self._scanned_at + self._scan_every) - now

    def _scan(self, now: float) -> None:
        before = time.thread_time()
        self._table.scan()
        self._scanned_at = now
        self._scan_every = max(SCAN_SECONDS, (time.thread_time() - before) / SCAN_SHARE)

    def _catch(self) -> None:
        """Stop what belongs to a tree that stands still, and forks and exits too fast for a scan."""
        hidden = [job for job in self._trees if self._table.take_hidden(job)]
        if any(map(self.still, hidden)):
            for pid in self._table.catch():
                if not self.still(self._table.tree_of(pid) or ""):
                    send([pid], signal.SIGCONT)

    def _apply(self, job: str, tree: ThrottledTree) -> None:
        if math.isinf(tree.cores):
            run = True
        elif tree.cores <= 0.0:
            run = False
        else:
            run = tree.tokens > (0.0 if tree.running else SLOT * 0.999)
        if run:
            self._continue(job, tree)
        else:
            self._stop(job, tree)
        tree.due = tree.look_again_at()

    def _stop(self, job: str, tree: ThrottledTree) -> None:
        tree.running = False
        members = self._table.members(job)
        if members != tree.stopped:
            send(members - tree.stopped, signal.SIGSTOP)
            tree.stopped = set(members)

    def _continue(self, job: str, tree: ThrottledTree) -> None:
        # All of them, not only those known to be stopped: that is forgotten where CPU time that was used before
        # the stop is read after it, and a process left out here would stand still for ever.
        if tree.stopped or not tree.running:
            send(self._table.members(job), signal.SIGCONT)
            tree.stopped = set()
        tree.running = True
