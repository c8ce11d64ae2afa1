"""A bounded cache of values in each worker process, for tasks that would compute them again.

A task must return the same result with or without the cache, because it may run on any worker.
"""

from collections.abc import Hashable
from typing import Any

from numpy.typing import NDArray


class Memo:
    """Arrays by key; the ones least recently used go first once the bound is exceeded."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[Hashable, NDArray[Any]] = {}

    def get(self, key: Hashable) -> NDArray[Any] | None:
        """Return the array under the key, if it is still there."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def put(self, key: Hashable, array: NDArray[Any]) -> None:
        """Store an array, which must not be changed afterwards."""
        array.flags.writeable = False
        self._kept.pop(key, None)
        self._kept[key] = array
        while sum(kept.nbytes for kept in self._kept.values()) > self._max_bytes:
            del self._kept[next(iter(self._kept))]

    def drop(self, key: Hashable) -> None:
        """Forget the array under the key, if there is one."""
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
