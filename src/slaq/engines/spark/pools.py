"""One pool of Spark's fair scheduler: its token bucket, its usage, and its present share."""

from dataclasses import dataclass, field
from typing import Any

from slaq.engines.buckets import Bucket
from slaq.engines.spark.shares import NOTHING, PoolShare

#: The most that an unfinished iteration counts as its cost, in epochs of the grant.
LONGEST = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class SparkPool:
    """A pool and its token bucket."""

    name: str
    #: Spark's own object.
    handle: Any
    bucket: Bucket = field(default_factory=Bucket)
    #: The share that was last set.
    share: PoolShare = NOTHING
    #: Slot seconds used up to the last reading, its time, the tasks that ran then, and when any task last ran.
    slot_seconds: float = 0.0
    looked_at: float = 0.0
    running: int = 0
    ran_at: float = 0.0
    #: Slot seconds at the end of its last iteration.
    slots_told: float = 0.0

    def look(self, now: float, epoch_seconds: float) -> None:
        """Read how many tasks run now, and pay for the slots they held since the last reading."""
        running = self.handle.runningTasks()
        # The mean of both readings, because tasks come and go between them.
        used = (self.running + running) / 2 * (now - self.looked_at) if self.looked_at else 0.0
        self.slot_seconds += used
        self.running, self.looked_at = running, now
        if running:
            self.ran_at = now
        # A job is held back between iterations only, so that the debt of a whole iteration must not be forgotten.
        longest = LONGEST * epoch_seconds * self.bucket.cores
        self.bucket.cost = max(self.bucket.cost, min(self.slot_seconds - self.slots_told, longest))
        self.bucket.fill(now, epoch_seconds)
        self.bucket.pay(used)

    def end_iteration(self, now: float) -> None:
        """Learn the cost of an iteration."""
        slots = self.slots_by(now)
        self.bucket.learn(slots - self.slots_told)
        self.slots_told = slots

    def slots_by(self, now: float) -> float:
        """Return the slot seconds used up to now."""
        return self.slot_seconds + self.running * max(now - self.looked_at, 0.0)
