"""Ctrl-C in two steps: the first requests a clean stop, the second ends the program at once."""

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

#: The signals that request a stop: Ctrl-C and `kill`.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: The exit status that a shell reports for a program that SIGINT ended.
STATUS = 130
_SHOW_CURSOR = "\x1b[?25h"


class Interrupts:
    """Count the requests to stop inside a `with` block.

    No exception is raised, because it could interrupt a write or another step that must complete.
    """

    def __init__(self, farewell: str) -> None:
        #: Printed on the second interrupt.
        self._farewell = farewell
        self._before: dict[signal.Signals, Any] = {}
        self.count = 0

    def __enter__(self) -> Self:
        # Python allows only the main thread to set signal handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._interrupted) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 1:
            text = f"{_SHOW_CURSOR if sys.stderr.isatty() else ''}\n{self._farewell}\n"
            os.write(2, text.encode())
            # The engine's processes end when this process ends, however it ends.
            os._exit(STATUS)
