"""How much each curve is believed: what it is worth on curves at large, times how well it has done on this one.

A curve's weight is  exp(prior) / (1 + error / floor) ** sharpness,  normalised over the curves, where the floor is
a small share of the mean error of all curves. The error is that of
its forecasts one iteration ahead, discounted twice over: quickly (the last two or three) and slowly (the last
ten). Prior and sharpness depend on how many losses there are and on how noisy they are: an average of two
tables, one for smooth histories and one for noisy ones. `benchmarks/tune_forecast.py` makes the tables from
recorded curves, with whole sources left out to check them.
"""

import numpy as np

from slaq.core import evidence_tables
from slaq.core.arrays import Floats, Integers

#: Discounts of the quick and the slow error.
QUICK_DISCOUNT, SLOW_DISCOUNT = 0.5, 0.85
#: Discount of the changes that tell noise from movement.
NOISE_DISCOUNT = 0.8
#: An error counts as at least this share of the mean over the curves: exact hits prove little.
LEAST_ERROR = 0.05
#: Losses at hand where the next column of the tables begins.
STAGES = (4, 7, 11, 20, 40)

#: Shapes (2, stages, curves) and (2, stages, 2); the first index is 0 for smooth histories, 1 for noisy ones.
PRIOR: Floats = np.array(evidence_tables.PRIOR).T.reshape(2, len(STAGES) + 1, -1)
SHARPNESS: Floats = np.array(evidence_tables.SHARPNESS).T.reshape(2, len(STAGES) + 1, 2)


def weights(counts: Integers, noise: Floats, quick: Floats, slow: Floats) -> Floats:
    """Return the weight of every curve for every job: shape (jobs, curves), rows summing to 1.

    `counts` are losses at hand, `noise` lies in 0..1; `quick` and `slow` are discounted errors, shape (jobs,
    curves), in any unit.
    """
    stage = np.searchsorted(STAGES, counts, side="right")
    smooth = 1.0 - noise
    logits = smooth[:, None] * PRIOR[0, stage] + noise[:, None] * PRIOR[1, stage]
    sharpness = smooth[:, None] * SHARPNESS[0, stage] + noise[:, None] * SHARPNESS[1, stage]
    for column, error in enumerate((quick, slow)):
        floor = LEAST_ERROR * error.mean(axis=1, keepdims=True)
        floor[floor <= 0.0] = 1.0  # no error anywhere, so nothing to tell the curves apart
        logits -= sharpness[:, column, None] * np.log(error / floor + 1.0)
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return np.asarray(logits)
