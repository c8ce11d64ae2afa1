"""What the engine's processes say to each other: a fixed head, then raw bytes that only the ends unpack.

Who says what, and what the fields of the head mean:

| from, to       | kind     | flag        | a      | b     | c         | x          | y        | payload          |
|----------------|----------|-------------|--------|-------|-----------|------------|----------|------------------|
| engine, zygote | FORK     | DRIVER or 0 | child  |       |           |            |          | one socket       |
|                | KILL     |             | child  |       |           |            |          |                  |
| zygote, engine | FORKED   |             | child  | pid   |           |            |          |                  |
|                | EXITED   |             | child  | pid   | status    |            |          |                  |
| engine, worker | ATTACH   |             | job    |       |           |            |          | layout; files    |
|                | DETACH   |             | job    |       |           |            |          |                  |
|                | CALL     |             | job    | map   |           |            |          | function, args   |
|                | TASK     |             | job    | map   | partition |            |          |                  |
| worker, engine | DONE     | FAILED or 0 | job    | map   | partition | CPU used   |          | result or error  |
| engine, driver | BEGIN    |             |        |       |           |            |          | orders; one file |
|                | GO       |             |        |       |           | workers    |          |                  |
|                | RESULT   | FAILED or 0 |        | map   | partition | workers    |          | result or error  |
|                | LOST     |             |        | map   | partition |            |          | reason           |
|                | END      |             |        |       |           |            |          | reason           |
| driver, engine | MAP      |             |        | map   |           | CPU so far |          | function, args   |
|                | REPORT   | WAITS or 0  |        |       | iteration | CPU so far | loss     | metrics (JSON)   |
|                | ANNOUNCE |             |        |       |           | CPU so far | new rate |                  |
|                | RETURNED |             |        |       |           | CPU so far |          | result           |
|                | RAISED   |             |        |       |           | CPU so far |          | error            |
|                | LEFT     |             |        |       |           | CPU so far |          | reason           |
"""

import pickle
import socket
import struct
from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple

import cloudpickle

#: kind, flag, a, b, c, x, y, bytes of payload.
HEAD = struct.Struct("<BBxxIIIddQ")
DRIVER = FAILED = WAITS = 1
#: Files that travel with one message at most.
MOST_FILES = 8
#: Where buffers begin, so that arrays that view them are aligned.
ALIGNMENT = 64
NOTHING = memoryview(b"")
_FILES_ROOM = socket.CMSG_SPACE(MOST_FILES * 4)
_COUNTS = struct.Struct("<QQ")
_DIGEST = 16
# What a system call takes at most; the smallest IOV_MAX of the systems we run on.
_MOST_BUFFERS = 1000

Buffer = bytes | bytearray | memoryview


class Kind(IntEnum):
    """The kinds of messages, as in the table above."""

    FORK = 1
    KILL = 2
    FORKED = 3
    EXITED = 4
    ATTACH = 5
    DETACH = 6
    CALL = 7
    TASK = 8
    DONE = 9
    BEGIN = 10
    GO = 11
    RESULT = 12
    LOST = 13
    END = 14
    MAP = 15
    REPORT = 16
    ANNOUNCE = 17
    RETURNED = 18
    RAISED = 19
    LEFT = 20


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


def encode(head: Head, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the bytes of a message, in pieces."""
    return [HEAD.pack(*head, sum(len(piece) for piece in payload)), *payload]


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
        """Return the next message, waiting for it."""
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
                begun += bytes(self._exactly(HEAD.size - len(begun)))
            *head, length = HEAD.unpack(begun)
            return Message(Head(*head), self._exactly(length) if length else NOTHING)
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise HangUpError from error

    def _exactly(self, length: int) -> memoryview:
        whole = memoryview(bytearray(length))
        filled = 0
        while filled < length:
            count = self._socket.recv_into(whole[filled:])
            if not count:
                raise HangUpError
            filled += count
        return whole


def pack(value: Any) -> list[Buffer]:
    """Return a value as bytes in pieces; the memory of its arrays is not copied.

    Plain pickle is tried first, as it is faster; what only cloudpickle knows (functions and classes that
    were written in a notebook or a script) goes by value.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        stream = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except Exception:
        buffers.clear()
        stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    head = _COUNTS.pack(len(stream), len(views)) + struct.pack(f"<{len(views)}Q", *map(len, views))
    pieces: list[Buffer] = [head, stream]
    length = len(head) + len(stream)
    for view in views:
        pieces += (bytes(-length % ALIGNMENT), view)
        length += -length % ALIGNMENT + len(view)
    return pieces


def unpack(payload: memoryview) -> Any:
    """Return the value that `pack` was given; its arrays share the payload's memory."""
    size, count = _COUNTS.unpack_from(payload)
    lengths = struct.unpack_from(f"<{count}Q", payload, _COUNTS.size)
    start = _COUNTS.size + 8 * count
    stream = payload[start : start + size]
    start += size
    views = []
    for length in lengths:
        start += -start % ALIGNMENT
        views.append(payload[start : start + length])
        start += length
    return pickle.loads(stream, buffers=views)


def pack_call(function: bytes, args: tuple[Any, ...]) -> list[Buffer]:
    """Return a pickled function and its arguments as bytes in pieces."""
    head = blake2b(function, digest_size=_DIGEST).digest() + struct.pack("<Q", len(function)) + function
    return [head, bytes(-len(head) % ALIGNMENT), *pack(args)]


def unpack_call(payload: memoryview) -> tuple[bytes, memoryview, memoryview]:
    """Return the function's digest, the pickled function and the packed arguments."""
    (size,) = struct.unpack_from("<Q", payload, _DIGEST)
    start = _DIGEST + 8
    end = start + size
    return bytes(payload[:_DIGEST]), payload[start:end], payload[end + -end % ALIGNMENT :]
