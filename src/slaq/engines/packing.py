"""Values on their way between processes: packed without copying arrays, exceptions with their tracebacks."""

import pickle
import struct
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cloudpickle
from typing_extensions import override

#: Where buffers begin, so that arrays that view them are aligned.
ALIGNMENT = 64
Buffer = bytes | bytearray | memoryview
_COUNTS = struct.Struct("<QQ")


def pack(value: Any) -> list[Buffer]:
    """Return a value as bytes in pieces, without copying the memory of its arrays.

    Plain pickle is tried first, because it is faster; cloudpickle sends functions and classes of a notebook or
    a script by value.
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


class RemoteError(Exception):
    """The cause shown for an exception that was raised in another process: its traceback there."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    @override
    def __str__(self) -> str:
        return f"\n\n{self.text}"


def pack_error(error: BaseException) -> list[Buffer]:
    """Return an exception, or None if it cannot be sent, and the text of its traceback."""
    text = "".join(traceback.format_exception(error))
    with suppress(Exception):
        packed = pack((error, text))
        # Some exceptions can be pickled but not unpickled.
        unpack(memoryview(b"".join(packed)))
        return packed
    return pack((None, text))


def unpack_error(payload: memoryview) -> tuple[BaseException | None, str]:
    """Return the exception, its traceback as its cause, and that text; None for one that could not be sent."""
    error, text = unpack(payload)
    if error is not None:
        error.__cause__ = RemoteError(text)
    return error, text


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed value, which may travel through several processes before one of them unpacks it."""

    payload: memoryview

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _packed, (pickle.PickleBuffer(self.payload),)


def _packed(payload: Buffer) -> Packed:
    return Packed(memoryview(payload))
