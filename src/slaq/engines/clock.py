"""The clock of a live cluster: time that passes by itself."""

import time

from typing_extensions import override

from slaq.ports import Clock


class WallClock(Clock):
    """Seconds since this clock was made, or since `start`; unmoved by changes of the machine's date."""

    def __init__(self, start: float = 0.0) -> None:
        self._start = time.monotonic() - start

    @override
    def now(self) -> float:
        return time.monotonic() - self._start

    @override
    def sleep_until(self, moment: float) -> None:
        while (left := moment - self.now()) > 0:
            time.sleep(left)
