"""Where a training stands in its data, and the order of the samples in each pass: pure functions of the seed."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from slaq.elastic_training.update import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a training has come: every sample before it was used once a pass, none after it."""

    #: Updates made, whole passes made, and samples used of the present pass.
    updates: int = 0
    passes: int = 0
    offset: int = 0

    def work(self, samples: int, *, batch: int, size: int, multiple: int = 1) -> Work:
        """Return the next update: at most `multiple` times `batch` samples, in micro-batches of at most `size`.

        The last batch of a pass is short, and cut into as few micro-batches as hold it: cut into as many as a
        whole batch, it could have micro-batches of a single sample, of which batch normalisation cannot learn.
        """
        taken = min(batch * multiple, samples - self.offset)
        return Work(
            update=self.updates,
            passed=self.passes,
            offset=self.offset,
            samples=taken,
            micro_batches=-(-taken // size),
            multiple=multiple,
        )

    def after(self, work: Work, samples: int) -> "Position":
        """Return the position once an update was made."""
        offset = work.offset + work.samples
        if offset < samples:
            return replace(self, updates=self.updates + 1, offset=offset)
        return Position(updates=self.updates + 1, passes=self.passes + 1)


@lru_cache(maxsize=2)
def order(seed: int, passed: int, samples: int) -> NDArray[np.int64]:
    """Return the order of the samples in a pass.

    NumPy promises the stream of its old generator for all versions, and that of its new ones for none.
    """
    words = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, passed & 0xFFFFFFFF]
    return np.random.RandomState(words).permutation(samples)
