"""A clock that jumps instead of waiting."""

from typing_extensions import override

from slaq.ports import Clock


class VirtualClock(Clock):
    """Time that passes only when someone sleeps."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    @override
    def now(self) -> float:
        return self._now

    @override
    def sleep_until(self, moment: float) -> None:
        self._now = max(self._now, moment)
