"""Opens files that a job can touch: never waits, follows no link, and takes regular files only."""

import errno
import os
import stat
from pathlib import Path


class NotRegularError(OSError):
    """What lies at a path is no regular file: a link, a pipe, a folder, a device."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


def open_regular(path: Path, *, flags: int = os.O_RDONLY, follow: bool = False, mode: int = 0o600) -> int:
    """Open a file and return its descriptor; never wait for whoever owns the file.

    Raises NotRegularError where the path names anything but a regular file, and BlockingIOError while somebody
    holds a lease on the file: the kernel takes the lease away soon, so a later try succeeds. `follow` allows the
    path itself to be a link, for files that a user names. `mode` is that of a file which O_CREAT creates.
    """
    kept = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        file = os.open(path, flags | kept, mode)
    except OSError as error:
        # A link, a pipe without a reader, a device without a driver, a folder or a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise NotRegularError(path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NotRegularError(path)
    except BaseException:
        os.close(file)
        raise
    return file
