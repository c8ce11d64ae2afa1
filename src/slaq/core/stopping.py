"""The share of its whole reduction that a job has reached, and when to stop the job at a given share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.direction import turned
from slaq.core.forecast import forecast
from slaq.core.gain import HORIZONS
from slaq.core.quality import reduction

#: A job is stopped only after SETTLED losses, because early forecasts vary, and after DECISIONS decisions in a
#: row at which it had reached its share.
SETTLED, DECISIONS = 10, 2


@dataclass(slots=True)
class StopAt:
    """Decides when a job has reached the share of its whole reduction at which its owner wants it to stop."""

    share: float
    _found: int = 0

    def found(self, losses: int, reduction: float) -> bool:
        """Record the job's state at a decision; return whether to stop the job."""
        self._found = self._found + 1 if losses >= SETTLED and reduction >= self.share else 0
        return self._found >= DECISIONS


def reduction_made(
    losses: Sequence[float] | Floats,
    target: float | None = None,
    announced: Sequence[int] = (),
    *,
    maximize: bool = False,
) -> float:
    """Return the share of its whole reduction that a job with these losses has reached; 0 if unknown.

    The whole reduction is to the target loss, else to where the curve is forecast to end.
    """
    seen = turned(np.asarray(losses, dtype=float), maximize)
    finite = seen[np.isfinite(seen)]
    if len(finite) < 2:
        return 0.0
    end = (
        turned(target, maximize)
        if target is not None
        else float(forecast(seen, int(HORIZONS[-1]), announced=announced).mean[0])
    )
    return float(reduction(finite, float(finite[0]), min(end, float(finite.min())))[-1])
