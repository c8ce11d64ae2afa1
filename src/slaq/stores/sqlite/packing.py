"""Convert specs and decisions to text and bytes field by field, so that new fields need no change here."""

import json
import struct
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slaq.core.allocation import Grant
from slaq.core.decision import Decision
from slaq.core.job import JobSpec

T = TypeVar("T")

#: The number of parsed specs and submissions in the cache, because every listing reads them again.
_REMEMBERED = 8192
#: The fields of a grant that are not in its decision.
_CREDITS = ("credit", "size_credit", "owner_credit")
_LENGTH = struct.Struct("<I")


def spec_text(spec: JobSpec) -> str:
    """Return a spec as JSON."""
    return json.dumps(asdict(spec))


@lru_cache(_REMEMBERED)
def spec_of(text: str) -> JobSpec:
    """Return the spec; missing fields have their defaults, unknown fields are ignored."""
    return rebuilt(JobSpec, json.loads(text))


def submission_text(submission: Mapping[str, Any]) -> str:
    """Return a submission as ASCII JSON, because an environment may hold bytes that SQLite rejects as text."""
    return json.dumps(submission)


def storable(text: str) -> str:
    """Return a text that SQLite accepts: undecoded bytes, as in unusual file names, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


@lru_cache(_REMEMBERED)
def submission_of(text: str) -> Mapping[str, Any]:
    """Return the submission; the result is cached and must not be changed."""
    return types.MappingProxyType(json.loads(text))


def pack_decision(decision: Decision) -> bytes:
    """Return a decision as compressed bytes: plain values as JSON, arrays as raw bytes."""
    return pack_values({one.name: getattr(decision, one.name) for one in fields(decision)})


def unpack_decision(packed: bytes) -> Decision:
    """Return the decision from its bytes; its arrays are read-only."""
    return rebuilt(Decision, unpack_values(packed))


def pack_credits(grant: Grant) -> bytes:
    """Return the credits of a grant as bytes; its ids and cores are in its decision."""
    return pack_values({name: getattr(grant, name) for name in _CREDITS})


def unpack_credits(decision: Decision, packed: bytes) -> Grant:
    """Return the grant of a decision with its credits."""
    return Grant(ids=decision.ids, cores=decision.cores, **unpack_values(packed))


def pack_values(values: Mapping[str, Any]) -> bytes:
    """Return arrays and plain values by name as bytes."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in values.items() if name not in arrays}
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    header = json.dumps({"plain": plain, "arrays": shapes}, default=_as_python).encode()
    body = b"".join(_by_place(array) for array in arrays.values())
    return zlib.compress(_LENGTH.pack(len(header)) + header + body, level=1)


def unpack_values(packed: bytes) -> dict[str, Any]:
    """Return arrays and plain values by name; arrays are read-only."""
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
    """Return the first bytes of all elements, then the second, and so on, because similar bytes compress well."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8).T.tobytes()


def _as_python(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored in a decision")


def rebuilt(kind: type[T], values: Mapping[str, Any]) -> T:
    """Return the record of these values; missing fields have their defaults, unknown fields are ignored."""
    return kind(
        **{
            name: _as(hint, values[name])
            for name, hint in _hints(typing.cast(Any, kind)).items()
            if name in values
        }
    )


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Return the type of every field."""
    return typing.get_type_hints(kind)


def _as(hint: Any, value: Any) -> Any:
    """Return a value read from JSON as its type: records, enums and tuples, which JSON does not have."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        return rebuilt(hint, value)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        inner = typing.get_args(hint)
        return tuple(_as(inner[0] if inner else Any, one) for one in value)
    if typing.get_origin(hint) in (types.UnionType, typing.Union) and value is not None:
        kinds = [one for one in typing.get_args(hint) if one is not type(None)]
        tuples = [one for one in kinds if typing.get_origin(one) is tuple]
        return _as(tuples[0] if tuples and isinstance(value, list) else kinds[0], value)
    return value
