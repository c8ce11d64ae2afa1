"""The clock of a live cluster: time that passes by itself."""

import time

from typing_extensions import override

from slaq.ports import Clock


class WallClock(Clock):
    """Seconds since this clock was made; unmoved by changes of the machine's date."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    @override
    def now(self) -> float:
        return time.monotonic() - self._start

    @override
    def sleep_until(self, moment: float) -> None:
        while (left := moment - self.now()) > 0:
            time.sleep(left)
