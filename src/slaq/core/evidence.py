"""The weight of each curve: its prior from recorded curves, times how well it has forecast this job.

A curve's weight is  exp(prior) / product of (1 + error / floor) ** sharpness,  normalised over the curves, where
a floor is a small share of the mean error of all curves. There are four errors: that of the curve's forecasts one
iteration ahead, discounted at two rates, quick (the last two or three) and slow (the last ten), and for each of
`curves.PAST` how far off the present loss it would have been by now. Prior and sharpness depend on the number of
losses and on their noise: they are an average of two tables, one for smooth histories and one for noisy ones.
`benchmarks/tune_forecast.py` makes the tables from recorded curves, and checks them with whole sources left out.
"""

import numpy as np

from slaq.core import evidence_tables
from slaq.core.arrays import Floats, Integers, Singles

#: Discounts of the quick and the slow error.
QUICK_DISCOUNT, SLOW_DISCOUNT = 0.5, 0.85
#: Discount of the changes by which noise is told from a steady fall.
NOISE_DISCOUNT = 0.8
#: An error counts as at least this share of the mean over the curves, because an exact hit may be chance.
LEAST_ERROR = 0.001
#: No curve's weight is less than exp(LEAST_LOGIT) times that of the best.
LEAST_LOGIT = -25.0
#: The numbers of losses at which the next column of the tables begins.
STAGES = (4, 7, 11, 20, 40)
#: Smooth stages, then noisy ones.
COLUMNS = 2 * (len(STAGES) + 1)

#: One row per column of the tables, one column per curve or error.
PRIOR: Singles = np.array(evidence_tables.PRIOR, dtype=np.float32).T
SHARPNESS: Singles = np.array(evidence_tables.SHARPNESS, dtype=np.float32).T
#: How much of what the average missed at each of `curves.PAST`, the last loss less the forecast, is expected to be
#: missed again; below zero, the opposite.
TRUST: Singles = np.array(evidence_tables.TRUST, dtype=np.float32).T
#: The widths of the 80% interval below and above the mean, as multiples of the noise part of the usual error one
#: iteration ahead; of the rest of that error times the root of the horizon; of the usual misses of `curves.PAST`;
#: of the spread of the curves; and of the forecast fall.
BELOW: Singles = np.array(evidence_tables.BELOW, dtype=np.float32).T
ABOVE: Singles = np.array(evidence_tables.ABOVE, dtype=np.float32).T


def mixture(counts: Integers, noise: Floats) -> Singles:
    """Return the share of each column of the tables in each job: shape (jobs, COLUMNS), rows summing to 1.

    `counts` are the numbers of losses, `noise` lies in 0..1.
    """
    mixed = np.zeros((len(counts), COLUMNS), dtype=np.float32)
    stage = np.searchsorted(STAGES, counts, side="right")
    each = np.arange(len(counts))
    mixed[each, stage] = 1.0 - noise
    mixed[each, stage + COLUMNS // 2] = noise
    return mixed


def weights(mixed: Singles, errors: tuple[Singles, ...]) -> Singles:
    """Return the weight of every curve for every job: shape (jobs, curves), rows summing to 1.

    The errors, each of shape (jobs, curves), may be in any unit.
    """
    # One row per curve, so that each step is one pass over all jobs.
    logits = PRIOR.T @ mixed.T
    for sharpness, error in zip((mixed @ SHARPNESS).T, errors, strict=True):
        over = excess(error).T
        over *= sharpness
        logits -= over
    logits -= logits.max(axis=0)
    # Numbers too small for single precision make arithmetic slow.
    np.maximum(logits, LEAST_LOGIT, out=logits)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=0)
    return np.asarray(logits.T)


def excess(error: Singles) -> Singles:
    """Return log(1 + error / floor), by which a curve's weight falls at sharpness 1."""
    over = np.array(error.T, order="C")
    floor = LEAST_ERROR * over.mean(axis=0)
    floor[floor <= 0.0] = 1.0  # no curve has an error, so all are equal
    over /= floor
    over += 1.0
    return np.asarray(np.log(over, out=over).T)
