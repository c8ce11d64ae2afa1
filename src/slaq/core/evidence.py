"""The weight of each curve: its prior from recorded curves, times how well it has forecast this job.

A curve's weight is  exp(prior) / (1 + error / floor) ** sharpness,  normalised over the curves, where the floor is
a small share of the mean error of all curves. The error is that of the curve's forecasts one iteration ahead,
discounted at two rates: quick (the last two or three) and slow (the last ten). Prior and sharpness depend on
the number of losses and on their noise: they are an average of two tables, one for smooth histories and one
for noisy ones. `benchmarks/tune_forecast.py` makes the tables from recorded curves, and checks them with whole
sources left out.
"""

import numpy as np

from slaq.core import evidence_tables
from slaq.core.arrays import Floats, Integers

#: Discounts of the quick and the slow error.
QUICK_DISCOUNT, SLOW_DISCOUNT = 0.5, 0.85
#: Discount of the changes by which noise is told from a steady fall.
NOISE_DISCOUNT = 0.8
#: An error counts as at least this share of the mean over the curves, because an exact hit may be chance.
LEAST_ERROR = 0.05
#: The numbers of losses at which the next column of the tables begins.
STAGES = (4, 7, 11, 20, 40)

#: Shapes (2, stages, curves) and (2, stages, 2); the first index is 0 for smooth histories, 1 for noisy ones.
PRIOR: Floats = np.array(evidence_tables.PRIOR).T.reshape(2, len(STAGES) + 1, -1)
SHARPNESS: Floats = np.array(evidence_tables.SHARPNESS).T.reshape(2, len(STAGES) + 1, 2)


def weights(counts: Integers, noise: Floats, quick: Floats, slow: Floats) -> Floats:
    """Return the weight of every curve for every job: shape (jobs, curves), rows summing to 1.

    `counts` are the numbers of losses, `noise` lies in 0..1, `quick` and `slow` are discounted errors of shape
    (jobs, curves) in any unit.
    """
    stage = np.searchsorted(STAGES, counts, side="right")
    smooth = 1.0 - noise
    logits = smooth[:, None] * PRIOR[0, stage] + noise[:, None] * PRIOR[1, stage]
    sharpness = smooth[:, None] * SHARPNESS[0, stage] + noise[:, None] * SHARPNESS[1, stage]
    for column, error in enumerate((quick, slow)):
        floor = LEAST_ERROR * error.mean(axis=1, keepdims=True)
        floor[floor <= 0.0] = 1.0  # no curve has an error, so all are equal
        logits -= sharpness[:, column, None] * np.log(error / floor + 1.0)
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return np.asarray(logits)
