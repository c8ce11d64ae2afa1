"""What `slaq top` shows, fetched from the service."""

from typing import TYPE_CHECKING

from typing_extensions import override

from slaq.cli.display.job_columns import ACTIVE, ENDED
from slaq.cli.top.screen import Feed, ScreenState

if TYPE_CHECKING:
    from slaq.client import Client


#: Ended jobs that are shown, those that ended last.
SHOWN = 200


class ClientFeed(Feed):
    """Fetches from the service through its client."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    @override
    def look(self, *, ended: bool) -> ScreenState:
        jobs = self._client.list_jobs(states=ACTIVE)
        if ended:
            known = {job["id"] for job in jobs}
            last, _ = self._client.last_jobs(SHOWN, states=ENDED)
            jobs += [job for job in last if job["id"] not in known]
        return ScreenState(jobs=jobs, cluster=self._client.cluster())

    @override
    def act(self, verb: str, job_id: str) -> None:
        getattr(self._client, verb)(job_id)

    @override
    def reweigh(self, job_id: str, weight: float) -> None:
        self._client.change(job_id, weight=weight)

    @override
    def why(self, job_id: str) -> str:
        from slaq.cli.verbs.why import told

        return told(self._client.why(job_id))
