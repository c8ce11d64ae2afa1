"""How far what is foreseen of targets is to be believed: chances and times, corrected by what came true.

Of many moments in recorded curves it is known what the trajectories said and what came. From them come two laws,
whose numbers are in `reliability_tables`, made by `benchmarks/prospect_calibration.py`:

- a chance is logistic in the share of the trajectories that arrive in time, in the logarithms of the time left
  relative to the past and of the losses known, and in the share of the way that is made;
- one job of ten arrives before the time `known * (expected / known)**a * (left / known)**b * exp(c)`, and one of
  ten after another such time.
"""

import numpy as np

from slaq.core import reliability_tables
from slaq.core.arrays import Floats, Integers
from slaq.core.forecaster import ForecastTable
from slaq.core.quality import done
from slaq.core.roster import Roster
from slaq.core.trajectories import chances, reductions

#: Shares of trajectories between which the logit is linear.
KNOTS: Floats = np.array([0.0, 0.03, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0])
#: One row for a target loss, for a share of a whole reduction whose end is not known, and for one with a known end:
#: the logit at KNOTS, then what counts the logarithm of the time left, the logit of the share of the way, and the
#: logarithm of the number of losses known.
CHANCES: Floats = np.array(reliability_tables.CHANCES)
#: One row where the end of a job is not known, and one where it is: a, b and c of the early time, then of the late.
TIMES: Floats = np.array(reliability_tables.TIMES)
#: The time left counts relative to the past within these bounds, and the share of the way within those.
LEAST_TIME, MOST_TIME = 1e-3, 4.0
LEAST_MADE, MOST_MADE = 0.02, 0.995
#: Fewer losses, or more, count as so many.
FEWEST, MANY = 3.0, 80.0


def probabilities(
    roster: Roster, rows: Integers, forecasts: ForecastTable, strides: Floats, available: Floats
) -> Floats:
    """Return the probability that the available strides suffice: shape (jobs, points).

    `strides` are those of `strides_to_target`. It never falls with more strides; it is 1 for a job that has reached
    its target, 0 without a stride, and NaN for a job without a target.
    """
    known, left = _known_and_left(roster, rows)
    available = np.fmin(available, left[:, None])
    found = chances(strides, available)
    # Nothing is to be corrected where the answer is certain, or no forecast has been made.
    each = ((roster.observed[rows] >= 2) & ~roster.diverged[rows] & (strides[:, -1] > 0)).nonzero()[0]
    if len(each):
        time = np.minimum(available[each], MOST_TIME * known[each, None]) / known[each, None]
        kind = np.where(np.isnan(roster.target[rows[each]]), 1 + np.isfinite(left[each]), 0)
        made = _way_made(roster, rows[each], forecasts.take(each))
        found[each] = corrected_chances(kind, found[each], time, made, known[each])
    found[(available <= 0) & (strides[:, -1:] > 0)] = 0.0
    return found


def _way_made(roster: Roster, rows: Integers, forecasts: ForecastTable) -> Floats:
    """Return the share of the way from the first loss to the job's own target that is made."""
    target = roster.target[rows]
    aimed = ~np.isnan(target)
    to_loss = done(roster.first[rows], roster.best[rows], np.where(aimed, target, roster.best[rows]))
    to_share = reductions(roster, rows, forecasts) / np.where(aimed, 1.0, roster.stop_at[rows])
    return np.where(aimed, to_loss, to_share)


def strides_for(strides: Floats, probability: Floats, likely: float) -> Floats:
    """Return the first of each job's strides that suffice with the probability `likely`; infinite if none do.

    `probability` holds that of each of the strides, which are those of `strides_to_target`.
    """
    enough = np.isfinite(strides) & (probability >= likely)
    first = np.take_along_axis(strides, enough.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(enough.any(axis=1), first, np.inf)


def corrected_chances(kind: Integers, said: Floats, time: Floats, made: Floats, known: Floats) -> Floats:
    """Return what is to be expected where such shares of the trajectories arrive: (jobs, points).

    `kind` is the row of CHANCES; `time` the strides available for each known, like `said` of shape (jobs, points).
    """
    table, each = CHANCES[kind], np.arange(len(kind))[:, None]
    place, share = between_knots(said)
    before = table[each, place]
    logit = before + share * (table[each, place + 1] - before)
    for_time, *others = table[:, len(KNOTS) :].T
    logit += for_time[:, None] * np.log(time.clip(LEAST_TIME, MOST_TIME))
    for column, value in zip(others, constant_terms(made, known), strict=True):
        logit += (column * value)[:, None]
    return np.asarray(1.0 / (1.0 + np.exp(-logit)))


def constant_terms(made: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return what of a logit is the same at any time left: by the share of the way made and the losses known."""
    made = made.clip(LEAST_MADE, MOST_MADE)
    return np.log(made / (1.0 - made)), np.log(known.clip(FEWEST, MANY))


def between_knots(said: Floats) -> tuple[Integers, Floats]:
    """Return the place of the knot before each of these shares, and how far on the way to the next one it is."""
    place = (np.searchsorted(KNOTS, said, side="right") - 1).clip(0, len(KNOTS) - 2)
    return place, (said - KNOTS[place]) / (KNOTS[place + 1] - KNOTS[place])


def intervals(roster: Roster, rows: Integers, strides: Floats) -> tuple[Floats, Floats]:
    """Return the ends of the 80% intervals of times to shares, in strides, given the expected ones: (jobs, shares).

    What is reached, is never expected, or cannot be foreseen has no interval of its own: both ends are as expected.
    """
    known, left = _known_and_left(roster, rows)
    whole = np.isfinite(left)
    table = TIMES[whole.astype(np.int64)]
    real = np.isfinite(strides) & (strides > 0)
    crossing = np.log(np.where(real, strides, 1.0) / known[:, None])
    until = np.log(np.where(whole, np.maximum(left, 1e-9), known) / known)
    ends = []
    for a, b, c in (table[:, :3].T, table[:, 3:].T):
        found = known[:, None] * np.exp(a[:, None] * crossing + (b * until + c)[:, None])
        ends.append(np.where(real, np.fmin(found, left[:, None]), strides))
    return np.fmin(ends[0], strides), np.fmax(ends[1], strides)


def _known_and_left(roster: Roster, rows: Integers) -> tuple[Floats, Floats]:
    """Return the strides that each job has told, and those until its known end; NaN where that is not known."""
    stride = np.maximum(roster.stride[rows], 1)
    return np.maximum(roster.observed[rows] / stride, 1e-9), roster.losses_left(rows) / stride
