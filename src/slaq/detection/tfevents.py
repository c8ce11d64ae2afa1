"""Reads the numbers in TensorBoard's event files, piece by piece as they grow."""

import struct
from collections.abc import Iterator

from slaq.detection.names import LONGEST_NAME
from slaq.detection.output import LARGEST_STEP
from slaq.detection.point import Point

#: Bytes of a record that are looked at: longer ones hold pictures and graphs, and are passed over.
LONGEST_RECORD = 1 << 20
#: Numbers taken from one record, and fields of a message that are looked at.
MOST_VALUES, MOST_FIELDS = 64, 1000
_HEADER, _FOOTER = struct.Struct("<QI"), 4
_LATEST = 1e11
#: Kinds of tensors that are numbers: by their number in TensorFlow's DataType.
_FORMATS = {1: struct.Struct("<f"), 2: struct.Struct("<d")}
_Field = tuple[int, int | bytes]


class EventReader:
    """Takes pieces of one file in order, cut anywhere, and returns the scalars in them.

    A record is its length, a checksum of that, its bytes and a checksum of those. The checksums are not checked:
    a file is read while it is written, and what makes no sense is passed over.
    """

    def __init__(self) -> None:
        self._held = b""
        #: Bytes of a long record still to be passed over.
        self._skip = 0

    def feed(self, piece: bytes) -> list[Point]:
        """Return the scalars in the records that the piece completes."""
        if self._skip:
            passed = min(self._skip, len(piece))
            self._skip -= passed
            piece = piece[passed:]
        data = self._held + piece
        points: list[Point] = []
        at = 0
        while len(data) - at >= _HEADER.size:
            length, _ = _HEADER.unpack_from(data, at)
            end = at + _HEADER.size + length + _FOOTER
            if length > LONGEST_RECORD:
                self._skip = max(end - len(data), 0)
                at = min(end, len(data))
                continue
            if end > len(data):
                break
            points += _scalars(data[at + _HEADER.size : end - _FOOTER])
            at = end
        self._held = data[at:]
        return points


def _scalars(record: bytes) -> list[Point]:
    at: float | None = None
    step = 0
    summary = b""
    for number, value in _fields(record):
        if number == 1 and isinstance(value, bytes) and len(value) == 8:
            (seconds,) = struct.unpack("<d", value)
            at = seconds if 0.0 <= seconds <= _LATEST else None
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            summary = value
    points: list[Point] = []
    for number, value in _fields(summary):
        if number == 1 and isinstance(value, bytes) and len(points) < MOST_VALUES:
            points += _scalar(value, step if step < LARGEST_STEP else None, at)
    return points


def _scalar(message: bytes, step: int | None, at: float | None) -> list[Point]:
    name, found = "", None
    for number, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            name = value[:LONGEST_NAME].decode(errors="replace")
        elif number == 2 and len(value) == 4:
            (found,) = struct.unpack("<f", value)
        elif number == 8:
            found = _number(value)
    if found is None or not name or not name.isprintable():
        return []
    return [Point(series=name, value=found, step=step, at=at)]


def _number(tensor: bytes) -> float | None:
    """Return the one number in a tensor; None for any other tensor."""
    kind = 0
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            form = {4: _FORMATS.get(kind), 5: _FORMATS[1], 6: _FORMATS[2]}[number]
            if form is not None and len(value) == form.size:
                found: float = form.unpack(value)[0]
                return found
    return None


def _fields(message: bytes) -> Iterator[_Field]:
    """Yield the fields of a message of Protocol Buffers: numbers as numbers, all others as bytes."""
    at = 0
    for _ in range(MOST_FIELDS):
        if at >= len(message):
            return
        key, at = _varint(message, at)
        kind, number = key & 7, key >> 3
        if kind == 0:
            value, at = _varint(message, at)
            if at < 0:
                return
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            size, at = _varint(message, at)
        if at < 0 or size < 0 or at + size > len(message):
            return
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; -1 for a place where there is none."""
    value = 0
    if at < 0:
        return 0, -1
    for shift in range(0, 70, 7):
        if at >= len(message):
            return 0, -1
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, -1
