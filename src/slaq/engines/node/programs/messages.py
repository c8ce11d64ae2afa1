"""What the processes of program jobs say to each other.

Who says what, and what the fields of the head mean:

| from, to       | kind     | flag        | a      | b     | c         | x          | y        | payload          |
|----------------|----------|-------------|--------|-------|-----------|------------|----------|------------------|
| engine, server | FORK     | DRIVER or 0 | child  |       |           |            |          | one socket       |
|                | KILL     |             | child  |       |           |            |          |                  |
| server, engine | FORKED   |             | child  | pid   |           |            |          |                  |
|                | EXITED   |             | child  | pid   | status    |            |          |                  |
|                | (refused)|             | child  | 0     | errno     |            |          |                  |
| engine, worker | ATTACH   |             | job    |       |           |            |          | layout; files    |
|                | DETACH   |             | job    |       |           |            |          |                  |
|                | CALL     |             | job    | map   |           |            |          | function, args   |
|                | TASK     |             | job    | map   | partition |            |          |                  |
| worker, engine | DONE     | FAILED or 0 | job    | map   | partition | CPU used   |          | result or error  |
| engine, driver | BEGIN    |             |        |       |           |            |          | orders; one file |
|                | GO       |             |        |       |           |            |          |                  |
|                | RESULT   | FAILED or 0 |        | map   | partition |            |          | result or error  |
|                | LOST     |             |        | map   | partition |            |          | reason           |
|                | END      |             |        |       |           |            |          | reason           |
| driver, engine | MAP      |             |        | map   |           | CPU so far |          | function, args   |
|                | REPORT   | WAITS or 0  |        |       | iteration | CPU so far | loss     | metrics (JSON)   |
|                | ANNOUNCE |             |        |       |           | CPU so far | new rate |                  |
|                | CAN_USE  |             |        |       |           | CPU so far |          | demand (JSON)    |
|                | TOTAL    |             |        |       | iterations| CPU so far |          |                  |
|                | RETURNED |             |        |       |           | CPU so far |          | result           |
|                | RAISED   |             |        |       |           | CPU so far |          | error            |
|                | LEFT     |             |        |       |           | CPU so far |          | reason           |
"""

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import Any

from slaq.engines.packing import ALIGNMENT, Buffer, pack

DRIVER = FAILED = WAITS = 1
_DIGEST = 16


class MessageKind(IntEnum):
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
    CAN_USE = 21
    TOTAL = 22


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
