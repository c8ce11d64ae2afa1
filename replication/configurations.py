"""Made-up configurations of one model, of which a search is after the best."""

import numpy as np

from slaq.core.arrays import Floats

#: Of every configuration alike: they are one model on one data set.
CPU_SECONDS_PER_ITERATION = 80.0
MAX_UNITS = 64


def generated(rng: np.random.Generator, iterations: int = 50) -> Floats:
    """Return the losses of one made-up configuration: how low it gets and how fast are drawn apart."""
    asymptote = 0.1 + 0.8 * rng.beta(2.0, 3.0)
    rate, power = np.exp(rng.normal(-0.7, 1.0)), rng.uniform(0.4, 1.6)
    k = np.arange(iterations + 1.0)
    curve = asymptote + (1.0 - asymptote) * (1.0 + rate * k) ** -power
    noise = rng.normal(0.0, 0.005, iterations + 1)
    noise[0] = 0.0
    losses: Floats = curve + noise
    return losses
