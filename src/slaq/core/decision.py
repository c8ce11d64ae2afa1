"""One epoch's decision with the numbers it was made from, so that anyone can ask why."""

from dataclasses import dataclass, field

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers


def _none() -> Floats:
    return np.empty(0)


def _no_units() -> Integers:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was granted for one epoch, and what was expected of it; arrays have one element per job."""

    epoch: int
    #: Seconds on the scheduler's clock.
    time: float
    capacity: int
    ids: tuple[str, ...]
    units: Integers
    #: Normalised loss as known when deciding.
    loss: Floats
    #: Predicted fall of normalised loss with the units granted.
    gain: Floats
    #: What one unit more was predicted to add.
    marginal: Floats
    #: Forecast of the job's own loss at the end of the epoch: mean, and the ends of its 80% interval; NaN
    #: before its first loss.
    expected: Floats
    expected_low: Floats
    expected_high: Floats
    #: Whether the job's last loss was no number to learn from, so that it is held at its floor.
    diverged: Booleans
    #: CPU seconds this decision took.
    seconds: float
    # What it was made from; empty in decisions kept by earlier versions.
    #: The loss as it stood, freed of noise as far as could be.
    level: Floats = field(default_factory=_none)
    #: What the last unit granted was predicted to add.
    last: Floats = field(default_factory=_none)
    weight: Floats = field(default_factory=_none)
    #: Its fair share of the capacity, a real number, and the units it was sure of and could hold at most.
    fair_share: Floats = field(default_factory=_none)
    sure: Integers = field(default_factory=_no_units)
    most: Integers = field(default_factory=_no_units)
    #: Whether it competes by its loss.
    competes: Booleans = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    #: Whose job it is: a place in `owners`.
    owner: Integers = field(default_factory=_no_units)
    owners: tuple[str, ...] = ()
    #: Units that were each owner's share, a real number; empty where the capacity is not shared between owners.
    owner_share: Floats = field(default_factory=_none)
