"""Users: what each may have, and what their jobs hold now."""

from typing import Any

from slaq.core.errors import JobOptionError, LimitError
from slaq.core.job import JobState
from slaq.jobs.options import check_options
from slaq.service.access import check_user
from slaq.service.preferences import Preferences
from slaq.service.records import UserView
from slaq.service.standing import Board


class Users:
    """Everyone who has jobs under way or limits of their own."""

    def __init__(self, preferences: Preferences, board: Board, units_per_core: int) -> None:
        self._preferences = preferences
        self._board = board
        self._units_per_core = units_per_core

    def names(self) -> set[str]:
        """Return who they are."""
        return {job.row.owner for job in list(self._board.jobs.values())} | set(self._preferences.limits)

    def view(self, name: str) -> UserView:
        """Return one user's standing."""
        limits = self._preferences.limits_of(name)
        jobs = [job for job in list(self._board.jobs.values()) if job.row.owner == name]
        states = [job.state for job in jobs]
        units = sum(job.units for job in jobs)
        return UserView(
            user=name,
            weight=limits.weight,
            max_jobs=limits.max_jobs,
            max_cores=limits.max_cores,
            queued=states.count(JobState.QUEUED),
            running=states.count(JobState.RUNNING),
            paused=states.count(JobState.PAUSED),
            units=units,
            cores=units / self._units_per_core,
        )

    def limit(self, name: str, **changes: Any) -> None:
        """Keep other limits of a user's."""
        weight, most = changes.get("weight"), changes.get("max_jobs")
        check_options(weight=weight, max_cores=changes.get("max_cores"))
        check_user(name)
        if most is not None and most < 0:
            raise JobOptionError("max_jobs", most, "0 or more")
        if weight is None:
            changes.pop("weight", None)  # everyone has one
        self._preferences.choose_limits(name, **changes)

    def check_room(self, name: str) -> None:
        """Refuse a job more than a user may have."""
        most = self._preferences.limits_of(name).max_jobs
        if most is not None:
            there = sum(job.row.owner == name for job in list(self._board.jobs.values()))
            if there >= most:
                raise LimitError(
                    f"{name} has {there} jobs that have not ended, and may have {most}",
                    "wait for one to end, or cancel one",
                )
