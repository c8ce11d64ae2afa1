"""What an iteration costs, learned online, and how many of them an epoch holds at n units."""

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecaster import Rows

#: How fast a cost follows new observations, and how far one of them may pull it.
RATE, CLIP = 0.2, 3.0
#: CPU seconds that any iteration takes: a clock may be too coarse to tell, or a report not say.
LEAST = 1e-6
#: A first iteration this many times as long as the second was warming up.
WARM_UP = 1.5
#: Observations, and the share of an iteration's time, from which a serial part is believed.
SERIAL_AFTER, SERIAL_SHARE = 3, 0.05


class RuntimeModel(Rows):
    """One iteration at n units takes  serial + cpu / min(n, max)  seconds.

    The paper's c*S/N (§4.2.1) is the case without a serial part, and is what is used until iterations
    prove to take longer than their CPU time on the units held explains. One row per job.
    """

    def __init__(self, size: int = 0) -> None:
        #: CPU seconds per iteration, and seconds per iteration that no unit shortens.
        self.cpu = np.zeros(size)
        self.serial = np.zeros(size)
        #: Iterations seen.
        self.seen = np.zeros(size, dtype=np.int64)

    def observe(self, rows: Integers, cpu_seconds: Floats, wall_seconds: Floats, held: Floats) -> None:
        """Learn from one iteration of each row, during which it held so many unit seconds."""
        cpu_seconds = np.maximum(cpu_seconds, LEAST)
        known = self.cpu[rows]
        seen = self.seen[rows]
        clipped = np.clip(cpu_seconds, known / CLIP, known * CLIP)
        learned = known + RATE * (clipped - known)
        warming_up = (seen == 1) & (known > WARM_UP * cpu_seconds)
        self.cpu[rows] = np.where((seen == 0) | warming_up, cpu_seconds, learned)
        mean_units = held / np.maximum(wall_seconds, 1e-12)
        explained = cpu_seconds / np.maximum(mean_units, 1e-12)
        idle = np.clip(wall_seconds - explained, 0.0, None) * (mean_units > 0)
        self.serial[rows] += np.maximum(RATE, 1.0 / (seen + 1)) * (idle - self.serial[rows])
        self.seen[rows] = seen + 1

    def seconds(self, rows: Integers, cpu: Floats, units: Floats) -> Floats:
        """Return seconds per iteration: rows by columns of `units`; infinite at none."""
        with np.errstate(divide="ignore"):
            parallel = cpu[:, None] / units
        serial = self.serial[rows, None]
        believed = (self.seen[rows, None] >= SERIAL_AFTER) & (serial > SERIAL_SHARE * parallel)
        return parallel + np.where(believed, serial, 0.0)

    def steady_seconds(self, rows: Integers, cpu: Floats, units: Floats) -> Floats:
        """Return seconds per iteration as `seconds` does, but never more with more units.

        For looking far ahead: a serial part counts however small it is beside the rest.
        """
        parallel = np.full(units.shape, np.inf)
        with np.errstate(over="ignore"):
            np.divide(cpu[:, None], units, out=parallel, where=units > 1e-9)
        return parallel + self.steady_serial(rows)[:, None]

    def steady_serial(self, rows: Integers) -> Floats:
        """Return the seconds per iteration that no unit shortens, once they are known."""
        return np.where(self.seen[rows] >= SERIAL_AFTER, self.serial[rows], 0.0)

    def known(self, rows: Integers) -> Booleans:
        """Return for which rows a cost has been observed."""
        return self.seen[rows] > 0
