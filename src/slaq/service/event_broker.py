"""Numbers notices, keeps the latest ones, and passes them to all listeners."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from slaq.service.records import Notice, NoticeKind

#: Notices kept for listeners who come back, and notices that may wait for one listener.
KEPT, WAITING = 10_000, 2_000
#: Numbers reserved at a time: after a crash the next number lies beyond the block.
BLOCK = 1_000
#: Returns a notice as a listener may see it; None where the listener may not.
Show = Callable[[Notice], Notice | None]


class EventBroker:
    """Publishes notices to any number of subscriptions; publishing never waits for a listener."""

    def __init__(self, reserve: Callable[[int], int]) -> None:
        """Take numbers in blocks from `reserve`, which durably returns the first of so many."""
        self._reserve = reserve
        self._next = self._end = 0
        self._kept: deque[Notice] = deque(maxlen=KEPT)
        self._subscriptions: list[Subscription] = []
        self._closed = False
        self._lock = threading.Lock()

    def publish(
        self,
        kind: NoticeKind,
        at: float,
        body: Mapping[str, Any],
        *,
        job_id: str | None = None,
        owner: str | None = None,
    ) -> None:
        """Number a notice and hand it to every subscription."""
        with self._lock:
            if self._next == self._end:
                self._next = self._reserve(BLOCK)
                self._end = self._next + BLOCK
            notice = Notice(number=self._next, kind=kind, at=at, job_id=job_id, owner=owner, body=body)
            self._next += 1
            self._kept.append(notice)
            for subscription in self._subscriptions:
                subscription._add(notice)

    def listen(
        self,
        show: Show,
        *,
        after: int | None = None,
        kinds: Collection[str] | None = None,
    ) -> "Subscription":
        """Subscribe to the notices of these kinds, as `show` shows them, from now on or after that number."""

        def wanted(notice: Notice) -> Notice | None:
            return show(notice) if kinds is None or notice.kind in kinds else None

        return Subscription(self, wanted, after)

    def close(self) -> None:
        """End every subscription once it has handed out what waits in it."""
        with self._lock:
            self._closed = True
            for subscription in self._subscriptions:
                subscription._wake()


class Subscription:
    """The notices that wait for one listener. Receives while it is open, as an async context manager."""

    def __init__(self, broker: EventBroker, show: Show, after: int | None = None) -> None:
        self._broker = broker
        self._show = show
        self._after = after
        self._waiting: deque[Notice] = deque()
        #: Whether notices were lost: the listener was too slow, or asked for what is no longer kept.
        self._missed = False
        self._woken = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        with self._broker._lock:
            if self._after is not None:
                self._catch_up(self._broker._kept, self._after)
            self._broker._subscriptions.append(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._broker._lock:
            self._broker._subscriptions.remove(self)

    async def next(self) -> Sequence[Notice]:
        """Wait for notices and return them in order; return none once the broker is closed."""
        while True:
            with self._broker._lock:
                self._woken.clear()
                waiting, self._waiting = self._waiting, deque()
                missed, self._missed = self._missed, False
                if waiting or missed or self._broker._closed:
                    return [self._gap(waiting), *waiting] if missed else list(waiting)
            await self._woken.wait()

    def _add(self, notice: Notice) -> None:
        shown = self._show(notice)
        if shown is None:
            return
        if len(self._waiting) >= WAITING:
            self._waiting.clear()
            self._missed = True
        self._waiting.append(shown)
        self._wake()

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def _catch_up(self, kept: Sequence[Notice], after: int) -> None:
        # A crash leaves numbers unused, so only a gap before the first kept notice means that some were lost.
        # Where none is kept yet, the service has restarted, and the last notices before that may have been lost.
        self._missed = after < kept[0].number - 1 if kept else after > 0
        later = [self._show(notice) for notice in kept if notice.number > after]
        self._waiting.extend([notice for notice in later if notice is not None][-WAITING:])

    def _gap(self, waiting: Sequence[Notice]) -> Notice:
        """Return a `missed` notice; its number lets the listener resume."""
        kept = self._broker._kept
        first = waiting[0] if waiting else kept[-1] if kept else None
        number = (self._after or 0) if first is None else first.number - bool(waiting)
        return Notice(
            number=number, kind="missed", at=first.at if first else 0.0, job_id=None, owner=None, body={}
        )
