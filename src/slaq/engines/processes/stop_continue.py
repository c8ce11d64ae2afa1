"""CPU shares by stopping and continuing processes: needs no privilege.

Each job has a bucket of CPU seconds, filled at its share and emptied by what its tree used. It is stopped when
the bucket is empty and continued when there is enough in it for a run of 50 ms: shorter runs at small shares
lose half the work to cold caches.
"""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import override

from slaq.engines.processes.shares import Throttle
from slaq.engines.processes.tree import ProcessTable, send

#: Seconds between two looks at the jobs that run.
TICK = 0.02
#: CPU seconds in the bucket at which a job is continued.
SLOT = 0.05
#: A job may save up what it gets in so many seconds, in addition to one slot.
SAVING_SECONDS = 0.25
#: CPU seconds it can at most be behind.
DEEPEST_DEBT = 1.0
#: Seconds between two scans for new processes; a scan is allowed this share of a core.
SCAN_SECONDS, SCAN_SHARE = 0.1, 0.01


@dataclass(slots=True)
class _Bucket:
    #: When `balance` was brought up to date, and the CPU seconds used by then.
    at: float
    used: float
    cores: float = 0.0
    balance: float = 0.0
    running: bool = False
    #: When to look at it again.
    due: float = math.inf
    #: Who was stopped and not continued since.
    stopped: set[int] = field(default_factory=set)

    def settle(self, now: float, used: float) -> None:
        credit = 0.0 if math.isinf(self.cores) else self.cores * (now - self.at)
        # Capped after credit minus debit: capping the credit first would forfeit what was earned meanwhile.
        balance = self.balance + credit - (used - self.used)
        cap = SLOT + (0.0 if math.isinf(self.cores) else self.cores * SAVING_SECONDS)
        self.balance = min(max(balance, -DEEPEST_DEBT), cap)
        self.at, self.used = now, used

    def look_again_at(self) -> float:
        """When there will be something to do: a running job is watched, one that stands still earns its slot."""
        if self.running:
            return self.at + TICK
        if self.cores <= 0.0:
            return math.inf
        # Less than half a tick early or late makes no difference, and saves waking up for each job.
        return self.at + max((SLOT - self.balance) / self.cores, TICK / 2)


class StopContinue(Throttle):
    """SIGSTOP and SIGCONT to whole trees, driven by measured CPU time."""

    def __init__(self, table: ProcessTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table = table
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._scanned_at = -math.inf
        self._scan_every = SCAN_SECONDS

    @override
    def add(self, job: str, pid: int) -> None:
        if not self._table.members(job):
            self._table.plant(job, pid)
        bucket = _Bucket(at=self._clock(), used=self._table.cpu_seconds(job))
        self._buckets[job] = bucket
        self._stop(job, bucket)

    @override
    def set(self, job: str, cores: float) -> None:
        bucket = self._buckets[job]
        bucket.settle(self._clock(), self._table.cpu_seconds(job))
        first = bucket.cores <= 0.0 < cores and bucket.balance >= 0.0
        bucket.cores = cores
        if first:
            bucket.balance = max(bucket.balance, SLOT)  # a new job begins at once
        self._apply(job, bucket)

    @override
    def cpu_seconds(self, job: str) -> float:
        return self._table.cpu_seconds(job)

    @override
    def remove(self, job: str) -> None:
        bucket = self._buckets.pop(job, None)
        if bucket is not None:
            self._continue(job, bucket)
        self._table.forget(job)

    @override
    def tick(self) -> float:
        if not self._buckets:
            return math.inf
        now = self._clock()
        scanned = now >= self._scanned_at + self._scan_every
        if scanned:
            self._scan(now)
        for job, bucket in self._buckets.items():
            if scanned or bucket.due <= now:
                used = self._table.cpu_seconds(job)
                if not bucket.running and used > bucket.used:
                    bucket.stopped.clear()  # someone continued it behind our back
                bucket.settle(now, used)
                self._apply(job, bucket)
        next_due = min(bucket.due for bucket in self._buckets.values())
        return min(next_due, self._scanned_at + self._scan_every) - now

    def _scan(self, now: float) -> None:
        before = time.thread_time()
        self._table.scan()
        self._scanned_at = now
        self._scan_every = max(SCAN_SECONDS, (time.thread_time() - before) / SCAN_SHARE)

    def _apply(self, job: str, bucket: _Bucket) -> None:
        if math.isinf(bucket.cores):
            run = True
        elif bucket.cores <= 0.0:
            run = False
        else:
            run = bucket.balance > (0.0 if bucket.running else SLOT * 0.999)
        if run:
            self._continue(job, bucket)
        else:
            self._stop(job, bucket)
        bucket.due = bucket.look_again_at()

    def _stop(self, job: str, bucket: _Bucket) -> None:
        bucket.running = False
        members = self._table.members(job)
        if members != bucket.stopped:
            send(members - bucket.stopped, signal.SIGSTOP)
            bucket.stopped = set(members)

    def _continue(self, job: str, bucket: _Bucket) -> None:
        # All of them, not only those known to be stopped: that is forgotten where CPU time that was used before
        # the stop is read after it, and a process left out here would stand still for ever.
        if bucket.stopped or not bucket.running:
            send(self._table.members(job), signal.SIGCONT)
            bucket.stopped = set()
        bucket.running = True
