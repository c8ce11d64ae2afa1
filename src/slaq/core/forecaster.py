"""What every forecaster offers, and the windows of recent losses they share."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from slaq.core.arrays import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Where jobs are heading: one row per job, one column per horizon, in each job's own loss."""

    #: The loss as it stands now, freed of noise as far as the forecaster can.
    level: Floats
    #: How far the loss is forecast to fall below `level`; never negative.
    fall: Floats
    #: From the mean down and up to the ends of the 80% interval; never negative.
    below: Floats
    above: Floats

    @property
    def mean(self) -> Floats:
        """The forecast itself."""
        return self.level[:, None] - self.fall

    def take(self, jobs: Integers) -> "Outlook":
        """Return the outlook of these jobs alone."""
        return Outlook(
            level=self.level[jobs], fall=self.fall[jobs], below=self.below[jobs], above=self.above[jobs]
        )


class Forecaster(Protocol):
    """Follows many jobs at once, each in a row of its own.

    Scaling or shifting a job's losses scales or shifts its outlook alike. Every number is finite for any
    finite losses. What a job costs does not depend on how long its history is.
    """

    #: How often each row's curve was found, or announced, to bend.
    bends: Integers

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that is known, by name: arrays with one row per job."""
        ...

    def resize(self, size: int) -> None:
        """Make room for `size` rows, keeping those there are."""
        ...

    def clear(self, rows: Integers) -> None:
        """Forget these rows, so that new jobs can have them."""
        ...

    def observe(self, rows: Integers, losses: Floats, counts: Integers) -> None:
        """Take in new, finite losses, oldest first: `counts[i]` of `losses[i]` for `rows[i]`, one or more.

        No row is named twice. What stands behind a row's count is passed over.
        """
        ...

    def bend(self, rows: Integers) -> None:
        """Take note that the curve changes course here, such as by a new learning rate."""
        ...

    def coarsen(self, rows: Integers) -> None:
        """Count every two of the losses known so far as one, their mean: later ones are means of as many."""
        ...

    def outlook(self, rows: Integers, horizons: tuple[float, ...]) -> Outlook:
        """Return the outlook of rows that have at least one loss, this many iterations ahead."""
        ...


Element = TypeVar("Element", bound=np.generic)


def enlarged(array: NDArray[Element], size: int) -> NDArray[Element]:
    """Return the array with `size` rows, the new ones zero."""
    larger = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def pushed(window: Floats, losses: Floats, counts: Integers) -> Floats:
    """Return the windows, newest last, moved on by `counts[i]` of `losses[i]`."""
    width = window.shape[1]
    joined = np.concatenate((window, losses), axis=1)
    if losses.shape[1] == 1:
        return joined[:, 1:]
    return np.take_along_axis(joined, counts[:, None] + np.arange(width), axis=1)


def halved(window: Floats) -> Floats:
    """Return the windows with each two losses, counted from the newest, replaced by their mean.

    The older half repeats the oldest mean, as windows do before the first loss.
    """
    means = (window[:, ::2] + window[:, 1::2]) / 2
    return np.concatenate((np.repeat(means[:, :1], means.shape[1], axis=1), means), axis=1)


class Rows:
    """Arrays that have one row per job, resized and cleared together."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return every array of this object by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def resize(self, size: int) -> None:
        """Make room for `size` rows, keeping those there are."""
        for name, array in self.arrays().items():
            setattr(self, name, enlarged(array, size))

    def clear(self, rows: Integers) -> None:
        """Set these rows to zero."""
        for array in self.arrays().values():
            array[rows] = 0
