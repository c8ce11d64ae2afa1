"""Enforces shares of slots: settles the token buckets, sets pool shares, holds back jobs that ran ahead."""

import contextlib
from collections.abc import Sequence

from slaq.engines.spark.application import Application
from slaq.engines.spark.pools import SparkPool
from slaq.engines.spark.runs import SparkRun
from slaq.engines.spark.shares import PoolShare, Shares, settle, share_of, to_hold

#: Seconds for which a job without a task counts as busy: it is between two stages.
AWAY = 0.25
#: How fast the mean of the idle part of the slots follows each reading.
IDLE_RATE = 0.05
#: Changes of a share below this part are not set.
SAME = 0.05


class PoolSteering:
    """Steers the pools of all active jobs and of other work."""

    def __init__(self, application: Application, shares: Shares, epoch_seconds: float) -> None:
        self._application = application
        self._shares = shares
        self._epoch_seconds = epoch_seconds
        #: The part of the slots that was idle lately.
        self._idle = 0.0

    def look(self, runs: Sequence[SparkRun], others: Sequence[SparkPool], slots: float, now: float) -> None:
        """Read what runs now on all `slots` slots, and enforce the shares."""
        pools = [*(run.pool for run in runs), *others]
        for pool in pools:
            pool.look(now, self._epoch_seconds)
        if self._shares is Shares.TOKENS:
            settle(pool.bucket for pool in pools)
            idle = max(1 - sum(pool.running for pool in pools) / slots, 0.0)
            self._idle += IDLE_RATE * (idle - self._idle)
            self._hold(runs, pools, now)
            self.steer(pools)

    def steer(self, pools: Sequence[SparkPool]) -> None:
        """Set the shares of the pools."""
        for pool in pools:
            share = share_of(pool.bucket, self._shares)
            if not _alike(share, pool.share):
                pool.share = share
                # The watching thread notices an application that has ended.
                with contextlib.suppress(Exception):
                    self._application.set_share(pool.handle, share)

    def _hold(self, runs: Sequence[SparkRun], pools: Sequence[SparkPool], now: float) -> None:
        """Make jobs that ran ahead of others wait at the end of their iteration."""
        buckets = {pool.name: pool.bucket for pool in pools}
        busy = [pool.name for pool in pools if now - pool.ran_at < AWAY]
        chosen = to_hold(buckets, [run.pool.name for run in runs if run.held], busy, self._idle)
        for run in runs:
            if run.held != (run.pool.name in chosen):
                with run.changed:
                    run.held = not run.held
                    run.changed.notify_all()


def _alike(one: PoolShare, other: PoolShare) -> bool:
    """Return whether two shares are too near to be worth a change."""
    return all(abs(a - b) <= SAME * b and (a == 0) == (b == 0) for a, b in zip(one, other, strict=True))
