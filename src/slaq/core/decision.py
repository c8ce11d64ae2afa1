"""The decision of one epoch with the numbers it was made from, which explanations are written from."""

from dataclasses import dataclass, field

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers


def _none() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The cores granted for one epoch and the forecasts behind them; arrays have one element per job."""

    epoch: int
    #: Seconds on the scheduler's clock.
    time: float
    #: Cores to hand out, and the cores in one unit (the smallest step of a decision).
    capacity: float
    unit: float
    ids: tuple[str, ...]
    #: Cores granted.
    cores: Floats
    #: Normalised loss at the time of the decision.
    loss: Floats
    #: Predicted fall of normalised loss with the cores granted, and what coming nearer to the job's end is worth.
    gain: Floats
    #: The gain predicted from one more unit.
    marginal: Floats
    #: The forecast of the job's own loss at the end of the epoch: mean and 80% interval; NaN before its first
    #: loss.
    expected: Floats
    expected_low: Floats
    expected_high: Floats
    #: Whether the job's last loss was NaN or too large, so that the job holds only its guarantee.
    diverged: Booleans
    #: CPU seconds this decision took.
    seconds: float
    # The numbers behind the decision; empty in decisions stored by earlier versions.
    #: The present loss, smoothed by the forecaster.
    level: Floats = field(default_factory=_none)
    #: Whether the job's number should rise rather than fall.
    maximize: Booleans = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    #: The gain predicted from the last unit granted.
    last: Floats = field(default_factory=_none)
    weight: Floats = field(default_factory=_none)
    #: In cores: the job's fair share of the capacity, its guarantee, and the most it can use (infinite for no
    #: limit).
    fair_share: Floats = field(default_factory=_none)
    sure: Floats = field(default_factory=_none)
    most: Floats = field(default_factory=_none)
    #: The share of its whole reduction that the job has made.
    reduction: Floats = field(default_factory=_none)
    #: Whether the job competes by its loss.
    competes: Booleans = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    #: Of the jobs of searches, in their own loss: the 80% interval of the best loss that they are forecast to have
    #: had at their end, and what the best of their search is forecast to end at or better; NaN for other jobs, and
    #: before the second loss. Empty if there is no search.
    final_low: Floats = field(default_factory=_none)
    final_high: Floats = field(default_factory=_none)
    best_final: Floats = field(default_factory=_none)
    #: Whether the job is one of a search.
    searching: Booleans = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    #: The owner of the job, as an index into `owners`.
    owner: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    owners: tuple[str, ...] = ()
    #: Each owner's share in cores; empty if the capacity is not shared between owners.
    owner_share: Floats = field(default_factory=_none)
    #: Losses until the job's end, NaN where that is not known; and the part of the gain that is for coming nearer.
    to_end: Floats = field(default_factory=_none)
    finish: Floats = field(default_factory=_none)

    @property
    def made(self) -> Floats:
        """The share of its whole reduction that each job has made; of older decisions as far as they tell."""
        return self.reduction if len(self.reduction) == len(self.ids) else 1.0 - self.loss
