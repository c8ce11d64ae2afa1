"""Non-blocking ends of sockets, for a thread that serves many of them."""

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence

from slaq.engines.node.wire import (
    HEAD,
    LONGEST_PAYLOAD,
    NOTHING,
    HangUpError,
    Head,
    Message,
    encode,
    room_for,
)
from slaq.engines.packing import Buffer

#: Pieces that are held back at most; systems take about a thousand at once.
MOST_PIECES = 500
#: Bytes that are taken in at once, so that a long message of one process delays nothing else for long.
AT_ONCE = 1 << 24
#: Why the system may take nothing now that it takes later.
_NO_ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)


class Peer:
    """One process at the other end: sends what it can now, and the rest when there is room."""

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        ready: Callable[[], None],
        *,
        longest: int = LONGEST_PAYLOAD,
    ) -> None:
        """Take the socket; `ready` is called when something has come; `longest` bounds what one message holds."""
        sock.setblocking(False)
        self._socket = sock
        self._selector = selector
        self._ready = ready
        self._longest = longest
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
        """Send a message now or when there is room, or with the next one if `more` comes; nothing once closed.

        Raises OSError, with nothing sent, where there is no descriptor left for a file that goes along.
        """
        if not self.open:
            return
        # The owner of the files may close them before they are sent.
        copies = _copies(files)
        self._corked += encode(head, payload)
        if more and not files and len(self._corked) < MOST_PIECES:
            return
        pieces, self._corked = self._corked, []
        if not self._outgoing and not files:
            try:
                sent = self._socket.sendmsg(pieces)
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    # Reading from it will tell that it is gone.
                    return
                sent = 0
            pieces = _after(pieces, sent)
            if not pieces:
                return
        for piece in pieces:
            if len(piece):
                self._outgoing.append((memoryview(piece), copies))
                copies = ()
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
            except OSError as error:
                if error.errno not in _NO_ROOM:
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
        """Return the next message, or None until it has arrived whole.

        Raises HangUpError at the end, and MalformedError for what cannot be a message.
        """
        if not self.open:
            return None
        enough = AT_ONCE
        try:
            if self._fields is None:
                self._filled += self._read(memoryview(self._head)[self._filled :])
                if self._filled < HEAD.size:
                    return None
                *fields, length = HEAD.unpack(self._head)
                self._payload = room_for(length, self._longest)
                self._fields = Head(*fields)
                self._filled = 0
            while self._filled < len(self._payload):
                if enough <= 0:
                    return None
                count = self._read(self._payload[self._filled :])
                self._filled += count
                enough -= count
        except BlockingIOError:
            return None
        message = Message(self._fields, self._payload)
        self._fields, self._payload, self._filled = None, NOTHING, 0
        return message

    def _read(self, into: memoryview) -> int:
        try:
            count = self._socket.recv_into(into)
        except BlockingIOError:
            raise
        except OSError as error:
            raise HangUpError from error
        if not count:
            raise HangUpError
        return count


def _copies(files: tuple[int, ...]) -> tuple[int, ...]:
    """Return a second descriptor of each file; all of them or, where that raises, none."""
    copies: list[int] = []
    try:
        copies.extend(map(os.dup, files))
    except OSError:
        for copy in copies:
            os.close(copy)
        raise
    return tuple(copies)


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
