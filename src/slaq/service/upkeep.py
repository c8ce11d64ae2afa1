"""Removes, from time to time, what the settings say need not be kept."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from slaq.config.service import ServiceSettings
from slaq.core.errors import SlaqError

#: Seconds from one look to the next, and in a day.
INTERVAL, DAY = 600.0, 86_400.0

_log = logging.getLogger(__name__)


class Upkeep:
    """A thread that prunes: old decisions always, ended jobs where the settings say for how long they are kept."""

    def __init__(
        self, settings: Callable[[], ServiceSettings], now: Callable[[], float], prune: Callable[..., Any]
    ) -> None:
        self._settings = settings
        self._now = now
        self._prune = prune
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slaq-upkeep", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, after what is under way."""
        self._over.set()
        self._thread.join()

    def once(self) -> None:
        """Remove what need not be kept."""
        settings = self._settings()
        self._prune(keep_decisions=settings.keep_decisions)
        if settings.retention_days is not None:
            before = self._now() - DAY * settings.retention_days
            self._prune(before=before, keep_decisions=settings.keep_decisions)

    def _run(self) -> None:
        while not self._over.wait(INTERVAL):
            try:
                self.once()
            except (SlaqError, OSError) as error:
                _log.warning("upkeep failed", extra={"reason": str(error)})
