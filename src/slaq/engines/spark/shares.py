"""From grants and token buckets to the shares of Spark's fair-scheduler pools."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from slaq.engines.buckets import Bucket

#: Pool shares are whole numbers compared by their quotients: this many to a slot make fractions of slots.
SCALE = 100
#: Seconds by which a job may run ahead of its grant before it is held at the end of an iteration.
AHEAD = 0.05
#: Seconds in which a pool is to make good what it is owed.
MAKE_GOOD = 0.5


class Shares(StrEnum):
    """How a job's share of the slots is kept."""

    #: Token buckets steer the pools: who fell behind its grant goes first until it has caught up, and who runs
    #: ahead waits at the end of an iteration while others catch up.
    TOKENS = "tokens"
    #: Pool shares follow the grants and no more: what a job leaves between two iterations is not made good.
    POOLS = "pools"


def pool_shares(buckets: Mapping[str, Bucket], how: Shares, slots: float) -> dict[str, int]:
    """Return the minimum share of each job's pool, in hundredths of a slot.

    The fair scheduler serves pools below their minimum share first, by  running / share : with shares this
    large all are below, so slots divide as the shares do. One that was granted nothing gets what is left over.
    """
    shares = {}
    for job_id, bucket in buckets.items():
        wanted = bucket.cores
        if how is Shares.TOKENS and wanted > 0:
            wanted = min(max(wanted + bucket.tokens / MAKE_GOOD, 0.0), slots)
        shares[job_id] = max(round(SCALE * wanted), 1) if bucket.cores > 0 else 0
    return shares


def to_hold(buckets: Mapping[str, Bucket], held: Collection[str], busy: Collection[str]) -> set[str]:
    """Return the jobs to wait at the end of their iteration: those ahead, while one that is busy is behind.

    Lending alone cannot make good what a job loses whenever others fill the slots it leaves for a moment
    between two stages. One that is held waits until it is ahead no longer.
    """
    leads = {job_id: bucket.tokens / bucket.cores for job_id, bucket in buckets.items() if bucket.cores > 0}
    if not any(leads.get(job_id, 0.0) > 0 for job_id in busy if job_id not in held):
        return set()
    return {job_id for job_id, lead in leads.items() if lead < (0.0 if job_id in held else -AHEAD)}


def settle(buckets: Mapping[str, Bucket]) -> None:
    """Take out of all leads what is common to them: slots that nobody could use are owed to nobody."""
    granted = [bucket for bucket in buckets.values() if bucket.cores > 0]
    cores = sum(bucket.cores for bucket in granted)
    if cores > 0:
        common = sum(bucket.tokens for bucket in granted) / cores
        for bucket in granted:
            bucket.tokens -= common * bucket.cores
