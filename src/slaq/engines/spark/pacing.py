"""Keeps shares of slots: looks at the pools, settles the token buckets, sets shares, holds who ran ahead."""

import contextlib
from collections.abc import Sequence

from slaq.engines.spark.application import Application
from slaq.engines.spark.runs import Run
from slaq.engines.spark.shares import Shares, pool_shares, settle, to_hold

#: Seconds for which a job without a task counts as busy: it is between two stages.
AWAY = 0.25
#: How fast the part of the slots that idles is followed, at each look.
IDLE_RATE = 0.05
#: A share that changes by less than this part is left as it is.
SAME = 0.05


class Pace:
    """Who may run how fast, of all active jobs."""

    def __init__(self, application: Application, shares: Shares, epoch_seconds: float) -> None:
        self._application = application
        self._shares = shares
        self._epoch_seconds = epoch_seconds
        #: The part of the slots that idled of late.
        self._idle = 0.0

    def look(self, runs: Sequence[Run], slots: float, now: float) -> None:
        """Take in what runs now, and keep the shares of `slots` slots."""
        for run in runs:
            used = run.look(run.pool.runningTasks(), now)
            run.bucket.fill(now, self._epoch_seconds)
            run.bucket.pay(used)
        if self._shares is Shares.TOKENS:
            self._balance(runs, slots, now)
            self.steer(runs)

    def steer(self, runs: Sequence[Run]) -> None:
        """Set the shares of the pools."""
        shares = pool_shares({run.job_id: run.bucket for run in runs}, self._shares)
        for run in runs:
            share = shares[run.job_id]
            if abs(share - run.share) > SAME * run.share or (share == 0) != (run.share == 0):
                run.share = share
                # An application that has just ended is noticed elsewhere.
                with contextlib.suppress(Exception):
                    self._application.set_min_share(run.pool, share)

    def _balance(self, runs: Sequence[Run], slots: float, now: float) -> None:
        """Settle the buckets, and hold those jobs that ran ahead of others."""
        buckets = {run.job_id: run.bucket for run in runs}
        settle(buckets)
        busy = [run.job_id for run in runs if now - run.ran_at < AWAY]
        free = max(1 - sum(run.running for run in runs) / slots, 0.0)
        self._idle += IDLE_RATE * (free - self._idle)
        chosen = to_hold(buckets, [run.job_id for run in runs if run.held], busy, self._idle)
        for run in runs:
            if run.held != (run.job_id in chosen):
                with run.changed:
                    run.held = not run.held
                    run.changed.notify_all()
