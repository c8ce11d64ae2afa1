"""A log4j2 appender in Python, called with MLlib's log lines in the thread that fits."""

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)


def _implementing(interface: str) -> type:
    """Return the inner class by which py4j knows that a Python class implements an interface of Java."""
    return type("Java", (), {"implements": (f"org.apache.logging.log4j.core.{interface}",)})


class _Errors:
    """The error handler that an appender must have; ignores everything."""

    Java = _implementing("ErrorHandler")

    def error(self, *_: Any) -> None:
        pass


class LogAppender:
    """Calls `heard` with every line; the fit continues when that returns.

    The listener runs in the thread of the fit, so it can identify the job, and pause it by blocking: with pinned
    threads, py4j calls Python in the thread whose call the JVM is in.
    """

    Java = _implementing("Appender")

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._errors = _Errors()

    def append(self, event: Any) -> None:
        try:
            self._heard(event.getMessage().getFormattedMessage())
        except Exception:
            # An exception here would not reach the fit.
            _log.exception("a log line could not be taken in")

    # The rest of log4j2's interface, under its names.

    def getName(self) -> str:  # noqa: N802
        return "slaq"

    def toString(self) -> str:  # noqa: N802
        return "slaq"

    def isStarted(self) -> bool:  # noqa: N802
        return True

    def isStopped(self) -> bool:  # noqa: N802
        return False

    def ignoreExceptions(self) -> bool:  # noqa: N802
        return True

    def getHandler(self) -> _Errors:  # noqa: N802
        return self._errors

    def getLayout(self) -> None:  # noqa: N802
        return None

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass
