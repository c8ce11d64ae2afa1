"""The interface of forecasters, and the windows of recent losses that they share."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from slaq.core.arrays import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTable:
    """The forecasts of some jobs in their own loss: one row per job, one column per horizon."""

    #: The present loss, smoothed by the forecaster.
    level: Floats
    #: The forecast fall below `level`; never negative.
    fall: Floats
    #: The widths of the 80% interval below and above the mean; never negative.
    below: Floats
    above: Floats

    @property
    def mean(self) -> Floats:
        """The forecast loss."""
        return self.level[:, None] - self.fall

    def take(self, jobs: Integers | slice) -> "ForecastTable":
        """Return the forecasts of these jobs only."""
        return ForecastTable(
            level=self.level[jobs], fall=self.fall[jobs], below=self.below[jobs], above=self.above[jobs]
        )


class Forecaster(Protocol):
    """Forecasts many jobs at once, one row per job.

    Scaling or shifting a job's losses scales or shifts its forecasts in the same way. Every number is finite for
    any finite losses. The cost of a job does not depend on the length of its history.
    """

    #: Number of bends of each row's curve, detected or announced.
    bends: Integers

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the whole state as arrays by name, with one row per job."""
        ...

    def resize(self, size: int) -> None:
        """Resize to `size` rows, and keep the existing ones."""
        ...

    def clear(self, rows: Integers) -> None:
        """Clear these rows for new jobs."""
        ...

    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        """Add new finite losses, oldest first: the first `counts[i]` (one or more) of `losses[i]` to `rows[i]`.

        No row occurs twice. Values beyond a row's count are ignored.
        """
        ...

    def bend(self, rows: Integers) -> None:
        """Restart the curves here, such as after a new learning rate."""
        ...

    def coarsen(self, rows: Integers) -> None:
        """Replace every two losses by their mean; later losses are means of equally many iterations."""
        ...

    def forecasts(self, rows: Integers, horizons: tuple[float, ...]) -> ForecastTable:
        """Return the forecasts at these horizons (in iterations) of rows that have at least one loss."""
        ...


#: The maximum of rows with more columns is taken over their halves first.
FEW_COLUMNS = 16

Element = TypeVar("Element", bound=np.generic)


def enlarged(array: NDArray[Element], size: int) -> NDArray[Element]:
    """Return the array with `size` rows, the new ones zero."""
    larger = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def picked(array: NDArray[Element], rows: Integers) -> NDArray[Element]:
    """Return a copy of these rows, which must be there: `array[rows]`, in half the time."""
    return array.take(rows, axis=0, mode="clip")


def highest(table: Floats) -> Floats:
    """Return the maximum of each row: `table.max(axis=1)`, in two thirds of the time."""
    while table.shape[1] > FEW_COLUMNS:
        half = -(-table.shape[1] // 2)
        table = np.maximum(table[:, :half], table[:, -half:])
    return np.asarray(np.ascontiguousarray(table.T).max(axis=0))


def pushed(window: Floats, losses: Floats, counts: Integers) -> Floats:
    """Return the windows, newest last, with the first `counts[i]` of `losses[i]` appended."""
    width = window.shape[1]
    joined = np.concatenate((window, losses), axis=1)
    if losses.shape[1] == 1:
        return joined[:, 1:]
    return np.take_along_axis(joined, counts[:, None] + np.arange(width), axis=1)


def halved(window: Floats) -> Floats:
    """Return the windows with each two losses, counted from the newest, replaced by their mean.

    The older half holds the oldest mean, as windows do before the first loss.
    """
    means = (window[:, ::2] + window[:, 1::2]) / 2
    return np.concatenate((np.repeat(means[:, :1], means.shape[1], axis=1), means), axis=1)


class Rows:
    """A group of arrays with one row per job, resized and cleared together."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return every array of this object by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def resize(self, size: int) -> None:
        """Resize to `size` rows, and keep the existing ones."""
        for name, array in self.arrays().items():
            setattr(self, name, enlarged(array, size))

    def clear(self, rows: Integers) -> None:
        """Set these rows to zero."""
        for array in self.arrays().values():
            array[rows] = 0
