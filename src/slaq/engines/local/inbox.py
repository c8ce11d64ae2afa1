"""Where other threads leave orders for the dispatcher, and the bell that wakes it."""

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable


class Inbox:
    """Orders that are carried out, one after the other, by the thread that waits on the selector."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._orders: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._over = False
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._bell.setblocking(False)
        selector.register(self._alarm, selectors.EVENT_READ, self._rung)

    def leave(self, order: Callable[[], None]) -> bool:
        """Have something done; return False where nobody is there any more to do it."""
        with self._lock:
            if self._over:
                return False
            self._orders.append(order)
        self.ring()
        return True

    def ring(self) -> None:
        """Wake the thread."""
        # A full pipe rings already.
        with contextlib.suppress(BlockingIOError, OSError):
            self._bell.send(b"!")

    def finish(self) -> None:
        """Carry out what was left, and take no more."""
        with self._lock:
            self._over = True
        for order in self._orders:
            order()

    def close(self) -> None:
        """Take the bell down, once the selector is closed."""
        self._alarm.close()
        self._bell.close()

    def _rung(self, _: int) -> None:
        self._alarm.recv(4096)
        while self._orders:
            self._orders.popleft()()
