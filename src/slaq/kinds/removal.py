"""Deletes folders of jobs, whatever their owners have put into them: moved out of the way first, then emptied."""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: Where folders wait to be deleted, beside the folders of jobs. No name of a job begins with a dot.
REMOVED = ".removed"
#: Between the id of a job and what makes the name unique; not part of an id.
_MARK = "~"
#: Files and folders that one attempt at one folder deletes or moves. A later attempt goes on.
AT_ONCE = 200_000
#: Why a folder is still there where nothing prevents its removal.
UNFINISHED = "it holds more than is deleted at once, or files are being added to it"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RemovedFolders:
    """The folders that wait to be deleted.

    A folder is deleted through descriptors of folders, so that no link is followed and no path is too long. A
    folder inside it that holds something is moved up to its top, so that nothing is ever deep.
    """

    #: The folder with a folder for each job.
    jobs: Path

    def take(self, path: Path, job_id: str) -> None:
        """Move whatever lies at a path aside, so that its name is free at once."""
        waiting = self.jobs / REMOVED
        waiting.mkdir(mode=0o700, exist_ok=True)
        about = waiting.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            raise OSError(errno.EPERM, "it is not a folder of the service", str(waiting))
        waiting.chmod(0o700)
        place = waiting / f"{job_id}{_MARK}{secrets.token_hex(8)}"
        try:
            os.rename(path, place)
        except PermissionError:
            # Only who may write a folder can move it to another one.
            _open_up(os.fspath(path), None)
            os.rename(path, place)

    def delete(
        self,
        jobs: Collection[str] | None = None,
        *,
        at_once: int = AT_ONCE,
        stop: Callable[[], bool] = lambda: False,
    ) -> Mapping[str, str]:
        """Delete what was moved here, of these jobs or of all, until `stop` says so.

        Returns why something of a job is left.
        """
        left: dict[str, str] = {}
        try:
            waiting = os.open(self.jobs / REMOVED, _OPEN)
        except FileNotFoundError:
            return left
        try:
            for name in os.listdir(waiting):
                if stop():
                    break
                job_id = name.rpartition(_MARK)[0] or name
                if jobs is None or job_id in jobs:
                    reason = _Attempt(at_once).remove(waiting, name)
                    if reason:
                        left[job_id] = reason
        finally:
            os.close(waiting)
        return left


class _Attempt:
    """One attempt to delete one folder."""

    def __init__(self, at_once: int) -> None:
        self._budget = at_once
        #: Why something could not be deleted; the first reason found.
        self._reason = ""

    def remove(self, parent: int, name: str) -> str:
        """Delete an entry of a folder; return why it is still there, nothing where it is gone."""
        try:
            self._remove(parent, name)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return self._reason or (UNFINISHED if _is_full(error) else _told(name, error))
        return ""

    def _remove(self, parent: int, name: str) -> None:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)
            return
        with _opened(name, parent) as top:
            while self._sweep(top) and self._budget > 0:
                pass
        os.rmdir(name, dir_fd=parent)

    def _sweep(self, top: int) -> bool:
        """Delete or move up what the top of the folder holds; return whether anything could be done."""
        before, self._reason = self._budget, ""
        self._each(top, lambda entry: self._clear(entry, top))
        return self._budget < before

    def _each(self, folder: int, act: Callable[[os.DirEntry[str]], None]) -> None:
        """Act on every entry of a folder; an entry on which that fails does not keep the others from it."""
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._budget <= 0:
                    return
                try:
                    act(entry)
                    self._budget -= 1
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if not _is_full(error):
                        self._reason = self._reason or _told(entry.name, error)

    def _clear(self, entry: os.DirEntry[str], top: int) -> None:
        """Delete an entry of the top; a folder's own folders are moved up beside it."""
        if not _delete(entry, top):
            with _opened(entry.name, top) as folder:
                self._each(folder, lambda inner: _lift(inner, folder, top))
            os.rmdir(entry.name, dir_fd=top)


def _delete(entry: os.DirEntry[str], folder: int) -> bool:
    """Delete an entry; return whether that could be done, which it cannot for a folder that holds something."""
    if not entry.is_dir(follow_symlinks=False):
        os.unlink(entry.name, dir_fd=folder)
        return True
    try:
        os.rmdir(entry.name, dir_fd=folder)
    except OSError as error:
        if not _is_full(error):
            raise
        return False
    return True


def _lift(entry: os.DirEntry[str], folder: int, top: int) -> None:
    """Delete an entry, or move it up where it is a folder that holds something."""
    if _delete(entry, folder):
        return
    # A name that nothing else has.
    name, above = entry.name, secrets.token_hex(8)
    try:
        os.rename(name, above, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        _open_up(name, folder)
        os.rename(name, above, src_dir_fd=folder, dst_dir_fd=top)


@contextmanager
def _opened(name: str, parent: int) -> Iterator[int]:
    """Give a folder's descriptor, with the right to change what is in the folder."""
    try:
        folder = os.open(name, _OPEN, dir_fd=parent)
    except PermissionError:
        _open_up(name, parent)
        folder = os.open(name, _OPEN, dir_fd=parent)
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            os.fchmod(folder, 0o700)
        yield folder
    finally:
        os.close(folder)


def _open_up(name: str, parent: int | None) -> None:
    """Give this user every right to a folder; raises PermissionError for root, which has them already."""
    if os.geteuid() == 0:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    os.chmod(name, 0o700, dir_fd=parent)


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOTEMPTY, errno.EEXIST)


def _told(name: str, error: OSError) -> str:
    return f"{name!r} cannot be deleted ({error.strerror or error})"
