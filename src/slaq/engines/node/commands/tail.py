"""Reads the lines that are added to a file, which may appear late, be cut short, or be replaced."""

import os
import re
import stat
from pathlib import Path

from slaq.core.errors import LossSourceError

#: Bytes read at a time, so that a flood of output delays nothing else.
CHUNK = 256 * 1024
#: Bytes before the place of reading that must be unchanged; otherwise the file was written anew.
WITNESS = 64
#: A file that has not grown is checked for replacement at one of so many reads.
LOOKS_PER_PATH = 5

# Progress bars end a line by returning to its start.
_BREAK = re.compile(rb"[\r\n]+")


class Tail:
    """Follows one file; skips what it holds at first."""

    def __init__(self, path: Path, *, longest: int) -> None:
        self.path = path
        #: Bytes of a line beyond which it is cut.
        self.longest = longest
        #: How often the file was cut short or replaced; reading then begins at its start again.
        self.restarts = 0
        #: The first line that the file held at first.
        self.old_header = b""
        self._offset = 0
        self._partial = b""
        self._witness = b""
        self._idle = 0
        self._fd = -1
        if self._open():
            size = os.fstat(self._fd).st_size
            self.old_header = _BREAK.split(os.pread(self._fd, min(size, longest), 0))[0]
            self._offset = size
            self._witness = self._before(size)

    def read(self) -> list[bytes]:
        """Return the whole lines added since the last call, empty ones left out."""
        if self._fd < 0 and not self._open():
            return []
        size = os.fstat(self._fd).st_size
        if size == self._offset:
            # Looking the path up is expensive, and files are rarely replaced.
            self._idle += 1
            if self._idle % LOOKS_PER_PATH == 0 and self._replaced():
                self.close()
                self._begin_again()
                return self.read()
            return []
        if size < self._offset or not self._before(self._offset).endswith(self._witness):
            self._begin_again()
        chunk = os.pread(self._fd, CHUNK, self._offset)
        self._offset += len(chunk)
        self._witness = (self._witness + chunk)[-WITNESS:]
        *lines, self._partial = _BREAK.split(self._partial + chunk)
        self._partial = self._partial[: self.longest]
        return [line[: self.longest] for line in lines if line]

    def rest(self) -> bytes:
        """Return the last line if it has no line break; for a file that is complete."""
        partial, self._partial = self._partial, b""
        return partial

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        try:
            # Non-blocking: a named pipe would wait for a writer.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            raise LossSourceError(f"{self.path} cannot be read ({error})", "check the path") from None
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.close()
            raise LossSourceError(f"{self.path} is not a regular file", "name a file that the command writes")
        return True

    def _before(self, offset: int) -> bytes:
        start = max(offset - WITNESS, 0)
        return os.pread(self._fd, offset - start, start)

    def _replaced(self) -> bool:
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (found.st_ino, found.st_dev) != (mine.st_ino, mine.st_dev)

    def _begin_again(self) -> None:
        self.restarts += 1
        self._offset = 0
        self._partial = self._witness = b""
