"""What `slaq top` shows, fetched from the service."""

from typing import TYPE_CHECKING

from typing_extensions import override

from slaq.cli.display.job_columns import ACTIVE
from slaq.cli.top.screen import Feed, ScreenState

if TYPE_CHECKING:
    from slaq.client import Client


class ClientFeed(Feed):
    """Fetches from the service through its client."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    @override
    def look(self, *, ended: bool) -> ScreenState:
        return ScreenState(
            jobs=self._client.list_jobs(states=None if ended else ACTIVE), cluster=self._client.cluster()
        )

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
