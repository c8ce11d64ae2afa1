"""Where and how a node runs jobs: plain values, so that a node can be made in another process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.jobs.share import share


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The place of a node."""

    #: Worker processes, and the cores they are meant for.
    cores: int
    epoch_seconds: float
    #: Where the jobs' files are.
    directory: Path
    #: Modules loaded before anything is forked, so that all processes share their memory.
    preload: Sequence[str] = ()
    #: Whether the directory is to vanish with the process that made it, however that ends.
    temporary: bool = False
    #: Seconds a program has to end by itself once it was told to.
    grace_seconds: float = 5.0
    #: How CPU shares of commands are enforced: one of `shares.WAYS`, or None for the best that works here.
    throttle: str | None = None
    #: The secret under which the processes of commands are marked, so that those of a node that was killed can be
    #: found; None for a fresh one.
    token: str | None = None

    def capacity(self) -> float:
        """Return the cores that can be handed out now: within a job of slaq, no more than that job holds."""
        held = share()
        return float(self.cores) if held is None else min(float(self.cores), held.cores)
