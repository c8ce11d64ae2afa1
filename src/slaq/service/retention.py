"""Removes old decisions and ended jobs from time to time, as the settings say."""

import logging
import threading
from collections.abc import Callable
from typing import Any

from slaq.config.service import ServiceSettings
from slaq.core.errors import SlaqError

#: Seconds between two rounds, and in a day.
INTERVAL, DAY = 600.0, 86_400.0

_log = logging.getLogger(__name__)


class Retention:
    """A thread that prunes old decisions, and ended jobs where the settings say how long to keep them."""

    def __init__(
        self, settings: Callable[[], ServiceSettings], now: Callable[[], float], prune: Callable[..., Any]
    ) -> None:
        self._settings = settings
        self._now = now
        self._prune = prune
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slaq-retention", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after the round that is running."""
        self._over.set()
        self._thread.join()

    def once(self) -> None:
        """Prune once."""
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
                _log.warning("pruning failed", extra={"reason": str(error)})
