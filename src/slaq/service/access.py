"""Who may see and change which job, and who is an admin."""

import re
from collections.abc import Callable, Collection, Sequence

from slaq.config.service import ServiceSettings
from slaq.core.errors import ForbiddenError, JobOptionError, UnknownJobError
from slaq.service.live_job import LiveJob
from slaq.service.live_jobs import LiveJobs
from slaq.service.records import Identity, Submission

USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Access:
    """Finds jobs for those who ask: users see and change their own, admins all of them."""

    def __init__(self, settings: Callable[[], ServiceSettings], live_jobs: LiveJobs) -> None:
        self._settings = settings
        self._live_jobs = live_jobs

    def sees_all(self, who: Identity) -> bool:
        """Return whether the asker may see the jobs of everyone."""
        return who.admin or self._settings().visibility == "all"

    def find(self, who: Identity, job_id: str) -> LiveJob:
        """Return a job that the asker may see. Any other raises UnknownJobError, lest its existence leak."""
        job = self._live_jobs.find(job_id)
        if job.row.owner != who.user and not self.sees_all(who):
            raise UnknownJobError(job_id)
        return job

    def own(self, who: Identity, job_id: str) -> LiveJob:
        """Return a job that the asker may change."""
        job = self.find(who, job_id)
        if not may_change(who, job):
            raise ForbiddenError(who.user, f"change the job {job_id!r} of {job.row.owner}")
        return job

    def visible(self, who: Identity, ids: Sequence[str]) -> Collection[str] | None:
        """Return those of the jobs that the asker may see; None for all of them."""
        if self.sees_all(who):
            return None
        return {job_id for job_id, owner in self._owners(ids).items() if owner == who.user}

    def check_all(self, who: Identity, ids: Sequence[str]) -> None:
        """Raise UnknownJobError for the first of the jobs that does not exist or that the asker may not see."""
        owners, all_seen = self._owners(ids), self.sees_all(who)
        for job_id in ids:
            if job_id not in owners or not (all_seen or owners[job_id] == who.user):
                raise UnknownJobError(job_id)

    def _owners(self, ids: Sequence[str]) -> dict[str, str]:
        live = dict(self._live_jobs.jobs)
        owners = {job_id: live[job_id].row.owner for job_id in ids if job_id in live}
        ended = [job_id for job_id in ids if job_id not in owners]
        return owners | (self._live_jobs.store.owners(ended) if ended else {})


def may_change(who: Identity, job: LiveJob) -> bool:
    """Return whether the asker may change a job and know what it runs."""
    return who.admin or job.row.owner == who.user


def check_admin(who: Identity, what: str) -> None:
    """Raise unless the asker is an admin."""
    if not who.admin:
        raise ForbiddenError(who.user, what)


def check_user(name: str) -> None:
    """Raise where this cannot be the name of a user."""
    if not USER.fullmatch(name):
        raise JobOptionError("user", name, "the name of a user")


def owner_of(who: Identity, submission: Submission) -> str:
    """Return whose job it will be: the asker's, or another's where an admin says so."""
    user = submission.options["user"]
    if user is None or user == who.user:
        return who.user
    check_admin(who, f"submit jobs for {user}")
    return user
