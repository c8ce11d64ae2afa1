"""Opens files that a job can touch: never waits, follows no link, and takes regular files only."""

import ctypes
import errno
import os
import stat
import sys
from functools import cache
from pathlib import Path

_OPENAT2 = 437
_NO_OTHER_MOUNT = 0x01


class NotRegularError(OSError):
    """What lies at a path is no regular file of its folder: a link, a pipe, a folder, a device, a mount."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", str(path))


class _OpenHow(ctypes.Structure):
    """The argument of openat2(2)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_regular(path: Path, *, flags: int = os.O_RDONLY, follow: bool = False, mode: int = 0o600) -> int:
    """Open a file and return its descriptor; never wait for whoever owns the file.

    Raises NotRegularError where the path names anything but a regular file, and BlockingIOError while somebody
    holds a lease on the file: the kernel takes the lease away soon, so a later try succeeds. `mode` is that of a
    file which O_CREAT creates. With `follow` the path itself may be a link, and may lead anywhere; without it a
    file that is mounted over another is refused too, because whoever mounted it may never answer.
    """
    kept = flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(path, kept, mode) if follow else _open_here(path, kept | os.O_NOFOLLOW, mode)
    except OSError as error:
        # A link, another mount, a pipe without a reader, a device without a driver, a folder.
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENXIO, errno.ENODEV, errno.EISDIR):
            raise NotRegularError(path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NotRegularError(path)
    except BaseException:
        os.close(file)
        raise
    return file


@cache
def _library() -> ctypes.CDLL:
    """Return the C library, which takes longer to load than to call."""
    return ctypes.CDLL(None, use_errno=True)


def _open_here(path: Path, flags: int, mode: int) -> int:
    """Open a file where its folder is, on no other mount; where the kernel cannot see to that, open it anyway."""
    if sys.platform != "linux" or not path.name or path.name == "..":
        return os.open(path, flags, mode)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _NO_OTHER_MOUNT)
        file = int(
            _library().syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(folder),
                ctypes.c_char_p(os.fsencode(path.name)),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
        )
        if file >= 0:
            return file
        number = ctypes.get_errno()
        # Before Linux 5.6 there is no such call, and some containers forbid it.
        if number in (errno.ENOSYS, errno.EPERM):
            return os.open(path.name, flags, mode, dir_fd=folder)
        raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(folder)
