"""Keeps shares of slots: looks at the pools, settles the token buckets, sets shares, holds who ran ahead."""

import contextlib
from collections.abc import Sequence

from slaq.engines.spark.application import Application
from slaq.engines.spark.lanes import Lane
from slaq.engines.spark.runs import Run
from slaq.engines.spark.shares import PoolShare, Shares, settle, share_of, to_hold

#: Seconds for which a job without a task counts as busy: it is between two stages.
AWAY = 0.25
#: How fast the part of the slots that idles is followed, at each look.
IDLE_RATE = 0.05
#: A share that changes by less than this part is left as it is.
SAME = 0.05


class Pace:
    """Who may run how fast: all active jobs, and the pools of other work beside them."""

    def __init__(self, application: Application, shares: Shares, epoch_seconds: float) -> None:
        self._application = application
        self._shares = shares
        self._epoch_seconds = epoch_seconds
        #: The part of the slots that idled of late.
        self._idle = 0.0

    def look(self, runs: Sequence[Run], others: Sequence[Lane], slots: float, now: float) -> None:
        """Take in what runs now on all `slots` slots, and keep the shares."""
        lanes = [*(run.lane for run in runs), *others]
        for lane in lanes:
            lane.look(now, self._epoch_seconds)
        if self._shares is Shares.TOKENS:
            settle(lane.bucket for lane in lanes)
            idle = max(1 - sum(lane.running for lane in lanes) / slots, 0.0)
            self._idle += IDLE_RATE * (idle - self._idle)
            self._hold(runs, lanes, now)
            self.steer(lanes)

    def steer(self, lanes: Sequence[Lane]) -> None:
        """Set the shares of the pools."""
        for lane in lanes:
            share = share_of(lane.bucket, self._shares)
            if not _alike(share, lane.share):
                lane.share = share
                # An application that has just ended is noticed elsewhere.
                with contextlib.suppress(Exception):
                    self._application.set_share(lane.pool, share)

    def _hold(self, runs: Sequence[Run], lanes: Sequence[Lane], now: float) -> None:
        """Have those jobs wait at the end of their iteration that ran ahead of others."""
        buckets = {lane.name: lane.bucket for lane in lanes}
        busy = [lane.name for lane in lanes if now - lane.ran_at < AWAY]
        chosen = to_hold(buckets, [run.lane.name for run in runs if run.held], busy, self._idle)
        for run in runs:
            if run.held != (run.lane.name in chosen):
                with run.changed:
                    run.held = not run.held
                    run.changed.notify_all()


def _alike(one: PoolShare, other: PoolShare) -> bool:
    """Return whether two shares are so near that one need not be set for the other."""
    return all(abs(a - b) <= SAME * b and (a == 0) == (b == 0) for a, b in zip(one, other, strict=True))
