"""Messages between the processes of a node: a fixed head, then raw bytes that only the ends unpack.

Every socket is one half of a pair that a process of the node made for another; nobody else can write to it.
"""

import mmap
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from slaq.engines.packing import Buffer

#: kind, flag, a, b, c, x, y, bytes of payload.
HEAD = struct.Struct("<BBxxIIIddQ")
#: Bytes of a payload, beyond which what came is no message: far more than any machine holds.
LONGEST_PAYLOAD = 1 << 40
#: Files that travel with one message at most.
MOST_FILES = 8
#: Bytes of a payload beyond which it gets memory of its own, which the system gives as it is filled.
_SMALL = 1 << 20
NOTHING = memoryview(b"")
_FILES_ROOM = socket.CMSG_SPACE(MOST_FILES * 4)
# What a system call takes at most; the smallest IOV_MAX of the systems we run on.
_MOST_BUFFERS = 1000


class Head(NamedTuple):
    """The fixed part of a message."""

    kind: int
    flag: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    x: float = 0.0
    y: float = 0.0


class Message(NamedTuple):
    """A message as it was received."""

    head: Head
    payload: memoryview


class HangUpError(Exception):
    """The other end is gone."""


class MalformedError(Exception):
    """What the other end sent is not a message that it can send; says what was found."""


def encode(head: Head, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the bytes of a message, in pieces."""
    return [HEAD.pack(*head, sum(len(piece) for piece in payload)), *payload]


def room_for(length: int, longest: int = LONGEST_PAYLOAD) -> memoryview:
    """Return memory for a payload; raises MalformedError where there can be no payload so long.

    Memory is taken up only as the payload arrives: whoever announces much and sends little costs nothing.
    """
    if length > longest:
        raise MalformedError(f"a payload of {length} bytes")
    if length <= _SMALL:
        return memoryview(bytearray(length)) if length else NOTHING
    try:
        return memoryview(mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except (OSError, MemoryError):
        raise MalformedError(f"a payload of {length} bytes, for which there is no memory") from None


class Channel:
    """A child's end of its socket: waits until a message is sent, or one has come."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        #: Files received and not taken yet.
        self.files: deque[int] = deque()

    def fileno(self) -> int:
        """Return the socket's descriptor, so that a selector can watch the channel."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, head: Head, payload: Sequence[Buffer] = ()) -> None:
        """Send one message whole."""
        pieces = encode(head, payload)
        if len(pieces) > _MOST_BUFFERS:
            pieces = [b"".join(pieces)]
        try:
            sent = self._socket.sendmsg(pieces)
            for piece in pieces:
                if sent >= len(piece):
                    sent -= len(piece)
                else:
                    self._socket.sendall(memoryview(piece)[sent:])
                    sent = 0
        except (BrokenPipeError, ConnectionResetError) as error:
            raise HangUpError from error

    def receive(self) -> Message:
        """Return the next message, waiting for it; raises HangUpError and MalformedError."""
        message = self._receive(0)
        assert message is not None
        return message

    def receive_now(self) -> Message | None:
        """Return the next message if one has begun to come."""
        return self._receive(socket.MSG_DONTWAIT)

    def _receive(self, flags: int) -> Message | None:
        try:
            # Files come with the first byte of their message, and every message is read from its first byte.
            begun, ancillary, _, _ = self._socket.recvmsg(HEAD.size, _FILES_ROOM, flags)
            for _, _, files in ancillary:
                self.files.extend(struct.unpack(f"{len(files) // 4}i", files))
            if len(begun) < HEAD.size:
                if not begun:
                    raise HangUpError
                begun += bytes(self._fill(memoryview(bytearray(HEAD.size - len(begun)))))
            *head, length = HEAD.unpack(begun)
            return Message(Head(*head), self._fill(room_for(length)))
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise HangUpError from error

    def _fill(self, whole: memoryview) -> memoryview:
        filled = 0
        while filled < len(whole):
            count = self._socket.recv_into(whole[filled:])
            if not count:
                raise HangUpError
            filled += count
        return whole
