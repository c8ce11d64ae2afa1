"""The active jobs of a Spark application: costs in slot seconds, and jobs that turn out to train nothing."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from typing_extensions import override

from slaq.core.arrays import Floats, Integers
from slaq.core.events import Event
from slaq.core.forecaster import Forecaster
from slaq.engines.units import FractionalRoster


class Nature(Protocol):
    """What an engine knows of jobs beyond what they asked for and reported."""

    def stretches(self) -> Mapping[str, float]:
        """Return for each job how long it holds a slot for one second of CPU."""
        ...

    def silent(self) -> frozenset[str]:
        """Return the jobs that tell no loss."""
        ...


class SlotRoster(FractionalRoster):
    """A roster for slots that may outnumber the cores behind them, and for jobs of unknown kind."""

    def __init__(self, forecaster: Forecaster, units_per_slot: int, nature: Nature) -> None:
        super().__init__(forecaster, units_per_slot)
        self._nature = nature
        #: Seconds that a task of each row's job holds a slot for one second of CPU.
        self.stretch = np.ones(0)
        #: Whether the job asked to compete; it does while it tells its loss.
        self.asked = np.zeros(0, dtype=bool)

    @override
    def absorb(self, events: Sequence[Event]) -> None:
        stretches, silent = self._nature.stretches(), self._nature.silent()
        for job_id, row in self.ids.items():
            self.stretch[row] = stretches.get(job_id, 1.0)
            self.asked[row] |= self.competes[row]
            self.competes[row] = self.asked[row] and job_id not in silent
        super().absorb(events)

    @override
    def observe(self, rows: Integers, at: Floats, losses: Floats, cpu: Floats, wall: Floats) -> None:
        super().observe(rows, at, losses, cpu * self.stretch[rows], wall)
