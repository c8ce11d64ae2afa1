"""Finds the jobs that a listing shows, a page at a time."""

from collections.abc import Collection
from dataclasses import dataclass

from typing_extensions import TypedDict

from slaq.core.job import JobState
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobFilters, JobRow

#: Jobs, at most, whose end is in the store while they are still shown as live.
BETWEEN = 100


class Filters(TypedDict, total=False):
    """The filters of a listing that its readers choose; `Wanted` says what each means."""

    states: Collection[JobState] | None
    owner: str | None
    tag: str | None
    group: str | None
    submitted_since: float | None
    ended_since: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filters of a listing; None for no filter."""

    states: Collection[JobState] | None = None
    owner: str | None = None
    tag: str | None = None
    group: str | None = None
    #: Only jobs submitted after the one of this number.
    after: int | None = None
    #: Only jobs submitted at this moment or later.
    submitted_since: float | None = None
    #: No jobs that ended before this moment.
    ended_since: float | None = None

    def fits(self, job: LiveJob) -> bool:
        """Return whether the listing shows a job."""
        return (
            (self.after is None or job.row.number > self.after)
            and (self.owner is None or job.row.owner == self.owner)
            and (self.tag is None or self.tag in job.row.tags)
            and (self.group is None or job.submission.options["group"] == self.group)
            and (self.states is None or job.state in self.states)
            and (self.submitted_since is None or job.row.submitted_at >= self.submitted_since)
        )

    @property
    def ended(self) -> list[JobState]:
        """The states of ended jobs that the listing shows."""
        return [state for state in (JobState if self.states is None else self.states) if state.ended]

    @property
    def filters(self) -> JobFilters:
        """The filters of stored jobs, beside their state."""
        return {
            "owner": self.owner,
            "tag": self.tag,
            "group": self.group,
            "after_number": self.after,
            "submitted_since": self.submitted_since,
            "ended_since": self.ended_since,
        }


def page(live_jobs: LiveJobs, wanted: Wanted, limit: int) -> list[LiveJob]:
    """Return the first jobs that are wanted, in the order of submission.

    Live jobs come from memory and ended ones from the store: reading a row takes longer than showing it, and far
    longer during an epoch, because SQLite lets other threads run after each row.
    """
    # Copied before the store is read, so that a job which ends meanwhile is shown once and not left out.
    live = dict(live_jobs.jobs)
    found = sorted((job for job in live.values() if wanted.fits(job)), key=_number)[:limit]
    if wanted.ended:
        before = _number(found[-1]) if found and len(found) == limit else None
        ended = _ended(live_jobs.store, wanted, live, before=before, limit=limit)
        found += [live_jobs.read(row) for row in ended]
    return sorted(found, key=_number)[:limit]


def last(live_jobs: LiveJobs, wanted: Wanted, most: int) -> tuple[list[LiveJob], int]:
    """Return the last jobs that are wanted, in the order of submission, and how many are wanted in all.

    Jobs that have not ended count as the last ones.
    """
    live = dict(live_jobs.jobs)
    found = sorted((job for job in live.values() if wanted.fits(job)), key=_number)
    total, found = len(found), found[-most:]
    if wanted.ended:
        store = live_jobs.store
        rows = store.rows(wanted.ended, last=most + BETWEEN, **wanted.filters)
        ended = [row for row in rows if row.id not in live]
        total += store.count(wanted.ended, **wanted.filters) - (len(rows) - len(ended))
        ended.sort(key=lambda row: (row.ended_at or row.submitted_at, row.number))
        room = most - len(found)
        found += [live_jobs.read(row) for row in ended[len(ended) - min(room, len(ended)) :]]
    return sorted(found, key=_number), total


def _ended(
    store: SqliteStore, wanted: Wanted, live: Collection[str], *, before: int | None, limit: int
) -> list[JobRow]:
    """Return ended jobs up to a number, without those that are still shown as live."""
    found: list[JobRow] = []
    filters = wanted.filters
    filters["before_number"] = before
    while True:
        rows = store.rows(wanted.ended, limit=limit, **filters)
        found += [row for row in rows if row.id not in live]
        if len(rows) < limit or len(found) >= limit:
            return found
        filters["after_number"] = rows[-1].number


def _number(job: LiveJob) -> int:
    return job.row.number
