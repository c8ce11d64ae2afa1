"""A queue of calls from other threads to the thread that waits on a selector."""

import contextlib
import logging
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)


class Inbox:
    """Runs calls one after the other, in the thread that waits on the selector.

    A call that raises is logged, and the next one is run: the thread serves many jobs.
    """

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._orders: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._over = False
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        selector.register(self._alarm, selectors.EVENT_READ, self._rung)

    def leave(self, order: Callable[[], None]) -> bool:
        """Queue a call and wake the thread; return False once `finish` was called."""
        with self._lock:
            if self._over:
                return False
            self._orders.append(order)
        self.ring()
        return True

    def ring(self) -> None:
        """Wake the thread."""
        # A full socket wakes the thread already.
        with contextlib.suppress(BlockingIOError, OSError):
            self._bell.send(b"!")

    def finish(self) -> None:
        """Run the calls that are queued, and refuse further ones."""
        with self._lock:
            self._over = True
        self._carry_out()

    def close(self) -> None:
        """Close the sockets, once the selector is closed."""
        self._alarm.close()
        self._bell.close()

    def _rung(self, _: int) -> None:
        self._alarm.recv(4096)
        self._carry_out()

    def _carry_out(self) -> None:
        while self._orders:
            try:
                self._orders.popleft()()
            except Exception:
                _log.exception("order failed")
