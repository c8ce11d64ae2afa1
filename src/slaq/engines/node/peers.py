"""Non-blocking ends of sockets, for a thread that serves many of them."""

import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence

from slaq.engines.node.wire import HEAD, NOTHING, HangUpError, Head, Message, encode
from slaq.engines.packing import Buffer

#: Pieces that are held back at most; systems take about a thousand at once.
MOST_PIECES = 500


class Peer:
    """One process at the other end: sends what it can now, and the rest when there is room."""

    def __init__(
        self, sock: socket.socket, selector: selectors.BaseSelector, ready: Callable[[], None]
    ) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._selector = selector
        self._ready = ready
        self._outgoing: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._corked: list[Buffer] = []
        self._head = bytearray(HEAD.size)
        self._payload = NOTHING
        self._filled = 0
        self._fields: Head | None = None
        self.open = True
        selector.register(sock, selectors.EVENT_READ, self._woken)

    def _woken(self, events: int) -> None:
        # A message of another peer, found ready at the same time, may have led to closing this one.
        if self.open and events & selectors.EVENT_WRITE:
            self.flush()
        if self.open and events & selectors.EVENT_READ:
            self._ready()

    def close(self) -> None:
        """Close the socket."""
        if self.open:
            self.open = False
            self._selector.unregister(self._socket)
            self._socket.close()
            self._forget()

    def send(
        self,
        head: Head,
        payload: Sequence[Buffer] = (),
        files: tuple[int, ...] = (),
        *,
        more: bool = False,
    ) -> None:
        """Send a message now or when there is room, or with the next one if `more` comes; nothing once closed."""
        if not self.open:
            return
        self._corked += encode(head, payload)
        if more and not files and len(self._corked) < MOST_PIECES:
            return
        pieces, self._corked = self._corked, []
        if not self._outgoing and not files:
            try:
                sent = self._socket.sendmsg(pieces)
            except BlockingIOError:
                sent = 0
            except OSError:
                # Reading from it will tell that it is gone.
                return
            pieces = _after(pieces, sent)
            if not pieces:
                return
        for place, piece in enumerate(pieces):
            if len(piece):
                # The owner of the files may close them before they are sent.
                copies = () if place else tuple(map(os.dup, files))
                self._outgoing.append((memoryview(piece), copies))
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        waited = len(self._outgoing) > 0
        while self._outgoing:
            piece, files = self._outgoing[0]
            try:
                sent = (
                    socket.send_fds(self._socket, [piece], list(files)) if files else self._socket.send(piece)
                )
            except BlockingIOError:
                break
            except OSError:
                self._forget()
                break
            for file in files:
                os.close(file)
            if sent == len(piece):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = (piece[sent:], ())
        if waited:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
            self._selector.modify(self._socket, events, self._woken)

    @property
    def backlog(self) -> int:
        """The bytes that wait to be sent."""
        return sum(len(piece) for piece, _ in self._outgoing)

    def finish(self, patience: float) -> None:
        """Send all that waits, for `patience` seconds at most where there is no room, and close the socket."""
        if self.open:
            self._socket.settimeout(patience)
            self.flush()
            self.close()

    def _forget(self) -> None:
        for _, files in self._outgoing:
            for file in files:
                os.close(file)
        self._outgoing.clear()

    def receive(self) -> Message | None:
        """Return the next message, or None until it has arrived whole; raises HangUpError at the end."""
        if not self.open:
            return None
        try:
            if self._fields is None:
                self._filled += self._read(memoryview(self._head)[self._filled :])
                if self._filled < HEAD.size:
                    return None
                *fields, length = HEAD.unpack(self._head)
                self._fields = Head(*fields)
                self._payload = memoryview(bytearray(length)) if length else NOTHING
                self._filled = 0
            while self._filled < len(self._payload):
                self._filled += self._read(self._payload[self._filled :])
        except BlockingIOError:
            return None
        message = Message(self._fields, self._payload)
        self._fields, self._payload, self._filled = None, NOTHING, 0
        return message

    def _read(self, into: memoryview) -> int:
        try:
            count = self._socket.recv_into(into)
        except ConnectionResetError as error:
            raise HangUpError from error
        if not count:
            raise HangUpError
        return count


def _after(pieces: list[Buffer], sent: int) -> list[Buffer]:
    """Return the pieces that are left when the first bytes are sent."""
    left: list[Buffer] = []
    for piece in pieces:
        if sent >= len(piece):
            sent -= len(piece)
        else:
            left.append(memoryview(piece)[sent:])
            sent = 0
    return left
