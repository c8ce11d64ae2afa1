"""Least attained service: jobs that have received little so far go before those that have received much."""

from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import serve


@dataclass(frozen=True, slots=True)
class LeastAttained(Policy):
    """Serves jobs by the CPU seconds received so far, in queues (discretised LAS; Tiresias, NSDI 2019, §3).

    A job falls from queue i to the next at first_threshold x growth^i CPU seconds, and within a queue jobs
    are served in the order of submission: equal jobs do not take turns preempting each other. Minima and
    the shares of jobs that do not compete come first. A job in a low queue may wait for as long as new ones
    keep coming; weights do not count.
    """

    #: CPU seconds after which a job leaves the first queue.
    first_threshold: float = 100.0
    #: How many times more each next queue allows; above 1.
    growth: float = 10.0
    #: How many queues there are; the last one has no threshold.
    queues: int = 6

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        thresholds = self.first_threshold * self.growth ** np.arange(self.queues - 1)
        queue = np.searchsorted(thresholds, candidates.attained, side="right")
        return serve(candidates, capacity, queue)
