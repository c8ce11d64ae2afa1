"""The forecasters that slaq is compared with: the last loss, and the paper's strawman and weighted fit."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from typing_extensions import override

from slaq.core.arrays import Floats, Integers
from slaq.core.curves import WINDOW
from slaq.core.errors import UnknownNameError
from slaq.core.forecaster import Forecaster, ForecastTable, Rows, halved, pushed

#: The paper's exponential weighting of past losses.
PAPER_DECAY = 0.8
#: Grid over mu of mu^(k-b)+c, and grid over the distance of d in 1/(ak^2+bk+c)+d below the best loss, as a
#: multiple of the window's range.
RATES = 1.0 - np.geomspace(0.002, 0.9, 32)
DEPTHS = np.geomspace(0.003, 3.0, 24)
#: The fewest losses that the weighted fit puts a curve through: as many as mu^(k-b)+c has parameters.
FEWEST_TO_FIT = 3
#: The half-width of an 80% interval of a normal distribution, in standard deviations.
NORMAL_80 = 1.2816


class LastLoss(Rows, Forecaster):
    """Forecasts the last loss for every horizon: a strong baseline on noisy or nearly converged curves."""

    def __init__(self, size: int = 0) -> None:
        #: The last losses, newest last, and their number.
        self.window = np.zeros((size, WINDOW))
        self.count = np.zeros(size, dtype=np.int64)
        self.bends = np.zeros(size, dtype=np.int64)

    @override
    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        self.window[rows] = pushed(self.window[rows], losses, counts)
        self.count[rows] = np.minimum(self.count[rows] + counts, WINDOW)

    @override
    def coarsen(self, rows: Integers) -> None:
        self.window[rows] = halved(self.window[rows])
        self.count[rows] = (self.count[rows] + 1) // 2

    @override
    def bend(self, rows: Integers) -> None:
        self.count[rows] = np.minimum(self.count[rows], 1)
        self.bends[rows] += 1

    @override
    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        last = self.window[rows, -1]
        fall = self.falls(rows, np.array(horizons))
        deviation = np.sqrt(np.mean(self._changes(rows) ** 2, axis=1))[:, None] * np.sqrt(horizons)
        return ForecastTable(level=last, fall=fall, below=NORMAL_80 * deviation, above=NORMAL_80 * deviation)

    def falls(self, rows: Integers, horizons: Floats) -> Floats:
        """Return the fall forecast for each row and horizon."""
        return np.zeros((len(rows), len(horizons)))

    def _changes(self, rows: Integers) -> Floats:
        """Return the last changes of loss; zero if there are none."""
        lags = np.arange(WINDOW - 1, 0, -1)
        known: Floats = np.diff(self.window[rows], axis=1) * (lags < self.count[rows, None])
        return known[:, -10:]


class Strawman(LastLoss):
    """The paper's strawman (§4.2.2): every future iteration falls as much as the last."""

    @override
    def falls(self, rows: Integers, horizons: Floats) -> Floats:
        return np.maximum(-self._changes(rows)[:, -1:], 0.0) * horizons


@lru_cache(maxsize=WINDOW)
def _paper_weights(count: int) -> Floats:
    weights = PAPER_DECAY ** np.arange(count - 1.0, -1.0, -1.0)
    return np.asarray(weights / weights.sum())


def _exponential(losses: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Fit A*mu^t + c, A >= 0: return the weighted mean square residual and the curve at `times`, per row."""
    count = losses.shape[1]
    weights = _paper_weights(count)
    shapes = RATES[:, None] ** np.arange(1.0 - count, 1.0)
    shapes /= shapes.max(axis=1, keepdims=True)
    now = shapes[:, -1]
    mean = shapes @ weights
    centred = shapes - mean[:, None]
    variance = centred**2 @ weights
    average = losses @ weights
    offset = losses - average[:, None]
    slope = np.maximum((offset @ (centred * weights).T) / variance, 0.0)
    residual = ((offset**2) @ weights)[:, None] - slope**2 * variance
    pick = residual.argmin(axis=1)
    each = np.arange(len(losses))
    steps = now[:, None] * RATES[:, None] ** times - mean[:, None]
    path = average[:, None] + slope[each, pick, None] * steps[pick]
    return np.maximum(residual[each, pick], 0.0), path


def _inverse_quadratic(losses: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Fit 1/(a*k^2 + b*k + c) + d, as `_exponential` does. Ignore fits that do not fall towards d."""
    count = losses.shape[1]
    weights = _paper_weights(count)
    low = losses.min(axis=1)
    extent = np.ptp(losses, axis=1)
    extent[extent == 0.0] = 1.0
    # Per row and d: 1/(loss - d) is a quadratic in k, whose errors are multiplied by 1/(loss - d)^2.
    above = (losses - low[:, None])[:, None, :] / extent[:, None, None] + DEPTHS[:, None]
    steps = np.arange(1.0 - count, 1.0) / count
    design = np.stack([np.ones(count), steps, steps**2])
    stretched = weights * above**4
    normal = np.einsum("rdk,ik,jk->rdij", stretched, design, design)
    normal += 1e-12 * np.trace(normal, axis1=2, axis2=3)[..., None, None] * np.eye(3)
    moments = np.einsum("rdk,ik->rdi", stretched / above, design)
    solved = np.linalg.solve(normal, moments[..., None])[..., 0]
    known = np.einsum("rdi,ik->rdk", solved, design)
    ahead = times / count
    future = np.einsum("rdi,ik->rdk", solved, np.stack([np.ones_like(ahead), ahead, ahead**2]))
    valid = (known > 0).all(axis=2) & (future > 0).all(axis=2) & (np.diff(future, axis=2) >= 0).all(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = np.where(valid, ((1.0 / known - above) ** 2) @ weights, np.inf)
        pick = residual.argmin(axis=1)
        each = np.arange(len(losses))
        path = (1.0 / future[each, pick] - DEPTHS[pick, None]) * extent[:, None] + low[:, None]
    return residual[each, pick] * extent**2, np.where(valid[each, pick, None], path, losses[:, -1:])


#: The paper's two convergence classes (§4.2.2), by the names that users type.
_FAMILIES = {"exponential": _exponential, "sublinear": _inverse_quadratic}


class WeightedFit(Strawman):
    """The paper's predictor (§4.2.2): fits both families with decaying weights, and uses the better fit.

    With mu or d fixed, each family is linear least squares. So a grid over that parameter and closed forms for
    the others fit all rows at once. `families` names the families to choose from: "exponential" and
    "sublinear", the paper's two convergence classes.

    The paper does not say what is forecast before there is something to fit. Here it is the strawman's straight
    line: of fewer than FEWEST_TO_FIT losses, and of losses that no curve of the families can follow.
    """

    def __init__(self, size: int = 0, families: Sequence[str] = tuple(_FAMILIES)) -> None:
        super().__init__(size)
        self.families = tuple(families)
        for family in self.families:
            if family not in _FAMILIES:
                raise UnknownNameError("family of curves", family, _FAMILIES)

    @override
    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        line = super().forecasts(rows, horizons)
        times = np.array([0.0, *horizons])
        window = self.window[rows]
        counts = self.count[rows]
        best = np.full(len(rows), np.inf)
        path = np.concatenate((line.level[:, None], line.mean), axis=1)
        for count in np.unique(counts[counts >= FEWEST_TO_FIT]).tolist():
            members = np.flatnonzero(counts == count)
            for family in self.families:
                residual, paths = _FAMILIES[family](window[members, -count:], times)
                better = residual < best[members]
                best[members[better]] = residual[better]
                path[members[better]] = paths[better]
        fitted = np.isfinite(best)[:, None]
        usual = np.sqrt(np.where(fitted[:, 0], best, 0.0))[:, None]
        deviation = np.where(fitted, NORMAL_80 * usual * np.sqrt(horizons), line.below)
        fall = np.maximum.accumulate(np.maximum(path[:, :1] - path[:, 1:], 0.0), axis=1)
        return ForecastTable(level=path[:, 0], fall=fall, below=deviation, above=deviation)
