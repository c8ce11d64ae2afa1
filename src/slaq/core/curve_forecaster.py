"""Forecasts many jobs at once: fits every curve, averages the curves by evidence, and corrects their average."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.core import curves, evidence
from slaq.core.arrays import Booleans, Floats, Integers, Singles
from slaq.core.errors import UnknownNameError
from slaq.core.forecaster import Forecaster, ForecastTable, Rows, halved, highest, picked, pushed
from slaq.core.one_thread import in_one_thread

#: Rows processed together: few enough that their arrays fit into the processor's cache, and enough that the calls
#: of NumPy cost little.
CHUNK = 1400
#: Discount of the errors of the average.
MISS_DISCOUNT = 0.9
#: A loss may be an outlier or a bend only after SETTLED losses, and if it is FAR usual errors off the forecast.
SETTLED, FAR = 8, 5.0
#: Misses as those of the past count in full after REPEATED iterations, in part before; PACE says how soon.
REPEATED, PACE = 10.0, 8.0
#: Discount of the absolute misses of `curves.PAST`.
OFF_DISCOUNT = 0.85
#: By how much the logarithm of a half of the interval grows when a loss lies outside of it; and when one lies
#: inside, it shrinks so that it stays as it is if OUTSIDE of the losses lie outside on that side.
STEP, OUTSIDE = 0.12, 0.1
#: The most that the logarithm of a half changes in this way.
MOST_STRETCH = 1.5
#: An error of a curve, in sizes of the window, counts as no more than this, so that single precision holds it.
MOST_ERROR = 1e30


@dataclass(frozen=True, slots=True)
class Fits:
    """Every curve fitted to the windows of some rows, relative to their last loss and in units of their size."""

    #: The largest distance of a loss in the window from the last; 1 where all are equal.
    size: Floats
    #: Level and slope (never negative) now: (rows, curves).
    level: Singles
    slope: Singles
    #: The last loss less what the curve would have forecast for it at each of `curves.PAST`: (rows, curves); zero
    #: for jobs that had too few losses then.
    missed: tuple[Singles, ...]


class CurveForecaster(Rows, Forecaster):
    """Keeps a fixed amount of state for each row (one job), however long its history.

    `curves` in the shapes below stands for len(CURVES). Errors, levels and slopes are kept in units of the row's
    size, in single precision. Curves are compared by ratios of errors only, so scaling or shifting the losses
    changes no weight. `families` names the families whose curves are averaged; by default all of "exponential",
    "power", "accelerating" and "flat".
    """

    def __init__(self, size: int = 0, families: Sequence[str] = curves.FAMILIES) -> None:
        self.families = tuple(families)
        for family in self.families:
            if family not in curves.FAMILIES:
                raise UnknownNameError("family of curves", family, curves.FAMILIES)
        single = (size, curves.MANY)
        #: The last losses, newest last: (rows, WINDOW). Places before the first loss hold the first loss.
        self.window = np.zeros((size, curves.WINDOW))
        #: Number of losses since the start or the last bend, at most OLDEST.
        self.count = np.zeros(size, dtype=np.int64)
        #: The unit of the next five.
        self.size = np.ones(size)
        #: Discounted errors of every curve one iteration ahead: (rows, curves).
        self.quick = np.zeros(single, dtype=np.float32)
        self.slow = np.zeros(single, dtype=np.float32)
        #: Level relative to the last loss, slope (never negative) and weight of every curve.
        self.level = np.zeros(single, dtype=np.float32)
        self.slope = np.zeros(single, dtype=np.float32)
        self.weight = np.zeros(single, dtype=np.float32)
        #: How far the last loss is above what the average would have forecast for it at each of `curves.PAST`.
        self.missed = np.zeros((size, len(curves.PAST)))
        #: How far above the average the loss REPEATED iterations ahead is expected to be, after these misses.
        self.bias = np.zeros(size)
        #: Discounted sums of these misses, made absolute, and the sums of their weights.
        self.off = np.zeros((size, len(curves.PAST)))
        self.tests = np.zeros((size, len(curves.PAST)))
        #: The logarithms by which the interval is wider below and above than that of other jobs.
        self.stretch = np.zeros((size, 2))
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
    @in_one_thread
    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        for start in range(0, len(rows), CHUNK):
            chunk = slice(start, start + CHUNK)
            self._learn(rows[chunk], losses[chunk], counts[chunk])
            self._fit(rows[chunk])
            self.recall(rows[chunk])

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
    @in_one_thread
    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        level, spans = np.empty(len(rows)), np.empty((3, len(horizons), len(rows)))
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            members = np.argsort(self._keys(chunk), kind="stable")
            part = self._forecasts(chunk[members], horizons)
            members += start
            level[members] = part.level
            for span, of_part in zip(spans, (part.fall, part.below, part.above), strict=True):
                span[:, members] = of_part.T
        fall, below, above = (span.T for span in spans)
        return ForecastTable(level=level, fall=fall, below=below, above=above)

    def noise(self, rows: Integers) -> Floats:
        """Return the share of recent changes that cancelled each other: 0 for a smooth fall, near 1 for noise."""
        motion = self.motion[rows]
        return 1.0 - np.abs(self.drift[rows]) / np.where(motion > 0, motion, 1.0) * (motion > 0)

    def usual_miss(self, rows: Integers) -> Floats:
        """Return the usual error of the forecast one iteration ahead."""
        return self.miss[rows] / np.maximum(self.trials[rows], 1e-9)

    def ahead(self, rows: Integers) -> Singles:
        """Return every curve's forecast of the next loss, relative to the last, in sizes: (rows, curves)."""
        falls = curves.falls((1.0,))[self._keys(rows), :, 0]
        falls *= self.slope[rows]
        return np.subtract(self.level[rows], falls, out=falls)

    def expected(self, rows: Integers) -> Floats:
        """Return the change expected from the last loss to the next."""
        return _averaged(self.weight[rows], self.ahead(rows)) * self.size[rows]

    def far(self, rows: Integers, off: Floats) -> Booleans:
        """Return which of these rows' next losses, so far off what was expected, may be outliers or bends."""
        usual = np.maximum(self.usual_miss(rows), (1 - evidence.NOISE_DISCOUNT) * self.motion[rows])
        return np.asarray((off > FAR * usual) & (self.count[rows] >= SETTLED))

    def _keys(self, rows: Integers) -> NDArray[np.int16]:
        return curves.keys(np.maximum(self.count[rows], 1))

    def _learn(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        """Update the curves' errors by the first of the new losses, then put all of them into the window."""
        fresh = self.count[rows] == 0
        self.window[rows[fresh]] = losses[fresh, :1]
        self.size[rows[fresh]] = 1.0
        ahead, size = self.ahead(rows), self.size[rows]
        weight = self.weight[rows]
        expected = _averaged(weight, ahead) * size
        tried = self.count[rows] >= 2
        halves = np.stack(self.next_halves(rows, weight, ahead), axis=1)
        self._widen(rows[tried], (losses[:, 0] - self.window[rows, -1] - expected)[tried], halves[tried])
        losses = self._sift(rows, losses, counts, self.window[rows, -1] + expected)
        tried &= self.count[rows] >= 2
        change = losses[:, 0] - self.window[rows, -1]
        ahead -= (change / size).clip(-MOST_ERROR, MOST_ERROR).astype(np.float32)[:, None]
        np.abs(ahead, out=ahead)
        ahead[~tried] = 0.0
        for errors, discount in ((self.quick, evidence.QUICK_DISCOUNT), (self.slow, evidence.SLOW_DISCOUNT)):
            summed = errors[rows]
            summed *= np.float32(discount)
            summed += ahead
            errors[rows] = summed
        judged = rows[tried]
        self.miss[judged] = MISS_DISCOUNT * self.miss[judged] + np.abs(expected - change)[tried]
        self.trials[judged] = MISS_DISCOUNT * self.trials[judged] + 1.0
        self._move(rows, losses, counts)
        self.window[rows] = pushed(self.window[rows], losses, counts)
        self.count[rows] = np.minimum(self.count[rows] + counts, curves.OLDEST)

    def _widen(self, rows: Integers, off: Floats, halves: Floats) -> None:
        """Follow the share of losses outside of the interval, given how far off the next ones are."""
        stretch = self.stretch[rows]
        outside = np.stack((-off, off), axis=1) > np.exp(stretch) * halves
        moved = stretch + STEP * (outside - OUTSIDE)
        self.stretch[rows] = moved.clip(-MOST_STRETCH, MOST_STRETCH)

    def next_halves(self, rows: Integers, weight: Singles, ahead: Singles) -> tuple[Floats, Floats]:
        """Return the widths of the interval of the next loss, before they are stretched."""
        expected, size = _averaged(weight, ahead), self.size[rows]
        apart = ahead - expected.astype(np.float32)[:, None]
        apart *= apart
        spread = np.sqrt(_averaged(weight, apart)) * size
        fall = np.maximum(-expected, 0.0) * size
        below, above = self._halves(rows, (1.0,), spread[:, None], fall[:, None])
        return below[:, 0], above[:, 0]

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
        far = self.far(rows, off) & ~pending
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

    def fits(self, rows: Integers) -> Fits:
        """Fit every curve to the windows of these rows, ordered by key, now and as of each of `curves.PAST`."""
        window = picked(self.window, rows)
        window -= window[:, -1:].copy()
        # Scale the losses to size 1, so that sums stay finite.
        size = highest(np.abs(window))
        size[size == 0.0] = 1.0
        singles = np.empty(window.shape, dtype=np.float32)
        np.divide(window, size[:, None], out=singles, casting="same_kind")
        fitted = np.empty((curves.ROWS, len(rows)), dtype=np.float32)
        for key, members in _grouped(self._keys(rows)):
            bank = curves.filters(key)
            np.matmul(bank, singles[members, -bank.shape[1] :].T, out=fitted[:, members])
        slope = fitted[curves.SLOPES]
        np.maximum(slope, 0.0, out=slope)
        level, *missed = (fitted[ahead] for ahead in curves.AHEAD)
        for ahead, means in zip((level, *missed), curves.MEAN, strict=True):
            for run in curves.RUNS:
                # A curve that rises is flat, and a flat one forecasts its mean.
                part = ahead[run.curves]
                np.minimum(part, fitted[means][run.mean], out=part)
        for least in missed:
            np.negative(least, out=least)
        return Fits(size, level.T, slope.T, tuple(least.T for least in missed))

    def errors(self, rows: Integers, fits: Fits) -> tuple[Singles, ...]:
        """Return the errors of the curves that `evidence.weights` compares."""
        return (picked(self.quick, rows), picked(self.slow, rows), *map(np.abs, fits.missed))

    def _fit(self, rows: Integers) -> None:
        """Fit every curve to the windows of these rows, and compute the weights of the curves."""
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            self._fit_ordered(chunk[np.argsort(self._keys(chunk), kind="stable")])

    def _fit_ordered(self, rows: Integers) -> None:
        fits = self.fits(rows)
        with np.errstate(over="ignore"):
            rescale = np.minimum(self.size[rows] / fits.size, MOST_ERROR).astype(np.float32)[:, None]
        grown = bool((rescale > 1.0).any())
        for errors in (self.quick, self.slow):
            scaled = picked(errors, rows)
            scaled *= rescale
            errors[rows] = np.minimum(scaled, MOST_ERROR, out=scaled) if grown else scaled
        self.size[rows], self.level[rows], self.slope[rows] = fits.size, fits.level, fits.slope
        self.weigh(rows, fits)

    def weigh(self, rows: Integers, fits: Fits) -> None:
        """Compute the weights of the curves, and from what their average missed its bias."""
        mixed = evidence.mixture(self.count[rows], self.noise(rows))
        weight = evidence.weights(mixed, self.errors(rows, fits))
        if self.families != curves.FAMILIES:
            # A small addition keeps the weights from being all zero.
            weight = np.where(curves.of(self.families), weight + np.float32(1e-12), 0.0)
            weight /= weight.sum(axis=1, keepdims=True)
        missed = np.stack([_averaged(weight, missed) for missed in fits.missed], axis=1)
        self.weight[rows] = weight
        self.missed[rows] = missed * fits.size[:, None]
        self.bias[rows] = ((mixed @ evidence.TRUST) * missed).sum(axis=1) * fits.size

    def recall(self, rows: Integers) -> None:
        """Update the usual misses of `curves.PAST` by the last ones, where there were losses enough."""
        tested = self.tested(rows)
        discount, missed = np.where(tested, OFF_DISCOUNT, 1.0), self.missed[rows]
        for summed, news in ((self.off, np.abs(missed)), (self.tests, tested)):
            summed[rows] = discount * summed[rows] + news

    def tested(self, rows: Integers) -> Booleans:
        """Return for which of `curves.PAST` there were losses enough: (rows, pasts)."""
        return np.asarray(self.count[rows, None] - np.array(curves.PAST) >= 2)

    def _forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        size = self.size[rows]
        level, fall, spread = self.average(rows, (*horizons, REPEATED))
        fall, usual, spread = fall[:, :-1] * size[:, None], fall[:, -1] * size, spread[:, :-1] * size[:, None]
        # A bias takes away the whole fall at most, and doubles it at most.
        bias = np.divide(self.bias[rows], usual, out=np.zeros(len(rows)), where=usual > 0)
        fall *= 1.0 - bias.clip(-1.0, 1.0)[:, None]
        last = self.window[rows, -1]
        below, above = self._halves(rows, horizons, spread, fall, np.exp(self.stretch[rows]))
        # With one loss, the only known scale is the loss itself.
        alone = ((self.count[rows] == 1) & (self.trials[rows] == 0)).nonzero()[0]
        if len(alone):
            unknown = np.where(last[alone] == 0.0, 1.0, np.abs(last[alone]))
            below[alone] += unknown[:, None]
            above[alone] += unknown[:, None]
        return ForecastTable(level=last + level * size, fall=fall, below=below, above=above)

    def _halves(
        self,
        rows: Integers,
        horizons: tuple[float, ...],
        spread: Floats,
        fall: Floats,
        stretch: Floats | None = None,
    ) -> Iterator[Floats]:
        """Yield the widths of the 80% interval below and above the mean: multiples of `terms`, by the tables.

        They are stretched by the columns of `stretch`.
        """
        noise = self.noise(rows)
        mixed = evidence.mixture(self.count[rows], noise)
        steady, growing, coming_again = self.terms(rows, noise)
        basis = np.stack((np.ones(len(horizons)), np.sqrt(horizons), coming(horizons)), axis=1)
        for side, table in enumerate((evidence.BELOW, evidence.ABOVE)):
            times = (mixed @ table).T.astype(np.float64)
            if stretch is not None:
                times *= stretch[:, side]
            again = (times[2:4] * coming_again.T).sum(axis=0)
            half = basis @ np.stack((times[0] * steady, times[1] * growing, again))
            half += times[4] * spread.T
            half += times[5] * fall.T
            yield half.T

    def terms(self, rows: Integers, noise: Floats) -> tuple[Floats, Floats, Floats]:
        """Return what of the interval stays, what grows with the root of the horizon, and what comes as bias does.

        The first two are the noise part of the usual error one iteration ahead and the rest of that error; the
        third are the usual misses of `curves.PAST`: (rows, pasts).
        """
        miss = self.usual_miss(rows)
        off = self.off[rows] / np.maximum(self.tests[rows], 1e-9)
        return miss * noise, miss * (1.0 - noise), off

    def average(self, rows: Integers, horizons: tuple[float, ...]) -> tuple[Floats, Floats, Floats]:
        """Return the mean level, the mean fall and the spread of the curves at these horizons, in sizes."""
        weight, level, slope = (picked(kept, rows) for kept in (self.weight, self.level, self.slope))
        middle = _averaged(weight, level)
        # The slopes, and their products with how far each level is off the mean: weighted, side by side.
        linear = np.empty((len(rows), 2, curves.MANY), dtype=np.float32)
        bends = np.multiply(weight, slope, out=linear[:, 0])
        apart = np.subtract(level, middle[:, None].astype(np.float32), out=level)
        np.multiply(bends, apart, out=linear[:, 1])
        apart *= apart
        still = _averaged(weight, apart)
        slope *= bends
        by_row = np.empty((len(horizons), len(rows), 2), dtype=np.float32)
        square = np.empty((len(horizons), len(rows)), dtype=np.float32)
        table, squares = curves.falls(horizons), curves.squared_falls(horizons)
        for key, members in _grouped(self._keys(rows)):
            both = linear[members].reshape(-1, curves.MANY)
            by_row[:, members] = (table[key].T @ both.T).reshape(len(horizons), -1, 2)
            np.matmul(squares[key].T, slope[members].T, out=square[:, members])
        means: Floats = by_row[:, :, 0].astype(np.float64)
        variance: Floats = square + still
        variance -= 2.0 * by_row[:, :, 1]
        variance -= means * means
        np.sqrt(np.maximum(variance, 0.0, out=variance), out=variance)
        return middle, means.T, variance.T


def coming(horizons: tuple[float, ...]) -> Floats:
    """Return the share of a past miss that there is room for at each horizon: 1 at REPEATED, never much more."""
    return np.asarray(np.expm1(-np.array(horizons) / PACE) / np.expm1(-REPEATED / PACE))


def _averaged(weight: Singles, values: Singles) -> Floats:
    """Return the weighted mean over the curves."""
    return np.asarray(np.einsum("rc,rc->r", weight, values), dtype=np.float64)


def _grouped(keys: NDArray[np.int16]) -> Iterator[tuple[int, slice]]:
    """Yield each distinct key, of ascending keys, with the slice of those that have it."""
    bounds = [*np.flatnonzero(np.diff(keys, prepend=-1)).tolist(), len(keys)]
    for start, stop in pairwise(bounds):
        yield int(keys[start]), slice(start, stop)
