"""How far a job has come, and when that is near enough to where its curve is forecast to end."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.forecast import forecast
from slaq.core.gain import HORIZONS
from slaq.core.quality import reduction

#: Losses that must be known before, and decisions in a row that must find so: forecasts wander at first.
SETTLED, DECISIONS = 10, 2


@dataclass(slots=True)
class Enough:
    """Watches one job whose owner wants this share of its whole reduction, and no more."""

    share: float
    _found: int = 0

    def found(self, losses: int, reduction: float) -> bool:
        """Take note of what a decision found; return whether the job is to end."""
        self._found = self._found + 1 if losses >= SETTLED and reduction >= self.share else 0
        return self._found >= DECISIONS


def reduction_made(
    losses: Sequence[float] | Floats, target: float | None = None, announced: Sequence[int] = ()
) -> float:
    """Return the share of its whole reduction that a job of these losses has made; 0 where they tell nothing.

    The whole is that to its target, else to where its curve is forecast to end.
    """
    seen = np.asarray(losses, dtype=float)
    finite = seen[np.isfinite(seen)]
    if len(finite) < 2:
        return 0.0
    end = (
        target
        if target is not None
        else float(forecast(seen, int(HORIZONS[-1]), announced=announced).mean[0])
    )
    return float(reduction(finite, float(finite[0]), min(end, float(finite.min())))[-1])
