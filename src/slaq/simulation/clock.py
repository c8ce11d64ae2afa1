"""A clock that jumps instead of waiting."""

from typing_extensions import override

from slaq.ports import Clock


class VirtualClock(Clock):
    """A clock whose time advances only in `sleep_until`."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    @override
    def now(self) -> float:
        return self._now

    @override
    def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
        self._now = max(self._now, moment)

    @override
    def wake(self) -> None:
        """Do nothing: a sleep on this clock returns at once."""
