"""The clock of a live cluster: time that passes by itself."""

import threading
import time

from typing_extensions import override

from slaq.ports import Clock


class WallClock(Clock):
    """Seconds since this clock was made, plus `start`; changes of the machine's date do not matter."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = time.monotonic() - start
        self._woken = threading.Event()

    @override
    def now(self) -> float:
        return time.monotonic() - self._start

    @override
    def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
        while (left := moment - self.now()) > 0 and not self._woken.wait(left):
            pass
        while (left := min(earliest, moment) - self.now()) > 0:
            time.sleep(left)
        self._woken.clear()

    @override
    def wake(self) -> None:
        self._woken.set()
