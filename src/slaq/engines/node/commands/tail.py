"""Reads the lines that are added to a file, which may appear late, be cut short, or be replaced."""

import os
import re
from contextlib import suppress
from pathlib import Path

from slaq.core.errors import LossSourceError
from slaq.engines.regular_file import NotRegularError, open_regular

#: Bytes read at a time, so that a flood of output delays nothing else.
CHUNK = 256 * 1024
#: Bytes before the place of reading that must be unchanged; otherwise the file was written anew.
WITNESS = 64
#: A file that has not grown is checked for replacement at one of so many reads.
LOOKS_PER_PATH = 5

# Progress bars end a line by returning to its start.
_BREAK = re.compile(rb"[\r\n]+")


class Tail:
    """Follows one file. Skips what it holds at first, or goes on from a byte that an earlier tail had reached."""

    def __init__(self, path: Path, *, longest: int, start: int | None = None, follow: bool = False) -> None:
        self.path = path
        #: Bytes of a line beyond which it is cut.
        self.longest = longest
        #: How often the file was cut short or replaced; reading then begins at its start again.
        self.restarts = 0
        #: Whether the last call of `read`, or `finish`, found no more to read.
        self.at_end = True
        #: The byte after the last whole line.
        self.place = 0
        #: Bytes read so far, of all files that were at the path.
        self.taken = 0
        self._follow = follow
        self._offset = 0
        self._limit: int | None = None
        self._partial = b""
        self._witness = b""
        self._idle = 0
        self._fd = -1
        self._leased = False
        if start is not None:
            self._offset = self.place = start
        elif self._open():
            size = os.fstat(self._fd).st_size
            self._offset = self.place = size
            self._witness = self._before(size)
        else:
            # Where the file cannot be opened now, its size still tells what is old.
            with suppress(OSError):
                self._offset = self.place = os.stat(path).st_size

    def read(self) -> list[bytes]:
        """Return the whole lines added since the last call, empty ones left out."""
        self.at_end = True
        if self._fd < 0 and not self._open():
            self.at_end = not self._leased
            return []
        size = os.fstat(self._fd).st_size
        if self._limit is not None:
            size = min(size, self._limit)
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
        chunk = os.pread(self._fd, min(CHUNK, max(size - self._offset, 0)), self._offset)
        self._offset += len(chunk)
        self.taken += len(chunk)
        self.at_end = self._offset >= size or not chunk
        self._witness = (self._witness + chunk)[-WITNESS:]
        *lines, rest = _BREAK.split(self._partial + chunk)
        if lines:
            self.place = self._offset - len(rest)
        self._partial = rest[: self.longest]
        return [line[: self.longest] for line in lines if line]

    def first_line(self) -> bytes:
        """Return the first line of what is passed over at first; nothing where that is nothing."""
        if self._offset == 0 or (self._fd < 0 and not self._open()):
            return b""
        return _BREAK.split(os.pread(self._fd, min(self._offset, self.longest), 0))[0]

    def rest(self) -> bytes:
        """Return the last line if it has no line break; for a file that is complete."""
        partial, self._partial = self._partial, b""
        return partial

    def finish(self) -> None:
        """Read no further than the file reaches at the first call: whoever wrote it has ended."""
        if self._limit is not None:
            return
        if self._fd >= 0 and self._replaced():
            self.close()
            self._begin_again()
        with suppress(OSError):
            self._limit = os.stat(self.path).st_size
            # What was added since the last read is still to be read, also where its lines wait elsewhere.
            self.at_end = self._offset == self._limit

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> bool:
        self._leased = False
        try:
            self._fd = open_regular(self.path, follow=self._follow)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            # Its owner holds a lease on it, which the kernel takes away soon.
            self._leased = True
            return False
        except NotRegularError:
            raise LossSourceError(
                f"{self.path} is not a regular file", "name a file that the command writes"
            ) from None
        except (OSError, ValueError) as error:
            raise LossSourceError(f"{self.path} cannot be read ({error})", "check the path") from None
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
        self._offset = self.place = 0
        self._partial = self._witness = b""
