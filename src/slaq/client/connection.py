"""Requests to the service: retried while it restarts where that is safe; refusals are raised as errors."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slaq.client.endpoint import Endpoint
from slaq.core import errors
from slaq.core.errors import (
    LostReplyError,
    RateError,
    RequestError,
    SlaqError,
    UnreachableError,
)
from slaq.core.extras import needs

with needs("client"):
    import httpx

PREFIX = "/api/v1"
TYPE_PREFIX = "urn:slaq:error:"
#: Seconds to wait for a connection, and for a reply.
CONNECT_SECONDS, REPLY_SECONDS = 5.0, 60.0
#: Seconds between attempts: the first, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0


class Connection:
    """Sends requests to one service; several threads may use one connection.

    Once it has reached the service it bridges a restart of up to `patience` seconds. If the first request fails,
    it raises at once.
    """

    def __init__(self, endpoint: Endpoint, patience: float) -> None:
        self.endpoint = endpoint
        self.patience = patience
        self._met = False
        #: Whether the last request was answered.
        self._there = False
        self._closed = threading.Event()
        self._http = _http(endpoint)
        # For requests that must not be sent twice. Its connections are not kept open: a kept one that the service
        # has closed meanwhile would look like a lost reply.
        self._fresh = _http(endpoint, httpx.Limits(max_keepalive_connections=0))

    def close(self) -> None:
        """Close all connections; requests that have not been answered fail."""
        self._closed.set()
        self._http.close()
        self._fresh.close()

    def json(self, method: str, path: str, **request: Any) -> Any:
        """Return the JSON that the service replies."""
        return self.ask(method, path, **request).json()

    def ask(self, method: str, path: str, *, once: bool = False, **request: Any) -> httpx.Response:
        """Return the service's reply; raises the error that a refusal stands for.

        With `once` the request is not sent again unless it surely did not arrive.
        """
        tries = _Tries(self.patience if self._met else 0.0, self._closed)
        client = self._fresh if once else self._http
        while True:
            try:
                self._knock()
                response = client.request(method, path, **request)
            except (httpx.ConnectError, httpx.ConnectTimeout, OSError) as error:
                self._there = False
                if isinstance(error, BlockingIOError):
                    # The service listens, and others wait in front of it.
                    tries.grant(CONNECT_SECONDS)
                tries.next(UnreachableError(self.endpoint.address, _reason(error)))
            except httpx.TransportError as error:
                self._there = False
                if once:
                    raise LostReplyError(self.endpoint.address) from None
                tries.next(UnreachableError(self.endpoint.address, _reason(error)))
            else:
                self._met = self._there = True
                if response.is_success:
                    return response
                refusal = error_of(response, self.endpoint)
                if isinstance(refusal, RateError):
                    tries.grant(self.patience)
                elif not (response.status_code == 503 and not once):
                    raise refusal
                tries.next(refusal)

    @contextmanager
    def stream(self, method: str, path: str, **request: Any) -> Iterator[httpx.Response]:
        """Give the service's reply while it arrives; raises as `ask` does, and never retries."""
        try:
            self._knock()
        except OSError as error:
            raise UnreachableError(self.endpoint.address, _reason(error)) from None
        try:
            with self._http.stream(method, path, **request) as response:
                self._met = self._there = True
                if not response.is_success:
                    response.read()
                    raise error_of(response, self.endpoint)
                yield response
        except httpx.TransportError as error:
            self._there = False
            raise UnreachableError(self.endpoint.address, _reason(error)) from None

    def _knock(self) -> None:
        """Raise OSError where nobody listens on the socket; httpx would leave a socket open when it fails."""
        if self.endpoint.socket is not None and not self._there:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
                door.settimeout(CONNECT_SECONDS)
                door.connect(str(self.endpoint.socket))


class _Tries:
    """Spaces out attempts until the time for them is over."""

    def __init__(self, patience: float, closed: threading.Event) -> None:
        self._began = time.monotonic()
        self._patience = patience
        self._pause = FIRST_PAUSE
        self._closed = closed

    def grant(self, patience: float) -> None:
        """Allow at least so many seconds in all."""
        self._patience = max(self._patience, patience)

    def next(self, error: SlaqError) -> None:
        """Wait for the next attempt; raises the error where none is left."""
        pause = max(self._pause, error.seconds) if isinstance(error, RateError) else self._pause
        if time.monotonic() - self._began + pause > self._patience or self._closed.wait(pause):
            raise error
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def error_of(response: httpx.Response, endpoint: Endpoint) -> SlaqError:
    """Return the error that the service raised, with its data, from its reply."""
    try:
        problem = response.json()
        name, text, carried = str(problem["type"]), str(problem["detail"]), dict(problem["data"])
    except (ValueError, KeyError, TypeError):
        return RequestError(
            f"{endpoint.address} answered with status {response.status_code} and no explanation"
        )
    kind = getattr(errors, name.removeprefix(TYPE_PREFIX), None)
    if not (isinstance(kind, type) and issubclass(kind, SlaqError)):
        return RequestError(text)
    return errors.restore_error(kind, (text,), carried)


def _http(endpoint: Endpoint, limits: httpx.Limits | None = None) -> httpx.Client:
    headers: Mapping[str, str] = (
        {} if endpoint.token is None else {"Authorization": f"Bearer {endpoint.token}"}
    )
    limits = limits or httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0)
    transport = None
    if endpoint.socket is not None:
        transport = httpx.HTTPTransport(uds=str(endpoint.socket), limits=limits)
    return httpx.Client(
        base_url=endpoint.base_url,
        headers=headers,
        transport=transport,
        limits=limits,
        timeout=httpx.Timeout(REPLY_SECONDS, connect=CONNECT_SECONDS),
        # The environment names certificates and proxies, which matter for other machines only.
        trust_env=endpoint.base_url.startswith("https://"),
    )


def _reason(error: Exception) -> str:
    text = str(error)
    _, _, told = text.rpartition("] ")
    return (told or text or type(error).__name__).strip().lower()
