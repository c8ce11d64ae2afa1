"""Users: what each may have, and what their jobs hold now."""

from typing import Any

from slaq.core.errors import LimitError
from slaq.core.job import JobState
from slaq.jobs.options import LIMITS
from slaq.service.access import check_user
from slaq.service.live_jobs import LiveJobs
from slaq.service.overrides import Overrides
from slaq.service.records import UserView


class Users:
    """Everyone who has jobs that have not ended, or limits of their own."""

    def __init__(self, overrides: Overrides, live_jobs: LiveJobs) -> None:
        self._overrides = overrides
        self._live_jobs = live_jobs

    def names(self) -> set[str]:
        """Return their names."""
        return {job.row.owner for job in list(self._live_jobs.jobs.values())} | set(self._overrides.limits)

    def view(self, name: str) -> UserView:
        """Return what a user may have, and what their jobs hold."""
        limits = self._overrides.limits_of(name)
        jobs = [job for job in list(self._live_jobs.jobs.values()) if job.row.owner == name]
        states = [job.state for job in jobs]
        return UserView(
            user=name,
            weight=limits.weight,
            max_jobs=limits.max_jobs,
            max_running=limits.max_running,
            max_cores=limits.max_cores,
            queued=states.count(JobState.QUEUED),
            running=states.count(JobState.RUNNING),
            paused=states.count(JobState.PAUSED),
            cores=sum(job.cores for job in jobs),
        )

    def limit(self, name: str, **changes: Any) -> None:
        """Change a user's limits; None lifts one."""
        check_user(name)
        self._overrides.choose_limits(name, **LIMITS.read(changes))

    def check_room(self, name: str) -> None:
        """Raise where a user has as many jobs as they may have."""
        most = self._overrides.limits_of(name).max_jobs
        if most is not None:
            there = sum(job.row.owner == name for job in list(self._live_jobs.jobs.values()))
            if there >= most:
                raise LimitError(
                    f"{name} has {there} jobs that have not ended, and may have {most}",
                    "wait for one to end, or cancel one",
                )
