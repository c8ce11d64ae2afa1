"""Least attained service: jobs that have received few CPU seconds come before jobs that have received many."""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import serve


@dataclass(frozen=True, slots=True)
class LeastAttained(Policy):
    """Serves jobs by the CPU seconds received so far, in queues (discretised LAS; Tiresias, NSDI 2019, §3).

    A job moves from queue i to the next at first_threshold x growth^i CPU seconds. Within a queue, jobs are
    served in the order of submission, so that equal jobs do not preempt each other in turn. Minima and the
    shares of jobs that do not compete come first. A job in a late queue waits while new jobs keep arriving.
    Weights have no effect.
    """

    #: CPU seconds after which a job leaves the first queue.
    first_threshold: float = 100.0
    #: The factor from one threshold to the next; above 1.
    growth: float = 10.0
    #: The number of queues; the last has no threshold.
    queues: int = 6

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        thresholds = self.first_threshold * self.growth ** np.arange(self.queues - 1)
        queue = np.searchsorted(thresholds, candidates.attained, side="right")
        return serve(candidates, capacity, queue)
