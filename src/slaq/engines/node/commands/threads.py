"""Decides how many threads a command gets when it starts, and how they wait for each other."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from slaq.engines.processes import thread_limits

#: Lets threads sleep at barriers at once. By default they spin, which takes the core from whom they wait for.
WAIT_PASSIVELY: Mapping[str, str] = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
    "GOMP_SPINCOUNT": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What a command finds on its node when it starts."""

    #: Cores that commands share in turns, and the commands there are, this one included.
    cores: int
    commands: int

    @property
    def reason(self) -> str:
        """What a command finds, in a few words."""
        if self.commands > 1:
            return f"{self.commands} jobs share {_cores(self.cores)}"
        return f"it has {_cores(self.cores)} to itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """How many threads a command gets, and why."""

    count: int
    #: One sentence without a subject, such as "10 jobs share 2 cores".
    reason: str
    #: Whether they are told to sleep at barriers at once, rather than as their libraries have it.
    passive: bool

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to add to an environment; whatever its user has set, stays."""
        wanted = thread_limits(self.count) | dict(WAIT_PASSIVELY if self.passive else {})
        return {name: value for name, value in wanted.items() if name not in given}


def choose_threads(
    crowd: Crowd, *, asked: int | None = None, useful: int | None = None, limit: float | None = None
) -> Threads:
    """Return as many threads as the cores that the command can expect to hold.

    `asked` is its owner's choice; `useful` the number beyond which more threads have not made earlier runs faster;
    `limit` the cores that its owner allows at most.
    """
    passive = crowd.commands > 1
    if asked is not None:
        return Threads(count=asked, reason="its owner chose so", passive=passive)
    count, reason = max(crowd.cores // max(crowd.commands, 1), 1), crowd.reason
    if limit is not None and math.ceil(limit) < count:
        count, reason = math.ceil(limit), f"it may use {limit:g} cores at most"
    if useful is not None and useful < count:
        count, reason = useful, "more have not made earlier runs of it faster"
    return Threads(count=count, reason=reason, passive=passive)


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"
