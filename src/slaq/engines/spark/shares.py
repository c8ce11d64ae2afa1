"""From grants and token buckets to the shares of Spark's fair-scheduler pools."""

import math
from collections.abc import Collection, Mapping
from enum import StrEnum

from slaq.engines.buckets import Bucket

#: Pool shares are whole numbers compared by their quotients: this many to a slot make fractions of slots.
SCALE = 100
#: The part of the slots that may idle for the sake of exact shares.
IDLE_ALLOWED = 0.05
#: Seconds by which a job may run ahead of its grant before it is held at the end of an iteration.
AHEAD = 0.05
#: Seconds of lead that multiply a pool's share by e; and the most that any lead does.
MAKE_GOOD, MOST = 0.5, 100.0


class Shares(StrEnum):
    """How a job's share of the slots is kept."""

    #: Token buckets steer the pools: who fell behind its grant goes first until it has caught up, and who runs
    #: ahead waits at the end of an iteration while others catch up.
    TOKENS = "tokens"
    #: Pool shares follow the grants and no more: what a job leaves between two iterations is not made good.
    POOLS = "pools"


def pool_shares(buckets: Mapping[str, Bucket], how: Shares) -> dict[str, int]:
    """Return the minimum share of each job's pool, in hundredths of a slot.

    The fair scheduler serves pools below their minimum share first, by  running / share : with shares this
    large all are below, so slots divide as the shares do. One that was granted nothing gets what is left over.
    """
    shares = {}
    for job_id, bucket in buckets.items():
        wanted = bucket.cores
        if how is Shares.TOKENS and wanted > 0:
            # By factors, so that of two who ran ahead the one that did so less still goes first.
            behind = min(max(bucket.tokens / wanted / MAKE_GOOD, -math.log(MOST)), math.log(MOST))
            wanted *= math.exp(behind)
        shares[job_id] = max(round(SCALE * wanted), 1) if bucket.cores > 0 else 0
    return shares


def to_hold(
    buckets: Mapping[str, Bucket], held: Collection[str], busy: Collection[str], idle: float = 0.0
) -> set[str]:
    """Return the jobs to wait at the end of their iteration: those ahead, while one that is busy is behind.

    Lending alone cannot make good what a job loses whenever others fill the slots it leaves for a moment
    between two stages. One that is held waits until it is ahead no longer, or too large a part of the slots
    is idle: then the one that is least ahead goes on, and all do where that is not enough.
    """
    leads = {job_id: bucket.tokens / bucket.cores for job_id, bucket in buckets.items() if bucket.cores > 0}
    if not any(leads.get(job_id, 0.0) > 0 for job_id in busy if job_id not in held):
        return set()
    ahead = {job_id for job_id, lead in leads.items() if lead < (0.0 if job_id in held else -AHEAD)}
    if idle > 2 * IDLE_ALLOWED:
        return set()
    if idle > IDLE_ALLOWED and ahead:
        ahead.remove(max(ahead, key=leads.__getitem__))
    return ahead


def settle(buckets: Mapping[str, Bucket]) -> None:
    """Take out of all leads what is common to them: slots that nobody could use are owed to nobody."""
    granted = [bucket for bucket in buckets.values() if bucket.cores > 0]
    cores = sum(bucket.cores for bucket in granted)
    if cores > 0:
        common = sum(bucket.tokens for bucket in granted) / cores
        for bucket in granted:
            bucket.tokens -= common * bucket.cores
