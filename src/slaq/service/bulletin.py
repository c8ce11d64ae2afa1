"""What has happened lately, numbered, for those who listen: one stream that can be taken up again after a gap."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slaq.service.records import Notice

#: Notices kept for those who come back, and notices that may wait for one listener.
KEPT, WAITING = 10_000, 2_000
#: Numbers reserved at a time: after a crash the next one starts beyond them.
BLOCK = 1_000
#: What a listener is told who was too slow, or asks for what is no longer kept: look at everything anew.
MISSED = "missed"


@dataclass(slots=True, eq=False)
class _Listener:
    wants: Callable[[Notice], bool]
    loop: asyncio.AbstractEventLoop
    queue: deque[Notice] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    missed: bool = False


class Bulletin:
    """Numbers notices and hands them to listeners; publishing never waits for any of them."""

    def __init__(self, reserve: Callable[[int], int]) -> None:
        """Take numbers in blocks from `reserve`, which durably returns the first of so many."""
        self._reserve = reserve
        self._next = self._end = 0
        self._kept: deque[Notice] = deque(maxlen=KEPT)
        self._listeners: list[_Listener] = []
        self._lock = threading.Lock()

    def publish(
        self,
        kind: str,
        at: float,
        body: Mapping[str, Any],
        *,
        job_id: str | None = None,
        owner: str | None = None,
    ) -> None:
        """Tell everyone."""
        with self._lock:
            if self._next == self._end:
                self._next = self._reserve(BLOCK)
                self._end = self._next + BLOCK
            notice = Notice(number=self._next, kind=kind, at=at, job_id=job_id, owner=owner, body=body)
            self._next += 1
            self._kept.append(notice)
            for listener in self._listeners:
                self._hand(listener, notice)

    async def listen(
        self,
        may_see: Callable[[Notice], bool],
        *,
        after: int | None = None,
        kinds: Collection[str] | None = None,
    ) -> AsyncIterator[Notice]:
        """Yield what happens from now on, or after the notice of that number, as far as it may be seen."""
        listener = _Listener(
            wants=lambda notice: (kinds is None or notice.kind in kinds) and may_see(notice),
            loop=asyncio.get_running_loop(),
        )
        with self._lock:
            if after is not None:
                self._catch_up(listener, after)
            self._listeners.append(listener)
        try:
            while True:
                await listener.news.wait()
                with self._lock:
                    listener.news.clear()
                    waiting, listener.queue = listener.queue, deque()
                    missed, listener.missed = listener.missed, False
                if missed:
                    yield self._gap(waiting, after)
                for notice in waiting:
                    yield notice
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def _gap(self, waiting: Sequence[Notice], after: int | None) -> Notice:
        """Return the notice that others were missed, numbered so that whoever goes on from it misses no more."""
        first = waiting[0] if waiting else self._kept[-1] if self._kept else None
        number = (after or 0) if first is None else first.number - bool(waiting)
        return Notice(
            number=number, kind=MISSED, at=first.at if first else 0.0, job_id=None, owner=None, body={}
        )

    def _catch_up(self, listener: _Listener, after: int) -> None:
        later = [notice for notice in self._kept if notice.number > after]
        # Numbers skip what a crash left unused, so that only a gap at the start of what is kept tells of a loss;
        # one who has heard of an earlier life may have missed its end.
        listener.missed = after < self._kept[0].number - 1 if self._kept else after > 0
        listener.queue.extend([notice for notice in later if listener.wants(notice)][-WAITING:])
        if listener.queue or listener.missed:
            listener.news.set()

    def _hand(self, listener: _Listener, notice: Notice) -> None:
        if not listener.wants(notice):
            return
        if len(listener.queue) >= WAITING:
            listener.queue.clear()
            listener.missed = True
        listener.queue.append(notice)
        if not listener.loop.is_closed():
            listener.loop.call_soon_threadsafe(listener.news.set)
