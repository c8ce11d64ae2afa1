"""The cost of an iteration, learned online, and the iterations that fit into an epoch at n cores."""

import numpy as np

from slaq.core.arrays import Booleans, Floats, Integers
from slaq.core.forecaster import Rows

#: The weight of a new observation, and the most by which one may differ from the mean, as a factor.
RATE, CLIP = 0.2, 3.0
#: The least CPU seconds of an iteration, for clocks that are too coarse and reports without a time.
LEAST = 1e-6
#: A first iteration this many times as long as the second is taken for a warm-up.
WARM_UP = 1.5
#: A serial part is used only after this many observations, and above this share of an iteration's time.
SERIAL_AFTER, SERIAL_SHARE = 3, 0.05


class RuntimeModel(Rows):
    """One iteration at n cores takes  serial + cpu / min(n, max)  seconds.

    The paper's c*S/N (§4.2.1) is the case without a serial part. It is used until iterations are seen to take
    longer than their CPU time divided by the cores held. Where n workers are worth fewer than n, because each adds
    to the batch and larger batches say less per sample, an iteration takes 1 + (n - 1) / worth times the CPU time
    of one worker, and `cpu` is that of one. One row per job.
    """

    def __init__(self, size: int = 0) -> None:
        #: CPU seconds per iteration, and serial seconds per iteration, which more cores do not shorten.
        self.cpu = np.zeros(size)
        self.serial = np.zeros(size)
        #: 1 / worth of the workers of a job (`Demand.worth`); 0 where n are worth n.
        self.waste = np.zeros(size)
        #: Number of iterations observed.
        self.seen = np.zeros(size, dtype=np.int64)

    def observe(self, rows: Integers, cpu_seconds: Floats, wall_seconds: Floats, held: Floats) -> None:
        """Learn from one iteration of each row, during which the job held `held` core seconds."""
        mean_cores = held / np.maximum(wall_seconds, 1e-12)
        explained = np.maximum(cpu_seconds, LEAST) / np.maximum(mean_cores, 1e-12)
        cpu_seconds = np.maximum(cpu_seconds / self._dearer(rows, mean_cores), LEAST)
        known = self.cpu[rows]
        seen = self.seen[rows]
        clipped = np.clip(cpu_seconds, known / CLIP, known * CLIP)
        learned = known + RATE * (clipped - known)
        warming_up = (seen == 1) & (known > WARM_UP * cpu_seconds)
        self.cpu[rows] = np.where((seen == 0) | warming_up, cpu_seconds, learned)
        idle = np.clip(wall_seconds - explained, 0.0, None) * (mean_cores > 0)
        self.serial[rows] += np.maximum(RATE, 1.0 / (seen + 1)) * (idle - self.serial[rows])
        self.seen[rows] = seen + 1

    def seconds(self, rows: Integers, cpu: Floats, cores: Floats) -> Floats:
        """Return seconds per iteration: rows by columns of `cores`; infinite at 0 cores, or next to none."""
        with np.errstate(divide="ignore", over="ignore"):
            parallel = cpu[:, None] / cores
            parallel *= self._dearer(rows[:, None], cores)
        serial = self.serial[rows, None]
        believed = (self.seen[rows, None] >= SERIAL_AFTER) & (serial > SERIAL_SHARE * parallel)
        return parallel + np.where(believed, serial, 0.0)

    def steady_seconds(self, rows: Integers, cpu: Floats, cores: Floats) -> Floats:
        """Return seconds per iteration as `seconds` does, but never more with more cores.

        For long horizons: a serial part counts even if it is small.
        """
        parallel = np.full(cores.shape, np.inf)
        with np.errstate(over="ignore"):
            np.divide(cpu[:, None], cores, out=parallel, where=cores > 1e-9)
            parallel *= self._dearer(rows[:, None], cores)
        return parallel + self.steady_serial(rows)[:, None]

    def cores_for(self, rows: Integers, cpu: Floats, seconds: Floats) -> Floats:
        """Return the cores with which the parallel part of an iteration takes so many seconds; infinite for none.

        The inverse of the parallel part in `steady_seconds`.
        """
        found = np.full(len(rows), np.inf)
        with np.errstate(over="ignore"):
            np.divide(cpu, seconds, out=found, where=seconds > 0)
            waste = self.waste[rows]
            wide = (found > 1.0) & (waste > 0)
            # cpu / n * (1 + waste * (n - 1)) = seconds, solved for n.
            left = seconds - cpu * waste
            more = np.divide(cpu * (1.0 - waste), left, out=np.full(len(rows), np.inf), where=left > 0)
        return np.where(wide, more, found)

    def steady_serial(self, rows: Integers) -> Floats:
        """Return the serial seconds per iteration; 0 until they are known."""
        return np.where(self.seen[rows] >= SERIAL_AFTER, self.serial[rows], 0.0)

    def worth(self, rows: Integers) -> Floats:
        """Return what any number of workers is worth at most, in workers; infinite where n are worth n."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / self.waste[rows])

    def _dearer(self, rows: Integers, cores: Floats) -> Floats:
        """Return how many times the CPU time of one worker an iteration takes on so many cores."""
        return np.asarray(1.0 + self.waste[rows] * np.maximum(cores - 1.0, 0.0))

    def known(self, rows: Integers) -> Booleans:
        """Return for which rows a cost has been observed."""
        return self.seen[rows] > 0
