"""One process to a database: a lock that ends with its process, however that ends."""

import contextlib
import errno
import fcntl
import os
import threading
from pathlib import Path

from slaq.core.errors import StoreLockedError

#: Databases open in this process: locks of the operating system hold between processes only.
_OPEN_HERE: set[str] = set()
_GUARD = threading.Lock()


class ProcessLock:
    """The lock on `<database>.lock`, in which the number of the process stands.

    It is a record lock: children do not inherit it, so a child that outlives a killed service keeps nothing.
    """

    def __init__(self, database: Path) -> None:
        self._key = os.path.realpath(database)
        with _GUARD:
            if self._key in _OPEN_HERE:
                # Before its lock file is opened: closing that again would let go of the lock.
                raise StoreLockedError(str(database), os.getpid())
            self._descriptor = _locked(database, f"{self._key}.lock")
            _OPEN_HERE.add(self._key)
        # A full disk has no room for the number; the lock holds without it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others open the database."""
        with _GUARD:
            if self._key in _OPEN_HERE:
                _OPEN_HERE.discard(self._key)
                os.close(self._descriptor)


def _locked(database: Path, path: str) -> int:
    """Return a descriptor of the lock file, locked; refuse where another process has it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise StoreLockedError(str(database), int(holder) if holder.isdigit() else None) from None
    return descriptor
