"""Who may see and touch which job, and who is an admin."""

import re
from collections.abc import Callable, Collection, Sequence

from slaq.config.service import ServiceSettings
from slaq.core.errors import ForbiddenError, JobOptionError, UnknownJobError
from slaq.service.records import Identity, Submission
from slaq.service.standing import Board, Standing
from slaq.stores.sqlite import SqliteStore

USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Access:
    """Finds jobs for those who ask: a user sees and touches their own, admins all of them."""

    def __init__(self, settings: Callable[[], ServiceSettings], store: SqliteStore, board: Board) -> None:
        self._settings = settings
        self._store = store
        self._board = board

    def sees_all(self, who: Identity) -> bool:
        """Return whether the asker may see the jobs of everyone."""
        return who.admin or self._settings().visibility == "all"

    def find(self, who: Identity, job_id: str) -> Standing:
        """Return a job that the asker may see; another's is as unknown as one that never was."""
        job = self._board.jobs.get(job_id)
        if job is None:
            job = Standing.of(self._store.job(job_id))
        if job.row.owner != who.user and not self.sees_all(who):
            raise UnknownJobError(job_id)
        return job

    def own(self, who: Identity, job_id: str) -> Standing:
        """Return a job that the asker may touch."""
        job = self.find(who, job_id)
        if not may_touch(who, job):
            raise ForbiddenError(who.user, f"touch the job {job_id!r} of {job.row.owner}")
        return job

    def visible(self, who: Identity, ids: Sequence[str]) -> Collection[str] | None:
        """Return those of the jobs that the asker may see; None for all of them."""
        if self.sees_all(who):
            return None
        live = self._board.jobs
        owners = {job_id: live[job_id].row.owner for job_id in ids if job_id in live}
        ended = [job_id for job_id in ids if job_id not in owners]
        if ended:
            owners |= self._store.owners(ended)
        return {job_id for job_id, owner in owners.items() if owner == who.user}


def may_touch(who: Identity, job: Standing) -> bool:
    """Return whether the asker may steer a job and know what it runs."""
    return who.admin or job.row.owner == who.user


def check_admin(who: Identity, what: str) -> None:
    """Refuse what is for admins."""
    if not who.admin:
        raise ForbiddenError(who.user, what)


def check_user(name: str) -> None:
    """Refuse what cannot be the name of a user."""
    if not USER.fullmatch(name):
        raise JobOptionError("user", name, "the name of a user")


def owner_of(who: Identity, submission: Submission) -> str:
    """Return whose job it will be: the asker's, or another's where an admin says so."""
    if submission.user is None or submission.user == who.user:
        return who.user
    check_admin(who, f"submit jobs for {submission.user}")
    check_user(submission.user)
    return submission.user
