"""Finds the jobs that a listing shows, a page at a time."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from slaq.core.job import JobState
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filters of a listing; None for no filter."""

    states: Collection[JobState] | None = None
    owner: str | None = None
    tag: str | None = None
    #: Only jobs submitted after the one of this number.
    after: int | None = None

    def fits(self, job: LiveJob) -> bool:
        """Return whether the listing shows a job."""
        return (
            (self.after is None or job.row.number > self.after)
            and (self.owner is None or job.row.owner == self.owner)
            and (self.tag is None or self.tag in job.row.tags)
            and (self.states is None or job.state in self.states)
        )


def page(live_jobs: LiveJobs, wanted: Wanted, limit: int) -> list[LiveJob]:
    """Return the first jobs that are wanted, in the order of submission.

    Live jobs come from memory and ended ones from the store: reading a row takes longer than showing it, and far
    longer during an epoch, because SQLite lets other threads run after each row.
    """
    # Copied before the store is read, so that a job which ends meanwhile is shown once and not left out.
    live = dict(live_jobs.jobs)
    found = sorted((job for job in live.values() if wanted.fits(job)), key=_number)[:limit]
    states = [state for state in (JobState if wanted.states is None else wanted.states) if state.ended]
    if states:
        before = _number(found[-1]) if found and len(found) == limit else None
        ended = _ended(live_jobs.store, replace(wanted, states=states), live, before=before, limit=limit)
        found += [live_jobs.read(row) for row in ended]
    return sorted(found, key=_number)[:limit]


def _ended(
    store: SqliteStore, wanted: Wanted, live: Collection[str], *, before: int | None, limit: int
) -> list[JobRow]:
    """Return ended jobs up to a number, without those that are still shown as live."""
    found: list[JobRow] = []
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
        found += [row for row in rows if row.id not in live]
        if len(rows) < limit or len(found) >= limit:
            return found
        after = rows[-1].number


def _number(job: LiveJob) -> int:
    return job.row.number
