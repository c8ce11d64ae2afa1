"""Write arrays and some facts as bytes, and read them back exactly or raise SnapshotError."""

import io
import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core.errors import SnapshotError

#: The first bytes of a snapshot; the number is the version of the format.
MAGIC = b"slaq-snapshot-1\n"
DIGEST_BYTES = 16
_ABOUT = "about"


def pack(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the facts (JSON values) and the arrays as bytes."""
    facts = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    body = io.BytesIO()
    members: dict[str, Any] = {_ABOUT: facts, **arrays}
    np.savez(body, **members)
    content = body.getvalue()
    return MAGIC + _digest(content) + content


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the facts and the arrays."""
    begin = len(MAGIC) + DIGEST_BYTES
    if not packed.startswith(MAGIC):
        raise SnapshotError("it is not a snapshot of this version of slaq")
    content = packed[begin:]
    if _digest(content) != packed[len(MAGIC) : begin]:
        raise SnapshotError("it is damaged or truncated")
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    about = json.loads(arrays.pop(_ABOUT).tobytes())
    return about, arrays


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()
