"""Reads the stream of server-sent events, and resumes it after a broken connection."""

import json
import threading
from collections.abc import Callable, Collection, Iterable, Iterator

import httpx

from slaq.client.connection import CONNECT_SECONDS, FIRST_PAUSE, LONGEST_PAUSE, PREFIX, Connection
from slaq.client.reading import notice
from slaq.core.errors import ClosingError, UnreachableError
from slaq.service.records import Notice

#: Seconds of silence after which a connection counts as lost: three heartbeats of the service.
SILENCE = 45.0


class Stream:
    """Yields notices as they arrive, also across restarts of the service."""

    def __init__(
        self,
        connection: Connection,
        *,
        after: int | None = None,
        kinds: Collection[str] = (),
        job_id: str | None = None,
        opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen for notices after that number, else from now on; `opened` is called at each connection."""
        self._connection = connection
        #: The number of the last notice seen.
        self.after = after
        self._kinds = list(kinds)
        self._job_id = job_id
        self._opened = opened
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the iteration at the next notice or heartbeat."""
        self._stop.set()

    def __iter__(self) -> Iterator[Notice]:
        """Yield notices for ever, or until stopped.

        Raises UnreachableError once the service has not answered for as long as the connection has patience.
        """
        waited, pause = 0.0, FIRST_PAUSE
        while not self._stop.is_set():
            try:
                for told in self._once():
                    waited, pause = 0.0, FIRST_PAUSE
                    if told is not None:
                        self.after = told.number
                        yield told
                    if self._stop.is_set():
                        return
            except (UnreachableError, ClosingError):
                if waited >= self._connection.patience:
                    raise
            waited += pause
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self) -> Iterator[Notice | None]:
        """Yield the notices of one connection, and None at each heartbeat."""
        query = {"after": self.after, "kind": self._kinds, "job": self._job_id}
        with self._connection.stream(
            "GET",
            f"{PREFIX}/events",
            params={name: value for name, value in query.items() if value not in (None, [])},
            timeout=httpx.Timeout(SILENCE, connect=CONNECT_SECONDS),
        ) as response:
            fresh = True
            for told in parse_events(response.iter_lines()):
                if fresh:
                    # From its first byte on, the service sends every notice to this stream.
                    self._opened()
                    fresh = False
                yield told


def parse_events(lines: Iterable[str]) -> Iterator[Notice | None]:
    """Yield the notice of each event, and None for each comment; an event that is cut short yields nothing."""
    body: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            body.append(line.removeprefix("data:").removeprefix(" "))
        elif line.startswith(":"):
            yield None
        elif not line and body:
            yield notice(json.loads("\n".join(body)))
            body = []
