"""One epoch's decision with the numbers it was made from, so that anyone can ask why."""

from dataclasses import dataclass

from slaq.core.arrays import Booleans, Floats, Integers


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
    #: Forecast of the job's own loss at the end of the epoch: mean, and the ends of its 80% interval.
    expected: Floats
    expected_low: Floats
    expected_high: Floats
    #: Whether the job's last loss was no number to learn from, so that it is held at its floor.
    diverged: Booleans
    #: CPU seconds this decision took.
    seconds: float
