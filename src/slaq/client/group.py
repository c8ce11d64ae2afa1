"""A handle to the jobs of a group, such as those of a grid."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from typing_extensions import override

from slaq.client.job import FIRST_LOOK, LONGEST_LOOK, ServiceJob
from slaq.client.reading import job_view
from slaq.core.errors import ConflictError, UnknownGroupError
from slaq.jobs.options import JobChanges
from slaq.jobs.ranking import ranked, unfinished, winner

if TYPE_CHECKING:
    from slaq.client.client import Client


class JobGroup:
    """The jobs of one group; every property asks the service."""

    def __init__(self, client: "Client", name: str, *, owner: str | None = None) -> None:
        #: What the group is called.
        self.name = name
        #: Whose group it is; None for the client's user.
        self.owner = owner
        self._client = client

    @override
    def __repr__(self) -> str:
        return f"<JobGroup {self.name!r}>"

    @property
    def jobs(self) -> list[ServiceJob]:
        """Handles to the jobs, in the order of submission."""
        return [self._handle(one) for one in self._views()]

    def ranked(self) -> list[ServiceJob]:
        """Return the jobs with the best first, those that diverged and those without a loss last."""
        return [self._handle(one) for one in ranked(self._views())]

    def best(self) -> ServiceJob | None:
        """Return the job with the best loss so far; None where each has diverged or has no loss."""
        found = winner(self._views())
        return None if found is None else self._handle(found)

    def done(self) -> bool:
        """Return whether every job has ended, in whatever way."""
        return not unfinished(self._views())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every job has ended; return whether that came within the time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_LOOK
        while not self.done():
            left = LONGEST_LOOK if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, LONGEST_LOOK)
        return True

    def pause(self) -> None:
        """Take all cores from the jobs until they are resumed."""
        self._client.pause_group(self.name, owner=self.owner)

    def resume(self) -> None:
        """Let the paused jobs compete for cores again."""
        self._client.resume_group(self.name, owner=self.owner)

    def change(self, **changes: Unpack[JobChanges]) -> None:
        """Change the weight, tags or limit of each job that has not ended."""
        self._client.change_group(self.name, owner=self.owner, **changes)

    def cancel(self) -> bool:
        """Cancel the jobs; return False if all have ended already."""
        try:
            self._client.cancel_group(self.name, owner=self.owner)
        except ConflictError:
            return False
        return True

    def _views(self) -> list[dict[str, Any]]:
        found = self._client.list_jobs(group=self.name, owner=self.owner)
        if not found:
            raise UnknownGroupError(self.name, self.owner)
        return found

    def _handle(self, found: Mapping[str, Any]) -> ServiceJob:
        return ServiceJob(self._client, job_view(found))
