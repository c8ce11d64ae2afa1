"""Work in the same application that is not ours: it keeps its fair share of the slots."""

import contextlib
import time
from typing import Any

from slaq.engines.spark.application import Application
from slaq.engines.spark.shares import SCALE

#: Epochs for which a pool counts as working after it was last seen to.
LINGER = 2.0


class Neighbours:
    """The pools of other work: each is due the fair share of one of our jobs while it has something to run."""

    def __init__(self, application: Application, epoch_seconds: float) -> None:
        self._application = application
        self._linger = LINGER * epoch_seconds
        #: Each pool by name, with its minimum share before ours came, and when it last worked.
        self._seen: dict[str, tuple[Any, int, float]] = {}

    def due(self, slots: int, jobs: int) -> float:
        """Return the slots that belong to other work now, and let its pools have them."""
        now = time.monotonic()
        for pool in self._application.foreign_pools():
            name = pool.name()
            usual = self._seen[name][1] if name in self._seen else int(pool.minShare())
            self._seen[name] = (pool, usual, now)
        for name in [name for name, (_, _, at) in self._seen.items() if now - at > self._linger]:
            self._put_back(name)
        if not self._seen:
            return 0.0
        share = slots / (jobs + len(self._seen))
        for pool, usual, _ in self._seen.values():
            self._application.set_min_share(pool, max(round(SCALE * share), usual))
        return share * len(self._seen)

    def leave(self) -> None:
        """Put every pool back to what it was."""
        for name in list(self._seen):
            with contextlib.suppress(Exception):
                self._put_back(name)

    def _put_back(self, name: str) -> None:
        pool, usual, _ = self._seen.pop(name)
        self._application.set_min_share(pool, usual)
