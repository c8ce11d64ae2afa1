"""One pool of Spark's fair scheduler: what is due to it, what it has used, and the share it has now."""

from dataclasses import dataclass, field
from typing import Any

from slaq.engines.buckets import Bucket
from slaq.engines.spark.shares import NOTHING, PoolShare

#: Epochs of its grant that an iteration which has not ended is taken to cost at most.
LONGEST = 5.0


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """A pool, and the token bucket that its share is kept by."""

    name: str
    pool: Any
    bucket: Bucket = field(default_factory=Bucket)
    #: What the pool was last set to.
    share: PoolShare = NOTHING
    #: Slot seconds used up to the last look, when that was, how many tasks ran then, and when any last did.
    slot_seconds: float = 0.0
    looked_at: float = 0.0
    running: int = 0
    ran_at: float = 0.0
    #: Slot seconds at the end of its last iteration.
    slots_told: float = 0.0

    def look(self, now: float, epoch_seconds: float) -> None:
        """Take in how many tasks run now, and pay for the slots they held since the last look."""
        running = self.pool.runningTasks()
        # The mean of both looks, as tasks come and go between them.
        used = (self.running + running) / 2 * (now - self.looked_at) if self.looked_at else 0.0
        self.slot_seconds += used
        self.running, self.looked_at = running, now
        if running:
            self.ran_at = now
        # It is held between iterations only, so that what a whole one overdraws must not be forgotten; other work,
        # and a job that tells no loss, has none.
        longest = LONGEST * epoch_seconds * self.bucket.cores
        self.bucket.cost = max(self.bucket.cost, min(self.slot_seconds - self.slots_told, longest))
        self.bucket.fill(now, epoch_seconds)
        self.bucket.pay(used)

    def end_iteration(self, now: float) -> None:
        """Learn what an iteration takes."""
        slots = self.slots_by(now)
        self.bucket.learn(slots - self.slots_told)
        self.slots_told = slots

    def slots_by(self, now: float) -> float:
        """Return the slot seconds used up to now."""
        return self.slot_seconds + self.running * max(now - self.looked_at, 0.0)
