"""Makes matrix products in one thread alone, because others would wait for cores that jobs keep busy."""

from collections.abc import Callable
from functools import lru_cache, wraps
from threading import RLock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Given = ParamSpec("Given")
Result = TypeVar("Result")

#: The pools belong to the process, so one call at a time changes them and gives them back as it found them: of two
#: that overlap, the second would find what the first had set, and leave that behind.
_LOCK = RLock()


@lru_cache(maxsize=1)
def _pools() -> Any:
    """Return the thread pools of the libraries that multiply NumPy's matrices, which are loaded with it."""
    return ThreadpoolController().select(user_api="blas")


def in_one_thread(call: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function with all its matrix products made in one thread; calls of several threads come in turn.

    A product here takes some microseconds. On idle cores a second thread saves little; on busy ones each product
    waits until that thread gets its turn on a core, and a decision took three to ten times as long.
    """

    @wraps(call)
    def alone(*given: Given.args, **named: Given.kwargs) -> Result:
        with _LOCK, _pools().limit(limits=1):
            return call(*given, **named)

    return alone
