"""A notice to leave: SIGTERM, heard between updates."""

import os
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any


class LeavingNotice:
    """Hears SIGTERM while a training runs, where nobody else does, so that the update can be finished and saved."""

    def __init__(self, heard: Callable[[], None]) -> None:
        # A training that nobody refers to any more must not live on because of its notice.
        self._heard = weakref.WeakMethod(heard)
        self._before: Any = None
        self.given = False

    def listen(self) -> None:
        """Hear the signal from now on; only the main thread can, and a handler of the user's stays."""
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGTERM)
            if before is signal.SIG_DFL:
                self._before = before
                signal.signal(signal.SIGTERM, self._take)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.given = True
        heard = self._heard()
        if heard is None:
            self.leave()
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            heard()

    def leave(self) -> None:
        """Hear it no more."""
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)
            self._before = None
