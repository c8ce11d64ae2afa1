"""Units that are fractions of a core: what the decisions are told of costs, in units."""

from typing_extensions import override

from slaq.core.arrays import Floats, Integers
from slaq.core.forecaster import Forecaster
from slaq.core.roster import Roster


class FractionalRoster(Roster):
    """A roster for an engine that cuts a core into units.

    Engines report CPU seconds, and the runtime model divides cost by units: with n units to a core, a CPU
    second is n unit seconds.
    """

    def __init__(self, forecaster: Forecaster, units_per_core: int) -> None:
        super().__init__(forecaster)
        self._units_per_core = units_per_core

    @override
    def observe(self, rows: Integers, at: Floats, losses: Floats, cpu: Floats, wall: Floats) -> None:
        super().observe(rows, at, losses, cpu * self._units_per_core, wall)
