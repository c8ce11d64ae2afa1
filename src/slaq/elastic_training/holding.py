"""How many workers a training holds, and what it tells slaq: what it can use, and its losses."""

from math import floor
from typing import Any

from slaq import reporting
from slaq.jobs.share import share


class Holding:
    """The job that a training belongs to, if it belongs to one."""

    def __init__(self, workers: int, most: int, context: Any, *, fixed: bool = False) -> None:
        #: Outside slaq.
        self._alone = workers
        self._most = most
        self._context = context
        #: Whether the share, which is of cores, says nothing of what the training computes on: cards.
        self._ignores_share = fixed
        #: As asked by `resize`.
        self._asked: int | None = None
        self._job = reporting if context is None else context
        self.tell_use()

    def workers(self) -> int:
        """Return how many workers may compute the coming update."""
        found: float = self._alone
        if self._asked is not None:
            found = self._asked
        elif self._ignores_share:
            found = self._alone
        elif self._context is not None:
            found = self._context.workers
        elif (held := share()) is not None:
            found = held.workers
        # A share that is a hair below a whole number is meant as that.
        return max(1, min(floor(found + 1e-6), self._most))

    def resize(self, workers: int | None) -> None:
        """Compute with so many, whatever the share is; None follows it again."""
        self._asked = workers

    def leaves(self) -> bool:
        """Return whether the job was told to leave its machine, or to stop."""
        if self._context is not None and self._context.stopping:
            return True
        held = share()
        return held is not None and held.leave_by is not None

    def tell_use(self, *, worth: float | None = None, change_seconds: float | None = None) -> None:
        """Tell slaq that the training can use whole workers, what they are worth, and what a change costs it."""
        self._job.can_use(sizes="whole", max_cores=self._most, worth=worth, change_seconds=change_seconds)

    def announce(self, rate: float) -> None:
        """Tell slaq that losses follow another curve from here on."""
        self._job.announce(learning_rate=rate)

    def report(self, loss: float, *, step: int, total: int, **metrics: float) -> None:
        """Tell slaq a loss."""
        if self._context is not None or reporting.heard():
            self._job.report(loss, step=step, total=total, **metrics)
