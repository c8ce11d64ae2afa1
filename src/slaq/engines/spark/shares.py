"""From grants and token buckets to the shares of Spark's fair-scheduler pools."""

import math
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from slaq.engines.buckets import Bucket, shift

#: Pool shares are whole numbers compared by their quotients: this many to a slot make fractions of slots.
SCALE = 100
#: The part of the slots that may idle for the sake of exact shares.
IDLE_ALLOWED = 0.03
#: Seconds by which a job may run ahead of its grant before it goes last, and is held at the end of an iteration.
AHEAD = 0.02
#: Seconds of lead that multiply a pool's share by e; and the most that any lead does.
MAKE_GOOD, MOST = 0.25, 100.0


class Shares(StrEnum):
    """How a job's share of the slots is kept."""

    #: Token buckets steer the pools: who fell behind its grant goes first until it has caught up, and who ran
    #: ahead gets what others leave, and waits at the end of an iteration while they catch up.
    TOKENS = "tokens"
    #: Pool shares follow the grants and no more: what a job leaves between two iterations is not made good.
    POOLS = "pools"


class PoolShare(NamedTuple):
    """The share of a pool in Spark's fair scheduler."""

    #: Pools that run fewer tasks than this go first, by  running / least ; the others after, by  running / weight .
    least: int
    weight: int


#: The share of a pool that gets what is left over.
NOTHING = PoolShare(0, 1)


def share_of(bucket: Bucket, how: Shares) -> PoolShare:
    """Return the share of a pool, in hundredths of a slot, so that slots divide as the shares do.

    With shares this large a pool always runs fewer tasks than its least. One that has run ahead has none, so that
    it comes after all that have not: with a least share it would be served before them whenever it runs no task.
    """
    if bucket.cores == 0:
        return NOTHING
    lead = bucket.tokens / bucket.cores if how is Shares.TOKENS else 0.0
    # By factors, so that several pools that are behind, or ahead, all get their part.
    factor = math.exp(min(max(lead / MAKE_GOOD, -math.log(MOST)), math.log(MOST)))
    share = max(round(SCALE * bucket.cores * factor), 1)
    return PoolShare(0, share) if lead < -AHEAD else PoolShare(share, 1)


def to_hold(
    buckets: Mapping[str, Bucket], held: Collection[str], busy: Collection[str], idle: float = 0.0
) -> set[str]:
    """Return the jobs to hold back at the end of their iteration: those ahead, while a busy job is behind.

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


def settle(buckets: Iterable[Bucket]) -> None:
    """Remove the mean of all leads: slots that no job could use are owed to no job."""
    granted = [bucket for bucket in buckets if bucket.cores > 0]
    cores = sum(bucket.cores for bucket in granted)
    if cores > 0:
        shift(granted, -sum(bucket.tokens for bucket in granted) / cores)
