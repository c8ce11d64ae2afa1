"""Writes files so that a loss of power leaves the old content or the new one, never a part of either."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Whose a file is to be."""

    uid: int
    gid: int


def write_durably(
    path: Path,
    pieces: Iterable[bytes | bytearray | memoryview],
    *,
    mode: int = 0o600,
    owner: Ownership | None = None,
) -> None:
    """Replace a file by these bytes; they survive a loss of power once this returns.

    The bytes are first written to a draft beside the file, which one process at a time may use. Nothing that
    lies under the draft's name is written to or followed.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(file, "wb") as out:
            out.writelines(pieces)
            out.flush()
            if owner is not None:
                os.fchown(file, owner.uid, owner.gid)
            os.fchmod(file, mode)
            os.fsync(file)
        rename_durably(draft, path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            # A full disk does not say where.
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def rename_durably(source: Path, target: Path) -> None:
    """Give a file that is on disk another name, in place of what had that name; it survives a loss of power."""
    os.replace(source, target)
    flush_folder(target.parent)
    if source.parent != target.parent:
        flush_folder(source.parent)


def flush(path: Path) -> None:
    """Have what a file holds survive a loss of power; its name does after `flush_folder`."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def flush_folder(path: Path) -> None:
    """Have the names in a folder survive a loss of power; do nothing where the file system cannot."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network file systems have no such call, and write names at once anyway.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(folder)
