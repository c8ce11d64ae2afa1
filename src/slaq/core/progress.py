"""How far a job has come: the one definition of its best loss, of the share that is done, and of what is enough.

`quality` computes them for curves and tables. Whatever shows or stores such a number takes it from here, so that
all of them agree:

- a loss counts if it is a finite number, and not as large as those of a job that diverged;
- the *best* loss is the lowest that counts, or the highest of a job that maximizes;
- *done* is the share of the whole reduction made so far: (first - best) / (first - end);
- the *end* of a curve is the target loss; without one, where the curve is forecast to end, or the best loss if
  that is lower. The forecast looks as far as the job's last iteration, where that is known. A job that completed
  without a target, and was not ended by `stop_at`, has shown its end: its best loss.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.direction import best_of
from slaq.core.job import JobState

#: A loss this large, or one that is NaN, counts neither for forecasts nor as a best loss.
DIVERGED = 1e100
#: The shares of the whole reduction whose times are forecast. A job is *good enough* at the first of them.
SHARES = (0.9, 0.95)
GOOD_ENOUGH = SHARES[0]
#: A share counts as reached within this tolerance, because reported losses are rounded.
TOLERANCE = 1e-9


def is_number(losses: Any) -> Any:
    """Return whether each loss, or a single one, is a number that counts: not NaN, not infinite, and not huge."""
    return abs(losses) < DIVERGED


@dataclass(slots=True)
class LossRange:
    """The first, last and best loss of one curve, as its losses come."""

    first: float | None = None
    #: None if the last loss does not count.
    last: float | None = None
    best: float | None = None
    #: Whether the last loss does not count.
    diverged: bool = False
    #: Whether the best loss is the highest.
    maximize: bool = False

    def add(self, loss: float) -> None:
        """Take the next loss."""
        self.diverged = not is_number(loss)
        if self.diverged:
            self.last = None
            return
        self.last = loss
        self.first = loss if self.first is None else self.first
        self.best = loss if self.best is None else best_of((self.best, loss), self.maximize)


def reached(share: Any, made: Any) -> Any:
    """Return which jobs, or whether a single one, have made at least this share, or each its own."""
    return made >= share - TOLERANCE


def losses_left(observed: Any, began: Any, iteration: Any, total: Any, limit: Any) -> Floats:
    """Return the losses that jobs report until their known end; NaN where it is not known.

    A job has reported `observed` losses, the first and the last at the iterations `began` and `iteration`. It told
    that it makes `total` iterations, and is ended after `limit`; NaN stands for neither. An end that a job has gone
    beyond was that of a part of it, such as one fold of several.
    """
    # Where numbers are left out, there are fewer losses to come than iterations.
    told = np.maximum(observed - 1, 1) / np.maximum(iteration - began, 1)
    end = np.where(iteration > total, limit, total)
    return np.asarray(np.maximum(end - iteration, 0.0) * np.minimum(told, 1.0))


def has_shown_its_end(state: JobState, target: float | None, stopped_at: float | None) -> bool:
    """Return whether a job of this state has a curve whose end is its best loss.

    `stopped_at` is the share at which it was ended; None for a job that ended by itself.
    """
    return state is JobState.COMPLETED and target is None and stopped_at is None


def end_by(first: float, best: float, made: float) -> float:
    """Return the end of a falling curve of which this share is made; below every loss if nothing is made."""
    return first - (first - best) / made if made > 0 else best - max(abs(best), 1.0)


def seconds_left(made: float, moment: float | None, now: float, share: float = GOOD_ENOUGH) -> float | None:
    """Return the seconds until a job has made the share, given when that is expected; None if it is not.

    0 only once the share is made: an expected moment that has passed is taken to come soon.
    """
    if made >= share - TOLERANCE:
        return 0.0
    return None if moment is None or not math.isfinite(moment) else max(moment - now, SOON)


#: Seconds to what was expected by now and has not come: the length of an epoch, usually.
SOON = 1.0
