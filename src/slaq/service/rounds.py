"""A thread that repeats a round of work, survives what goes wrong in one, and tells of it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

#: Seconds to the next round after one in which something went wrong, unless rounds are more frequent.
AGAIN = 60.0
#: Seconds after which a round counts as stuck: what it asks of the system does not answer, such as a dead mount.
LONGEST = 1800.0

_log = logging.getLogger(__name__)


class Rounds:
    """Repeats a round from time to time, from the start on. Troubles are those of the last round."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Sequence[str]],
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take a round, which returns its troubles, one sentence each; whatever it raises is a trouble too."""
        #: What the thread does, in a word.
        self.name = name
        self._work = work
        self._interval = interval
        self._clock = clock
        #: When the round that is under way began.
        self._began: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slaq-{name}", daemon=True)
        self._troubles: Sequence[str] = ()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong, in one sentence each; empty when all is well."""
        if not self.alive and not self._over.is_set():
            return (f"the thread for {self.name} has stopped; the log says why; restart the service",)
        began = self._began
        if began is not None and (spent := self._clock() - began) > LONGEST:
            stuck = (
                f"a round of {self.name} has taken {spent / 60:.0f} minutes; look for a mount that is dead"
            )
            return (stuck, *self._troubles)
        return tuple(self._troubles)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after the round that is running."""
        self._over.set()
        self._thread.join()

    def closing(self) -> bool:
        """Return whether the thread is to stop, so that a long round should end."""
        return self._over.is_set()

    def once(self) -> None:
        """Do one round; whatever goes wrong in it is kept as a trouble and logged."""
        self._began = self._clock()
        try:
            self._troubles = self._work()
        except Exception:
            # Everyone reads troubles, and what an error says is not for everyone.
            self._troubles = (f"{self.name} failed, and is tried again; the log says why",)
            _log.exception("round failed", extra={"work": self.name})
        finally:
            self._began = None

    def _run(self) -> None:
        while True:
            self.once()
            if self._over.wait(min(self._interval, AGAIN) if self._troubles else self._interval):
                return
