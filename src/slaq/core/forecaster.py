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


class Forecaster(Protocol):
    """Follows many jobs at once, each in a row of its own.

    Scaling or shifting a job's losses scales or shifts its outlook alike. Every number is finite for any
    finite losses. What a job costs does not depend on how long its history is.
    """

    #: How often each row's curve was found, or announced, to bend.
    bends: Integers

    def resize(self, size: int) -> None:
        """Make room for `size` rows, keeping those there are."""
        ...

    def clear(self, rows: Integers) -> None:
        """Forget these rows, so that new jobs can have them."""
        ...

    def observe(self, rows: Integers, losses: Floats) -> None:
        """Take in one new, finite loss for each of these rows; no row is named twice."""
        ...

    def bend(self, rows: Integers) -> None:
        """Take note that the curve changes course here, such as by a new learning rate."""
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
