"""Makes matrix products in one thread alone, because others would wait for cores that jobs keep busy."""

from collections.abc import Callable
from contextlib import ContextDecorator
from functools import lru_cache
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Given = ParamSpec("Given")
Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _pools() -> Any:
    """Return the thread pools of the libraries that multiply NumPy's matrices, which are loaded with it."""
    return ThreadpoolController().select(user_api="blas")


class _OneThread(ContextDecorator):
    """While any call is inside, products are made without other threads.

    The pools belong to the process, so what another thread of it multiplies meanwhile is done in one thread too.
    The last call that leaves gives the pools back as the first one found them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = _pools().limit(limits=1)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limit.restore_original_limits()


_ONE_THREAD = _OneThread()


def in_one_thread(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function with all its matrix products made in one thread.

    A product here takes some microseconds. On idle cores a second thread saves little; on busy ones each product
    waits until that thread gets its turn on a core, and a decision took three to ten times as long.
    """
    return _ONE_THREAD(call)
