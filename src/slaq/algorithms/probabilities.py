"""The logistic and softmax functions, which turn a model's values into probabilities."""

import numpy as np

from slaq.algorithms.inputs import Floats


def logistic(values: Floats) -> Floats:
    """Return 1 / (1 + exp(-v)), exact in both tails."""
    with np.errstate(over="ignore"):  # exp(-v) is infinite where the result is 0
        return np.asarray(1.0 / (1.0 + np.exp(-values)))


def log_softmax(values: Floats) -> Floats:
    """Return v - log Σ exp(v) over each row; the row's maximum goes first, so that nothing overflows."""
    shifted = values - values.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def softmax(values: Floats) -> Floats:
    """Return exp(v) / Σ exp(v) over each row."""
    return np.asarray(np.exp(log_softmax(values)))
