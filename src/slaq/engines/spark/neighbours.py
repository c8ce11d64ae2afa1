"""Work in the same application that is not ours: it keeps its fair share of the slots."""

import contextlib
import time
from dataclasses import dataclass

from slaq.engines.spark.application import Application
from slaq.engines.spark.lanes import Lane
from slaq.engines.spark.shares import PoolShare

#: Epochs for which a pool counts as working after it was last seen to.
LINGER = 2.0


@dataclass(slots=True)
class _Neighbour:
    lane: Lane
    #: Its share before ours came.
    usual: PoolShare
    seen_at: float


class Neighbours:
    """The pools of other work: each is due the fair share of one of our jobs while it has something to run."""

    def __init__(self, application: Application, epoch_seconds: float) -> None:
        self._application = application
        self._epoch_seconds = epoch_seconds
        self._there: dict[str, _Neighbour] = {}

    @property
    def lanes(self) -> list[Lane]:
        """The pools that work now."""
        return [neighbour.lane for neighbour in list(self._there.values())]

    def due(self, slots: int, jobs: int) -> float:
        """Return the slots that belong to other work now, and grant them to its pools."""
        now = time.monotonic()
        for pool in self._application.foreign_pools():
            name = pool.name()
            if name not in self._there:
                usual = self._application.share_of(pool)
                self._there[name] = _Neighbour(Lane(name=name, pool=pool, share=usual), usual, now)
            self._there[name].seen_at = now
        for name, neighbour in list(self._there.items()):
            if now - neighbour.seen_at > LINGER * self._epoch_seconds:
                self._put_back(name)
        share = slots / (jobs + len(self._there)) if self._there else 0.0
        for lane in self.lanes:
            lane.bucket.grant(share, now, self._epoch_seconds)
        return share * len(self._there)

    def leave(self) -> None:
        """Put every pool back to what it was."""
        for name in list(self._there):
            with contextlib.suppress(Exception):
                self._put_back(name)

    def _put_back(self, name: str) -> None:
        neighbour = self._there.pop(name)
        self._application.set_share(neighbour.lane.pool, neighbour.usual)
