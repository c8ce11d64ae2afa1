"""Limits how often each user may ask: a token bucket for each, dropped once it is full again."""

import time
from collections.abc import Callable


class Rates:
    """Lets each key through `rate` times a second in the long run, and `burst` times at once."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        #: When the bucket of a key will be full again.
        self._full_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: str) -> float:
        """Count a request of that key; return 0, or the seconds to wait where it comes too early."""
        now = self._clock()
        full_at = max(self._full_at.get(key, now), now) + 1.0 / self.rate
        late = full_at - now - self.burst / self.rate
        # Rounding must not refuse the last request of a burst.
        if late > 1e-9:
            return late
        self._full_at[key] = full_at
        if len(self._full_at) > 10_000:
            self._full_at = {other: full for other, full in self._full_at.items() if full > now}
        return 0.0
