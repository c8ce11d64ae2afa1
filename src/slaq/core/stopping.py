"""When to stop a job at the share that its owner asked for, and what share a job with a whole curve has made."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slaq.core.arrays import Floats, Integers
from slaq.core.direction import turned
from slaq.core.forecast import ROW, CurveForecaster, feed
from slaq.core.gain import HORIZONS
from slaq.core.job import JobState
from slaq.core.progress import has_shown_its_end, is_number, losses_left, reached
from slaq.core.quality import LASTING, done, end_of_curve, without_spikes
from slaq.core.trajectories import forecast_ends, strides_ahead

#: A job is stopped only after SETTLED losses, because early forecasts vary, and after DECISIONS decisions in a
#: row at which it had reached its share.
SETTLED, DECISIONS = 10, 2
#: Losses above which a curve is measured by means of consecutive losses. So many take ten milliseconds.
LONG = 128


@dataclass(slots=True)
class StopAt:
    """Decides when a job has reached the share of its whole reduction at which its owner wants it to stop."""

    share: float
    _found: int = 0

    def found(self, losses: int, reduction: float) -> bool:
        """Record the job's state at a decision; return whether to stop the job."""
        self._found = self._found + 1 if losses >= SETTLED and reached(self.share, reduction) else 0
        return self._found >= DECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What the share that a job has made depends on beside its losses."""

    target: float | None = None
    #: The share at which it was ended; None where it goes on, or ended by itself.
    stopped_at: float | None = None
    #: Whether its losses should rise.
    maximize: bool = False
    #: Indices in the losses from which a new learning rate applied.
    announced: Sequence[int] = ()
    #: How many losses were still to come, as `progress.losses_left` says; NaN where that is not known.
    left: float = math.nan


def still_to_come(
    iterations: Sequence[int] | Integers,
    losses: Sequence[float] | Floats,
    total: int | None,
    limit: int | None,
) -> float:
    """Return how many losses this curve was to have still, given the job's known ends; NaN without any.

    `total` is what the job told, `limit` the iterations after which it is ended.
    """
    known = np.flatnonzero(is_number(np.asarray(losses, dtype=np.float64)))
    ends = [float(end) for end in (total, limit) if end is not None]
    if not len(known) or not ends:
        return math.nan
    asked = math.nan if limit is None else float(limit)
    return float(losses_left(len(known), iterations[known[0]], iterations[-1], min(ends), asked))


def reduction_made(
    losses: Sequence[float] | Floats, aim: Aim | None = None, state: JobState = JobState.RUNNING
) -> float:
    """Return the share of its whole reduction that a job in this state has made with these losses.

    It depends on nothing else: not on when the losses came, nor on how many came between two decisions.
    """
    aim = aim or Aim()
    seen = turned(np.asarray(losses, dtype=np.float64), aim.maximize)
    target = math.nan if aim.target is None else turned(aim.target, aim.maximize)
    places = np.flatnonzero(is_number(seen))
    if not len(places):
        return 0.0
    known = seen[places]
    first, best = known[:1], np.array([known.min()])
    if best[0] <= target:
        return 1.0
    if len(known) < 2:
        return 0.0
    if has_shown_its_end(state, aim.target, aim.stopped_at):
        end = best
    else:
        end = end_of_curve(_forecast_end(seen, aim, best), best, np.array([target]))
    return float(done(first, best, end)[0])


def _forecast_end(seen: Floats, aim: Aim, best: Floats) -> Floats:
    """Return where the curve of these losses is forecast to end."""
    known = np.flatnonzero(is_number(seen))
    seen = seen.copy()
    before = np.pad(seen[known], (LASTING - 1, 0), mode="edge")
    seen[known] = without_spikes(seen[known], before[1:-1], before[:-2], seen[known[0]])
    stride = 1
    while len(known) > LONG * stride:
        stride *= 2
    forecaster = CurveForecaster(1)
    if stride == 1:
        feed(forecaster, seen, known, aim.announced)
    else:
        whole = len(known) // stride * stride
        means = seen[known[len(known) - whole :]].reshape(-1, stride).mean(axis=1)
        feed(forecaster, means, np.arange(len(means)))
    table = forecaster.forecasts(ROW, (0.0, *HORIZONS))
    ahead = strides_ahead(np.array([len(known) / stride]), np.array([aim.left / stride]))
    return forecast_ends(ahead, table, best)
