"""Which jobs a listing shows, a page at a time."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from slaq.core.job import JobState
from slaq.service.standing import Board, Standing
from slaq.stores.sqlite import SqliteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a listing shows; None where anything will do."""

    states: Collection[JobState] | None = None
    owner: str | None = None
    tag: str | None = None
    #: Only jobs submitted after the one of this number.
    after: int | None = None

    def fits(self, job: Standing) -> bool:
        """Return whether the listing shows a job."""
        return (
            (self.after is None or job.row.number > self.after)
            and (self.owner is None or job.row.owner == self.owner)
            and (self.tag is None or self.tag in job.row.tags)
            and (self.states is None or job.state in self.states)
        )


def page(board: Board, store: SqliteStore, wanted: Wanted, limit: int) -> list[Standing]:
    """Return the first jobs that are wanted, in the order of submission.

    Jobs under way are taken from memory, all others have ended and come from the store: reading a row takes
    longer than showing it, and far longer beside an epoch, to which every row that SQLite gives hands over.
    """
    # Before the store is read: a job that leaves the board meanwhile is shown once, and not left out.
    live = dict(board.jobs)
    found = sorted((job for job in live.values() if wanted.fits(job)), key=_number)[:limit]
    states = [state for state in (JobState if wanted.states is None else wanted.states) if state.ended]
    if states:
        before = _number(found[-1]) if found and len(found) == limit else None
        found += _ended(store, replace(wanted, states=states), live, before=before, limit=limit)
    return sorted(found, key=_number)[:limit]


def _ended(
    store: SqliteStore, wanted: Wanted, live: Collection[str], *, before: int | None, limit: int
) -> list[Standing]:
    """Return ended jobs up to a number; one whose end was stored while it was on the board is not one yet."""
    found: list[Standing] = []
    after = wanted.after
    while True:
        rows = store.rows(
            wanted.states,
            owner=wanted.owner,
            tag=wanted.tag,
            after_number=after,
            before_number=before,
            limit=limit,
        )
        found += [Standing.of(row) for row in rows if row.id not in live]
        if len(rows) < limit or len(found) >= limit:
            return found
        after = rows[-1].number


def _number(job: Standing) -> int:
    return job.row.number
