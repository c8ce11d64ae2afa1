"""One process to a database: a lock that ends with its process, however that ends."""

import contextlib
import fcntl
import os
from pathlib import Path

from slaq.core.errors import StoreLockedError

#: Databases open in this process: locks of the operating system hold between processes only.
_OPEN_HERE: set[str] = set()


class ProcessLock:
    """The lock on `<database>.lock`, in which the number of the process stands.

    It is a record lock: children do not inherit it, so a child that outlives a killed service keeps nothing.
    """

    def __init__(self, database: Path) -> None:
        self._key = os.path.realpath(database)
        if self._key in _OPEN_HERE:
            raise StoreLockedError(str(database), os.getpid())
        path = Path(f"{database}.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise StoreLockedError(str(database), int(holder) if holder.isdigit() else None) from None
        _OPEN_HERE.add(self._key)
        # A full disk has no room for the number; the lock holds without it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others open the database."""
        if self._key in _OPEN_HERE:
            _OPEN_HERE.discard(self._key)
            os.close(self._descriptor)
