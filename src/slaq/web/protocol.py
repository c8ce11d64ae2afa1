"""One connection: uvicorn's protocol with the user of the connection, and limits of time and size both ways."""

import asyncio
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from slaq.web.connections import Place, Places

#: Bytes taken in at a time, so that every other connection has its turn between two pieces.
PIECE = 4096
#: Headers of one request, and requests that may wait behind the one that is being answered.
MOST_HEADERS, MOST_WAITING = 200, 8
#: Seconds within which the head of a request must have arrived, and the bytes that it may have.
HEAD_SECONDS, HEAD_BYTES = 10.0, 65536
#: Seconds within which a client must take what is to be sent to it: 48 KiB of a long answer, or the rest of one.
TAKE_SECONDS = 30.0
_LONG_HEAD = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class TooMuchError(Exception):
    """A request has more headers, or is followed by more requests, than any client of ours sends."""


class PeerProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Puts the place of its connection, and the uid of a Unix socket's peer, into each request's state.

    What is sent is parsed in small pieces, and its parts are counted while they are parsed: a few bytes each, they
    would take a hundred times their size in memory, and hold up all other connections.
    """

    _place: Place | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _take_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def __init__(self, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self._places = places
        self._piece = memoryview(bytearray(PIECE))

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._piece

    @override
    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._piece[:nbytes]))

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place = self._places.at(transport.get_extra_info("socket").fileno())
        peer = None if self._place is None else self._place.peer
        # Each request gets a copy of this state.
        self.app_state = {**self.app_state, "peer": peer, "place": self._place}
        if self._place is None:
            transport.abort()  # it was closed at the other end, and its place is left already
        self._await_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._taken()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.transport.write(_LONG_HEAD)
                self._close()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        # After the head there can only be trailers, which would be added to the headers without end.
        if self._head_timer is None or len(self.headers) >= MOST_HEADERS:
            raise TooMuchError
        super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            raise TooMuchError
        self._head_came()
        if self._place is not None:
            self._places.work(self._place)
        super().on_headers_complete()

    @override
    def on_message_begin(self) -> None:
        # The first byte of a later request; until then the keep-alive timer runs.
        if self._head_timer is None:
            self._await_head()
        super().on_message_begin()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._await_taking()
        elif self._place is not None and self.cycle.response_complete:
            self._places.wait(self._place)

    @override
    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._await_taking()

    @override
    def timeout_keep_alive_handler(self) -> None:
        self._close()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taking()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._taken()

    def _close(self) -> None:
        self.transport.close()
        self._await_taking()

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _await_taking(self) -> None:
        """Close the connection unless the client soon reads what is queued for it."""
        if self._take_timer is None:
            self._take_timer = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def _taken(self) -> None:
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None
