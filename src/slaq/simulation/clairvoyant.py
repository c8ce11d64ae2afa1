"""Gains computed from the true curves: an upper bound for forecasts."""

from dataclasses import dataclass, field

import numpy as np
from typing_extensions import override

from slaq.core.appraisal import Appraiser
from slaq.core.arrays import Floats, Integers
from slaq.core.direction import turned
from slaq.core.forecaster import ForecastTable
from slaq.core.gain import HORIZONS
from slaq.core.roster import Roster
from slaq.simulation.workload import Workload


@dataclass(frozen=True, kw_only=True)
class ClairvoyantAppraiser(Appraiser):
    """Uses the true future losses, replaced by their convex minorant.

    With the raw curves a greedy policy starves any job before a plateau, and does worse than fair sharing. The
    minorant includes the fall after the plateau.
    """

    optimism: float = 0.0
    workload: Workload
    _minorants: dict[str, Floats] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for job in self.workload:
            if job.losses.size:
                self._minorants[job.spec.id] = convex_minorant(turned(job.losses, job.spec.maximize))

    @override
    def extent(self, roster: Roster, rows: Integers) -> Floats:
        ends = [(curve[0], curve[-1]) for curve in self._curves(roster)]
        return np.array([first - last for first, last in ends])

    @override
    def forecasts(self, roster: Roster, rows: Integers) -> ForecastTable:
        horizons = np.array([0.0, *HORIZONS])
        level = np.zeros(len(rows))
        fall = np.zeros((len(rows), len(horizons)))
        for place, (row, curve) in enumerate(zip(rows, self._curves(roster), strict=True)):
            done = max(int(roster.observed[row]) - 1, 0)
            ahead = np.interp(done + horizons, np.arange(len(curve)), curve)
            level[place], fall[place] = ahead[0], ahead[0] - ahead
        return ForecastTable(level=level, fall=fall, below=np.zeros_like(fall), above=np.zeros_like(fall))

    def _curves(self, roster: Roster) -> list[Floats]:
        nothing = np.zeros(2)
        return [self._minorants.get(job_id, nothing) for job_id in roster.active_ids()]


def convex_minorant(losses: Floats) -> Floats:
    """Return the largest convex, non-rising curve that lies nowhere above the losses."""
    best = np.minimum.accumulate(losses)
    hull: list[int] = []
    for place, loss in enumerate(best.tolist()):
        while len(hull) >= 2:
            first, second = hull[-2], hull[-1]
            if (best[second] - best[first]) * (place - first) < (loss - best[first]) * (second - first):
                break
            hull.pop()
        hull.append(place)
    return np.interp(np.arange(len(best)), hull, best[hull])
