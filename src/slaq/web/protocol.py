"""One connection: uvicorn's protocol, with the Unix user at the other end and a time limit for requests."""

import asyncio
import socket
import struct
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Seconds within which the head of a request must have arrived.
HEAD_SECONDS = 30.0
_CREDENTIALS = struct.Struct("3i")


class PeerProtocol(HttpToolsProtocol):
    """Puts the uid of a Unix socket's peer into each request's state, as `peer`."""

    _head_timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Each request gets a copy of this state.
        self.app_state = {**self.app_state, "peer": _peer(transport)}
        self._await_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    @override
    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    @override
    def on_message_begin(self) -> None:
        # The first byte of a later request; until then the keep-alive timer runs.
        if self._head_timer is None:
            self._await_head()
        super().on_message_begin()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _peer(transport: asyncio.Transport) -> int | None:
    """Return the uid of the process at the other end of a Unix socket; None for TCP."""
    connection: Any = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)
