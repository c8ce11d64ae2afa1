"""Token buckets in CPU seconds: what a job has earned by its grant and not used yet.

A job that was granted r cores earns r tokens a second, and pays for the CPU it used. Its *lead* is tokens / r:
for how many seconds its grant has gone unused, or, below zero, how far it has run ahead. The job with the
longest lead goes next. Two rules keep leads near zero without touching their differences, which shares rest
on: when nobody who wants a core has a lead, all are forgiven that much, so that idle capacity costs nothing;
and when everybody has one, as on a machine that delivers less than was promised, all lose that much.
"""

import math
from collections.abc import Iterable

#: The longest lead, either way, in epochs: beyond it what was missed or overdrawn is forgotten.
LONGEST_LEAD = 2.0
#: A job may be in debt for at least this many of its tasks, however small its grant.
TASKS_OF_DEBT = 2.0
#: How fast the expected cost of a task follows the last one.
RATE = 0.2


class TokenBucket:
    """Tokens earned at a rate."""

    __slots__ = ("_settled_at", "cores", "tokens")

    def __init__(self, now: float = 0.0) -> None:
        #: Cores granted: earns nothing, and may run nothing, at 0; needs no tokens at infinity.
        self.cores = 0.0
        self.tokens = 0.0
        self._settled_at = now

    def settle(self, now: float, *, used: float, least: float, most: float) -> None:
        """Credit what was earned since the last time and debit what was used.

        The bounds apply after both: capping the credit first would forfeit what was earned meanwhile.
        """
        earned = 0.0 if math.isinf(self.cores) else self.cores * (now - self._settled_at)
        self.tokens = min(max(self.tokens + earned - used, least), most)
        self._settled_at = now


class Bucket(TokenBucket):
    """The tokens of a job that competes for free cores, task by task."""

    __slots__ = ("cost", "running")

    def __init__(self) -> None:
        super().__init__()
        #: CPU seconds that one of its tasks, or turns of its driver, is expected to take.
        self.cost = 0.0
        #: How many are under way, not paid for yet.
        self.running = 0

    def grant(self, cores: float, now: float, epoch: float) -> None:
        """Change what the job earns from now on."""
        self.fill(now, epoch)
        self.cores = cores

    def fill(self, now: float, epoch: float) -> None:
        """Credit what was earned since the last time."""
        longest = LONGEST_LEAD * epoch * self.cores
        self.settle(now, used=0.0, least=-longest - TASKS_OF_DEBT * self.cost, most=longest)

    def pay(self, cpu_seconds: float) -> None:
        """Debit what was really used."""
        self.tokens -= cpu_seconds

    def learn(self, cpu_seconds: float) -> None:
        """Note what one task took."""
        self.cost += (cpu_seconds - self.cost) * (RATE if self.cost else 1.0)

    def lead(self) -> float:
        """Return the lead, with what is under way paid for in advance."""
        return (self.tokens - self.running * self.cost) / self.cores

    def step(self) -> float:
        """Return by how much one task changes the lead."""
        return self.cost / self.cores


def shift(buckets: Iterable[Bucket], seconds: float) -> None:
    """Add the same number of seconds to every lead."""
    for bucket in buckets:
        bucket.tokens += seconds * bucket.cores
