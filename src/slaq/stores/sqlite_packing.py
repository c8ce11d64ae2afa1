"""How specs and decisions become text and bytes: field by field, so that a field added later just works."""

import json
import struct
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slaq.core.allocation import Allocation
from slaq.core.decision import Decision
from slaq.core.job import JobSpec

T = TypeVar("T", bound=JobSpec | Decision)

#: Specs and submissions read most often; each is read again with every listing.
_REMEMBERED = 8192
#: What an allocation holds that is not in its decision.
_CREDITS = ("credit", "owner_credit")
_LENGTH = struct.Struct("<I")


def spec_text(spec: JobSpec) -> str:
    """Return a spec as JSON."""
    return json.dumps({one.name: getattr(spec, one.name) for one in fields(spec)})


@lru_cache(_REMEMBERED)
def spec_of(text: str) -> JobSpec:
    """Return the spec; fields that the text does not have take their defaults, others are passed over."""
    return _rebuilt(JobSpec, json.loads(text))


def submission_text(submission: Mapping[str, Any]) -> str:
    """Return a submission as JSON, in ASCII: an environment may hold what is no text to SQLite."""
    return json.dumps(submission)


def storable(text: str) -> str:
    """Return a text as SQLite takes it: bytes that were never decoded, as in odd file names, written out."""
    return text.encode("utf-8", "backslashreplace").decode()


@lru_cache(_REMEMBERED)
def submission_of(text: str) -> Mapping[str, Any]:
    """Return the submission; it is shared by all who ask, and not to be changed."""
    return types.MappingProxyType(json.loads(text))


def pack_decision(decision: Decision) -> bytes:
    """Return a decision as bytes: its plain values as JSON, its arrays as they are, compressed."""
    plain: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for one in fields(decision):
        value = getattr(decision, one.name)
        if isinstance(value, np.ndarray):
            arrays[one.name] = value
        else:
            plain[one.name] = value
    return _pack(plain, arrays)


def unpack_decision(packed: bytes) -> Decision:
    """Return the decision that was packed; its arrays are read-only."""
    return _rebuilt(Decision, _unpack(packed))


def pack_credits(allocation: Allocation) -> bytes:
    """Return what an allocation leaves owed, as bytes; ids and units stand in its decision."""
    return _pack({}, {name: getattr(allocation, name) for name in _CREDITS})


def unpack_credits(decision: Decision, packed: bytes) -> Allocation:
    """Return the allocation of a decision with what it left owed."""
    return Allocation(ids=decision.ids, units=decision.units, **_unpack(packed))


def _pack(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    header = json.dumps({"plain": plain, "arrays": shapes}, default=_as_python).encode()
    body = b"".join(_by_place(array) for array in arrays.values())
    return zlib.compress(_LENGTH.pack(len(header)) + header + body, level=1)


def _unpack(packed: bytes) -> dict[str, Any]:
    content = zlib.decompress(packed)
    (length,) = _LENGTH.unpack_from(content)
    start = _LENGTH.size + length
    header = json.loads(content[_LENGTH.size : start])
    values: dict[str, Any] = header["plain"]
    for name, dtype_text, shape in header["arrays"]:
        dtype = np.dtype(dtype_text)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        places = np.frombuffer(content, np.uint8, size, start).reshape(dtype.itemsize, -1)
        array = np.ascontiguousarray(places.T).view(dtype).reshape(shape)
        array.flags.writeable = False
        values[name] = array
        start += size
    return values


def _by_place(array: NDArray[Any]) -> bytes:
    """Return the first bytes of all elements, then the second ones, and so on: alike, they compress well."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8).T.tobytes()


def _as_python(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be kept in a decision")


def _rebuilt(kind: type[T], values: Mapping[str, Any]) -> T:
    return kind(**{name: _as(hint, values[name]) for name, hint in _HINTS[kind].items() if name in values})


#: The type of every field.
_HINTS: Mapping[type, Mapping[str, Any]] = {kind: typing.get_type_hints(kind) for kind in (JobSpec, Decision)}


def _as(hint: Any, value: Any) -> Any:
    """Return a value read from JSON as the type it was: choices and tuples, which JSON does not know."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        inner = typing.get_args(hint)
        return tuple(_as(inner[0] if inner else Any, one) for one in value)
    if typing.get_origin(hint) in (types.UnionType, typing.Union) and value is not None:
        (first, *_) = [one for one in typing.get_args(hint) if one is not type(None)]
        return _as(first, value)
    return value
