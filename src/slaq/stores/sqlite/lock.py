"""A lock that lets one process open a database; it ends with its process."""

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
    """The lock on `<database>.lock`, a file that holds the process id.

    It is a record lock: children do not inherit it, so a child that outlives a killed service does not keep it.
    """

    def __init__(self, database: Path) -> None:
        self._key = os.path.realpath(database)
        with _GUARD:
            if self._key in _OPEN_HERE:
                # Before the lock file is opened, because closing it again would release the lock.
                raise StoreLockedError(str(database), os.getpid())
            self._descriptor = _locked(database, f"{self._key}.lock")
            _OPEN_HERE.add(self._key)
        # On a full disk the process id cannot be written; the lock holds without it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        with _GUARD:
            if self._key in _OPEN_HERE:
                _OPEN_HERE.discard(self._key)
                os.close(self._descriptor)


def _locked(database: Path, path: str) -> int:
    """Lock the lock file and return its descriptor; raise StoreLockedError if another process holds it."""
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
