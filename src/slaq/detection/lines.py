"""Cuts what a job prints into lines, and removes what only moves the cursor or changes a colour."""

import re

#: Bytes of a line that are looked at; what is beyond is cut off.
LONGEST_LINE = 4096

# Progress bars end a line by returning to its start.
_BREAK = re.compile(rb"[\r\n]+")
# Colours and movements of the cursor; titles of the terminal; other control characters but the tab.
_UNSEEN = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f]"
)


class LineCutter:
    """Yields the whole lines of a stream of bytes, wherever the stream is cut into pieces."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that the piece completes, empty ones left out."""
        *lines, rest = _BREAK.split(self._partial + piece)
        self._partial = rest[:LONGEST_LINE]
        return [line[:LONGEST_LINE] for line in lines if line]

    def rest(self) -> list[bytes]:
        """Return the last line if it has no end; for a stream that is complete."""
        partial, self._partial = self._partial, b""
        return [partial] if partial else []


def seen(line: bytes) -> str:
    """Return what a person sees of a line. Backspaces go, not what stands before them: bars redraw after them."""
    return _UNSEEN.sub("", line[:LONGEST_LINE].decode(errors="replace"))
