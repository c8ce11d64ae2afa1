"""Other work in the same application: it keeps its fair share of the slots."""

import contextlib
import time
from dataclasses import dataclass

from slaq.engines.spark.application import Application
from slaq.engines.spark.pools import SparkPool
from slaq.engines.spark.shares import PoolShare

#: Epochs for which a pool counts as busy after it last was.
LINGER = 2.0


@dataclass(slots=True)
class _ForeignPool:
    pool: SparkPool
    #: Its share before we changed it.
    usual: PoolShare
    seen_at: float


class ForeignPools:
    """The pools of other work: each is due as much as one of our jobs while it has something to run."""

    def __init__(self, application: Application, epoch_seconds: float) -> None:
        self._application = application
        self._epoch_seconds = epoch_seconds
        self._there: dict[str, _ForeignPool] = {}

    @property
    def pools(self) -> list[SparkPool]:
        """The pools that are busy now."""
        return [foreign.pool for foreign in list(self._there.values())]

    def due(self, slots: int, jobs: int) -> float:
        """Return the slots that belong to other work now, and grant them to its pools."""
        now = time.monotonic()
        for pool in self._application.foreign_pools():
            name = pool.name()
            if name not in self._there:
                usual = self._application.share_of(pool)
                self._there[name] = _ForeignPool(SparkPool(name=name, handle=pool, share=usual), usual, now)
            self._there[name].seen_at = now
        for name, foreign in list(self._there.items()):
            if now - foreign.seen_at > LINGER * self._epoch_seconds:
                self._put_back(name)
        share = slots / (jobs + len(self._there)) if self._there else 0.0
        for pool in self.pools:
            pool.bucket.grant(share, now, self._epoch_seconds)
        return share * len(self._there)

    def leave(self) -> None:
        """Restore the share of every pool."""
        for name in list(self._there):
            with contextlib.suppress(Exception):
                self._put_back(name)

    def _put_back(self, name: str) -> None:
        foreign = self._there.pop(name)
        self._application.set_share(foreign.pool.handle, foreign.usual)
