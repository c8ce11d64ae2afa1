"""Forecast one loss curve with uncertainty, by any of the methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from slaq.core import curves
from slaq.core.arrays import Floats, Integers
from slaq.core.baselines import LastLoss, Strawman, WeightedFit
from slaq.core.curve_forecaster import CurveForecaster
from slaq.core.direction import turned
from slaq.core.errors import ForecastError, UnknownNameError
from slaq.core.forecaster import Forecaster
from slaq.core.history import ROW, read
from slaq.core.one_thread import in_one_thread

__all__ = ["METHODS", "ROW", "CurveForecaster", "Forecast", "feed", "forecast"]

#: Forecasters by the names that users type; `bootstrap` offers the same.
METHODS: dict[str, Callable[[int], Forecaster]] = {
    "slaq": CurveForecaster,
    "weighted-fit": WeightedFit,
    "strawman": Strawman,
    "last": LastLoss,
}
#: The most losses that are fed to a forecaster; older ones would have no weight.
MEMORY = 6 * curves.WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted losses with their uncertainty; one element per horizon."""

    #: Iterations ahead of the last loss.
    horizons: Integers
    mean: Floats
    #: The ends of the 80% interval.
    low: Floats
    high: Floats
    #: Indices of losses that are NaN or infinite and were ignored.
    ignored: tuple[int, ...]
    #: Indices of losses at which the curve bent (detected or announced) and the forecast restarted.
    restarts: tuple[int, ...]


@in_one_thread
def forecast(
    losses: Sequence[float] | Floats,
    horizons: int | Sequence[int],
    *,
    announced: Sequence[int] = (),
    method: str = "slaq",
    maximize: bool = False,
) -> Forecast:
    """Predict the losses `horizons` iterations ahead; with `maximize` they are numbers that should rise.

    `announced` holds the indices in `losses` from which a new learning rate applied. Losses that are not finite
    are ignored and listed in `ignored`.
    """
    if method not in METHODS:
        raise UnknownNameError("forecasting method", method, METHODS)
    steps, history = _checked_horizons(horizons), turned(_checked_losses(losses), maximize)
    finite = np.isfinite(history)
    # Scale the losses to size 1, so that no square overflows.
    size = np.abs(history[finite]).max() or 1.0
    history = history / size
    forecaster = METHODS[method](1)
    outside = [place for place in announced if not 0 <= place < len(history)]
    if outside:
        raise ForecastError(
            f"a bend was announced at index {outside[0]}; give an index from 0 to {len(history) - 1}"
        )
    restarts = feed(forecaster, history, np.flatnonzero(finite), announced)
    forecasts = forecaster.forecasts(ROW, tuple(float(step) for step in steps))
    mean = forecasts.mean[0]
    ends = np.stack((mean, mean - forecasts.below[0], mean + forecasts.above[0]))
    most = np.finfo(float).max
    scaled = np.clip(ends, -most / size, most / size) * size if size > 1 else ends * size
    mean, *interval = turned(scaled, maximize)
    return Forecast(
        horizons=steps,
        mean=mean,
        low=np.minimum(*interval),
        high=np.maximum(*interval),
        ignored=tuple(np.flatnonzero(~finite).tolist()),
        restarts=tuple(restarts),
    )


def feed(
    forecaster: Forecaster, history: Floats, places: Integers, announced: Sequence[int] = ()
) -> list[int]:
    """Have an empty forecaster learn the losses at these places in turn; return where their curve bent."""
    places = places[-MEMORY:]
    restarts: list[int] = []
    # A bend announced at an ignored loss applies from the next loss on.
    begun = np.searchsorted(places, np.array(announced, dtype=np.int64)).tolist()
    starts = sorted({start for start in begun if start < len(places)})
    for start, stop in pairwise([0, *starts, len(places)]):
        if start in starts:
            forecaster.bend(ROW)
            restarts.append(int(places[start]))
        # The loss that confirms a bend is the one after it.
        restarts += [int(places[start + bent - 1]) for bent in read(forecaster, history[places[start:stop]])]
    return restarts


def _checked_horizons(horizons: int | Sequence[int]) -> Integers:
    steps = np.atleast_1d(np.asarray(horizons))
    if steps.ndim != 1 or not len(steps) or not np.issubdtype(steps.dtype, np.integer) or steps.min() < 1:
        raise ForecastError(
            f"horizons must be whole numbers from 1, such as 10 or [1, 5, 10], not {horizons!r}"
        )
    return steps.astype(np.int64)


def _checked_losses(losses: Sequence[float] | Floats) -> Floats:
    try:
        history = np.asarray(losses, dtype=float)
    except (TypeError, ValueError):
        raise ForecastError("losses must be one list of numbers, such as [0.9, 0.7, 0.6]") from None
    if history.ndim != 1:
        raise ForecastError(f"losses must be one list of numbers, not an array of shape {history.shape}")
    if not np.isfinite(history).any():
        raise ForecastError("losses has no finite number; give at least one")
    return history
