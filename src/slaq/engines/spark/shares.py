"""From grants and token buckets to the shares of Spark's fair-scheduler pools."""

from collections.abc import Mapping
from enum import StrEnum

from slaq.engines.buckets import Bucket

#: Pool shares are whole numbers compared by their quotients: this many to a slot make fractions of slots.
SCALE = 100
#: Seconds in which a pool is to make good what it is owed.
MAKE_GOOD = 0.5


class Shares(StrEnum):
    """How a job's share of the slots is kept."""

    #: Token buckets steer the pools: who fell behind its grant goes first until it has caught up.
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


def settle(buckets: Mapping[str, Bucket]) -> None:
    """Take out of all leads what is common to them: slots that nobody could use are owed to nobody."""
    granted = [bucket for bucket in buckets.values() if bucket.cores > 0]
    cores = sum(bucket.cores for bucket in granted)
    if cores > 0:
        common = sum(bucket.tokens for bucket in granted) / cores
        for bucket in granted:
            bucket.tokens -= common * bucket.cores
