"""Forecast losses with uncertainty: fit every curve, and average the curves by evidence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from slaq.core import curves, evidence
from slaq.core.arrays import Floats, Integers
from slaq.core.baselines import LastLoss, Strawman, WeightedFit
from slaq.core.direction import turned
from slaq.core.errors import ForecastError, UnknownNameError
from slaq.core.forecaster import Forecaster, ForecastTable, Rows, halved, pushed

#: Rows processed together: few enough that their arrays fit into the processor's cache.
CHUNK = 1024
#: Up to this many rows, copying a table for each row is faster than grouping the rows.
FEW = 128
#: Discount of the errors of the average.
MISS_DISCOUNT = 0.9
#: A loss may be an outlier or a bend only after SETTLED losses, and if it is FAR usual errors off the forecast.
SETTLED, FAR = 8, 5.0
#: The 80% interval below and above the mean, as multiples of four numbers: the noise part of the usual error
#: one iteration ahead; the rest of that error times the root of the horizon; the spread of the curves; the
#: forecast fall. `benchmarks/forecast_accuracy.py` measures the share of recorded losses inside the interval.
WIDTH_BELOW = (0.85, 0.06, 1.7, 0.15)
WIDTH_ABOVE = (1.4, 0.06, 0.2, 0.1)


class CurveForecaster(Rows, Forecaster):
    """Keeps a fixed amount of state for each row (one job), however long its history.

    `curves` in the shapes below stands for len(CURVES). Losses are kept in the job's own unit. Curves are
    compared by ratios of errors only, so scaling or shifting the losses changes no weight. `families` names the
    families whose curves are averaged; by default all of "exponential", "power" and "flat".
    """

    def __init__(self, size: int = 0, families: Sequence[str] = curves.FAMILIES) -> None:
        many = len(curves.CURVES)
        self.families = tuple(families)
        for family in self.families:
            if family not in curves.FAMILIES:
                raise UnknownNameError("family of curves", family, curves.FAMILIES)
        #: The last losses, newest last: (rows, WINDOW). Places before the first loss hold the first loss.
        self.window = np.zeros((size, curves.WINDOW))
        #: Number of losses since the start or the last bend, at most WINDOW.
        self.count = np.zeros(size, dtype=np.int64)
        #: Discounted errors of every curve one iteration ahead: (rows, curves).
        self.quick = np.zeros((size, many))
        self.slow = np.zeros((size, many))
        #: Level relative to the last loss, slope (never negative) and weight of every curve.
        self.level = np.zeros((size, many))
        self.slope = np.zeros((size, many))
        self.weight = np.zeros((size, many))
        #: Discounted changes of loss, signed and absolute: similar if the loss falls steadily, different for noise.
        self.drift = np.zeros(size)
        self.motion = np.zeros(size)
        #: Discounted sum of the errors of the average one iteration ahead, and the sum of its weights.
        self.miss = np.zeros(size)
        self.trials = np.zeros(size)
        #: Whether the last loss was far off the forecast, and its value. The next loss shows whether it was an
        #: outlier or a bend; until then the window holds the forecast in its place.
        self.suspected = np.zeros(size, dtype=bool)
        self.suspect = np.zeros(size)
        #: Number of bends, detected or announced.
        self.bends = np.zeros(size, dtype=np.int64)

    @override
    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        for start in range(0, len(rows), CHUNK):
            chunk = slice(start, start + CHUNK)
            self._learn(rows[chunk], losses[chunk], counts[chunk])
            self._fit(rows[chunk])

    @override
    def coarsen(self, rows: Integers) -> None:
        self.window[rows] = halved(self.window[rows])
        self.count[rows] = (self.count[rows] + 1) // 2
        self._fit(rows)

    @override
    def bend(self, rows: Integers) -> None:
        rows = rows[self.count[rows] > 1]
        self._restart(rows, self.window[rows, -1], known=1)
        self._fit(rows)

    @override
    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        parts = [
            self._forecasts(rows[start : start + CHUNK], horizons)
            for start in range(0, max(len(rows), 1), CHUNK)
        ]
        if len(parts) == 1:
            return parts[0]
        return ForecastTable(
            level=np.concatenate([part.level for part in parts]),
            fall=np.concatenate([part.fall for part in parts]),
            below=np.concatenate([part.below for part in parts]),
            above=np.concatenate([part.above for part in parts]),
        )

    def noise(self, rows: Integers) -> Floats:
        """Return the share of recent changes that cancelled each other: 0 for a smooth fall, near 1 for noise."""
        motion = self.motion[rows]
        return 1.0 - np.abs(self.drift[rows]) / np.where(motion > 0, motion, 1.0) * (motion > 0)

    def usual_miss(self, rows: Integers) -> Floats:
        """Return the usual error of the forecast one iteration ahead."""
        return self.miss[rows] / np.maximum(self.trials[rows], 1e-9)

    def ahead(self, rows: Integers) -> Floats:
        """Return every curve's forecast of the next loss, relative to the last loss: (rows, curves)."""
        return self.level[rows] - self.slope[rows] * curves.falls((1.0,))[self.count[rows], :, 0]

    def _learn(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        """Update the curves' errors by the first of the new losses, then put all of them into the window."""
        fresh = self.count[rows] == 0
        self.window[rows[fresh]] = losses[fresh, :1]
        ahead = self.ahead(rows)
        expected = np.einsum("rc,rc->r", self.weight[rows], ahead)
        losses = self._sift(rows, losses, counts, self.window[rows, -1] + expected)
        tried = self.count[rows] >= 2
        if tried.any():
            judged = rows[tried]
            change = losses[tried, 0] - self.window[judged, -1]
            errors = np.abs(ahead[tried] - change[:, None])
            self.quick[judged] = evidence.QUICK_DISCOUNT * self.quick[judged] + errors
            self.slow[judged] = evidence.SLOW_DISCOUNT * self.slow[judged] + errors
            self.miss[judged] = MISS_DISCOUNT * self.miss[judged] + np.abs(expected[tried] - change)
            self.trials[judged] = MISS_DISCOUNT * self.trials[judged] + 1.0
        self._move(rows, losses, counts)
        self.window[rows] = pushed(self.window[rows], losses, counts)
        self.count[rows] = np.minimum(self.count[rows] + counts, curves.WINDOW)

    def _move(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        """Update the discounted changes, by which noise is told from a steady fall."""
        changes = np.diff(losses, axis=1, prepend=self.window[rows, -1:])
        later = counts[:, None] - 1 - np.arange(losses.shape[1])
        weights = np.where(later >= 0, evidence.NOISE_DISCOUNT ** np.maximum(later, 0), 0.0)
        discount = evidence.NOISE_DISCOUNT**counts
        self.drift[rows] = discount * self.drift[rows] + np.einsum("rk,rk->r", weights, changes)
        self.motion[rows] = discount * self.motion[rows] + np.einsum("rk,rk->r", weights, np.abs(changes))

    def _sift(self, rows: Integers, losses: Floats, counts: Integers, expected: Floats) -> Floats:
        """Find outliers and bends; return the losses to put into the window.

        A loss far off the forecast may be an outlier or the first after a learning-rate drop. The next loss
        decides: if it is nearer to that loss than to the forecast, the curve has bent and restarts there; if
        not, the forecast replaces the outlier. Only the first of several new losses is tested.
        """
        first = losses[:, 0]
        off = np.abs(first - expected)
        pending = self.suspected[rows]
        usual = np.maximum(self.usual_miss(rows), (1 - evidence.NOISE_DISCOUNT) * self.motion[rows])
        far = (off > FAR * usual) & (self.count[rows] >= SETTLED) & ~pending
        suspect = self.suspect[rows]
        self.suspected[rows] = far & (counts == 1)
        self.suspect[rows] = first
        if not (far.any() or pending.any()):
            return losses
        confirmed = pending & (np.abs(first - suspect) < off)
        losses = losses.copy()
        second = losses[:, min(1, losses.shape[1] - 1)]
        bent = far & (counts > 1) & (np.abs(second - first) < np.abs(second - expected))
        losses[far & ~bent, 0] = expected[far & ~bent]
        self._restart(rows[confirmed], suspect[confirmed], known=1)
        self._restart(rows[bent], first[bent], known=0)
        return losses

    def _restart(self, rows: Integers, losses: Floats, known: int) -> None:
        """Restart the curves of these rows from one loss each; `known` says if it is already counted."""
        self.window[rows] = losses[:, None]
        self.count[rows] = known
        self.quick[rows] = 0.0
        self.slow[rows] = 0.0
        self.drift[rows] = 0.0
        self.motion[rows] = 0.0
        self.bends[rows] += 1

    def _fit(self, rows: Integers) -> None:
        """Fit every curve to the windows of these rows, and compute the weights of the curves."""
        many = len(curves.CURVES)
        window = self.window[rows]
        window -= window[:, -1:].copy()
        # Scale the losses to size 1, so that sums stay finite.
        size = np.abs(window).max(axis=1, initial=0.0, keepdims=True)
        size[size == 0.0] = 1.0
        window /= size
        fitted = np.empty((len(rows), 3 * many))
        bank = curves.filters()
        for count, members in _grouped(self.count[rows]):
            fitted[members] = window[members] @ bank[count]
        fitted *= size
        slope = fitted[:, :many]
        rising = slope <= 0.0
        self.level[rows] = np.where(rising, fitted[:, 2 * many :], fitted[:, many : 2 * many])
        self.slope[rows] = np.where(rising, 0.0, slope)
        weight = evidence.weights(self.count[rows], self.noise(rows), self.quick[rows], self.slow[rows])
        if self.families != curves.FAMILIES:
            # A small addition keeps the weights from being all zero.
            weight = np.where(curves.of(self.families), weight + 1e-12, 0.0)
            weight /= weight.sum(axis=1, keepdims=True)
        self.weight[rows] = weight

    def _forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        weight, level, slope = self.weight[rows], self.level[rows], self.slope[rows]
        bends = weight * slope
        mean_level = np.einsum("rc,rc->r", weight, level)
        apart = level - mean_level[:, None]
        table = curves.falls(horizons)
        counts = self.count[rows]
        fall, skew = _applied(np.stack((bends, bends * apart), axis=1), table, counts).swapaxes(0, 1)
        variance = _applied((bends * slope)[:, None], table**2, counts)[:, 0] - 2 * skew - fall**2
        variance += np.einsum("rc,rc->r", weight, apart**2)[:, None]
        spread = np.sqrt(np.maximum(variance, 0.0))
        miss, noise = self.usual_miss(rows)[:, None], self.noise(rows)[:, None]
        # With one loss, the only known scale is the loss itself.
        alone = (self.count[rows] == 1) & (self.trials[rows] == 0)
        last = self.window[rows, -1]
        unknown = np.where(alone, np.where(last == 0.0, 1.0, np.abs(last)), 0.0)[:, None]
        terms = (miss * noise, miss * (1.0 - noise) * np.sqrt(horizons), spread, fall)
        below = unknown + sum(width * term for width, term in zip(WIDTH_BELOW, terms, strict=True))
        above = unknown + sum(width * term for width, term in zip(WIDTH_ABOVE, terms, strict=True))
        return ForecastTable(level=last + mean_level, fall=fall, below=below, above=above)


def _applied(factors: Floats, table: Floats, counts: Integers) -> Floats:
    """Return factors[i] @ table[counts[i]] for every row: shape (rows, factors, columns)."""
    if len(counts) <= FEW:
        return np.asarray(factors @ table[counts])
    result = np.empty((len(counts), factors.shape[1], table.shape[2]))
    for count, members in _grouped(counts):
        result[members] = factors[members] @ table[count]
    return result


def _grouped(counts: Integers) -> Iterator[tuple[int, slice | Integers]]:
    """Yield each distinct count with the indices that have it."""
    if not len(counts):
        return
    if (counts == counts[0]).all():
        yield int(counts[0]), slice(None)
        return
    order = np.argsort(counts, kind="stable")
    arranged = counts[order]
    starts = np.flatnonzero(np.diff(arranged, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(counts)], strict=True):
        yield int(arranged[start]), order[start:stop]


#: Forecasters by the names that users type; `bootstrap` offers the same.
METHODS: dict[str, Callable[[int], Forecaster]] = {
    "slaq": CurveForecaster,
    "weighted-fit": WeightedFit,
    "strawman": Strawman,
    "last": LastLoss,
}
#: The most losses that are fed to a forecaster; older ones would have no weight.
MEMORY = 6 * curves.WINDOW
#: The only row of a forecaster of one curve.
ROW: Integers = np.zeros(1, dtype=np.int64)


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
    """Have an empty forecaster learn the losses at these places, one by one; return where their curve bent."""
    one = np.ones(1, dtype=np.int64)
    restarts = []
    previous = -1
    for place in places[-MEMORY:].tolist():
        # A bend announced at an ignored loss applies from the next loss on.
        if any(previous < bend <= place for bend in announced):
            forecaster.bend(ROW)
            restarts.append(place)
        bends = forecaster.bends[0]
        forecaster.observe(ROW, history[None, place : place + 1], one)
        if forecaster.bends[0] > bends:
            restarts.append(previous)  # this loss confirms that the previous one was a bend
        previous = place
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
