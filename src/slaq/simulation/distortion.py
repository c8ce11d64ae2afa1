"""Forecasts with artificial errors, to measure how they affect a policy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.core.arrays import Floats, Integers
from slaq.core.forecaster import Forecaster, ForecastTable, enlarged


class DistortedForecaster(Forecaster):
    """Multiplies the falls of another forecaster by a random factor, constant for each job.

    The factor is exp(sigma z) with z standard normal, drawn from `rng`. With sigma 0.7, the forecasts of a third
    of the jobs are more than twice, or less than half, those of the forecaster. The error does not average out,
    as independent noise in every forecast would.
    """

    def __init__(self, forecaster: Forecaster, sigma: float, rng: np.random.Generator) -> None:
        self._forecaster = forecaster
        self._sigma = sigma
        self._rng = rng
        #: Shape (rows,); 0 in rows without a job.
        self._factor: Floats = np.zeros(0)

    @property
    @override
    def bends(self) -> Integers:  # type: ignore[override]  # read-only: belongs to the other forecaster
        """Number of bends of each row's curve, detected or announced."""
        return self._forecaster.bends

    @override
    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**self._forecaster.arrays(), "factor": self._factor}

    @override
    def resize(self, size: int) -> None:
        self._forecaster.resize(size)
        self._factor = enlarged(self._factor, size)

    @override
    def clear(self, rows: Integers) -> None:
        self._forecaster.clear(rows)
        self._factor[rows] = 0.0

    @override
    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        self._forecaster.observe(rows, losses, counts)
        fresh = rows[self._factor[rows] == 0.0]
        self._factor[fresh] = np.exp(self._sigma * self._rng.standard_normal(len(fresh)))

    @override
    def bend(self, rows: Integers) -> None:
        self._forecaster.bend(rows)

    @override
    def coarsen(self, rows: Integers) -> None:
        self._forecaster.coarsen(rows)

    @override
    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        true = self._forecaster.forecasts(rows, horizons)
        factor = self._factor[rows, None]
        return ForecastTable(
            level=true.level, fall=true.fall * factor, below=true.below * factor, above=true.above * factor
        )
