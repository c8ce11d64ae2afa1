"""Ctrl-C in two steps: the first asks for a clean stop, the second ends everything at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

#: What asks for the end of a program: Ctrl-C, and `kill`.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: What a shell reports for a program that SIGINT ended.
STATUS = 130
_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Counts the requests to stop, while it is entered.

    Nothing is raised, since an exception in the middle of anything could leave half of it done.
    """

    def __init__(self, farewell: str) -> None:
        #: Said when everything ends at once.
        self._farewell = farewell
        self._before: dict[signal.Signals, Any] = {}
        self.count = 0

    def __enter__(self) -> Self:
        # Only the main thread may ask for signals; elsewhere its owner deals with them.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ring) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            text = f"{_SHOW_CURSOR if sys.stderr.isatty() else ''}\n{self._farewell}\n"
            os.write(2, text.encode())
            # The engine's processes end with this one, however it ends.
            os._exit(STATUS)
