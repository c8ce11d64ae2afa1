"""What can be done to the jobs of a group together."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from slaq.core.errors import ConflictError, UnknownGroupError
from slaq.service.access import check_admin
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.service.records import Identity


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of all users; each belongs to one."""

    live_jobs: LiveJobs

    def each(
        self, who: Identity, group: str, owner: str | None, act: Callable[[str], LiveJob]
    ) -> list[LiveJob]:
        """Act on each job of a group that has not ended, by its id; an admin may name another owner."""
        asked, owner = owner, owner or who.user
        if owner != who.user:
            check_admin(who, f"change the groups of {owner}")
        found = [job.row for job in list(self.live_jobs.jobs.values()) if _belongs(job, group, owner)]
        if not found and not self.live_jobs.store.count(group=group, owner=owner):
            raise UnknownGroupError(group, asked)
        done = []
        for row in sorted(found, key=lambda row: row.number):
            # A job that ends meanwhile has nothing left to be done to it.
            with suppress(ConflictError):
                done.append(act(row.id))
        if not done:
            raise ConflictError(
                f"every job of group {group!r} has ended", "submit the group again to run it once more"
            )
        return done


def _belongs(job: LiveJob, group: str, owner: str) -> bool:
    return job.submission.options["group"] == group and job.row.owner == owner and not job.state.ended
