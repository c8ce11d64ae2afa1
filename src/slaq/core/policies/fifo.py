"""First come, first served: jobs in the order of their submission, each up to its maximum."""

from dataclasses import dataclass

from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import serve


@dataclass(frozen=True, slots=True)
class Fifo(Policy):
    """Serves jobs in the order of submission, each up to its maximum.

    Minima and the shares of jobs that do not compete come first. A late job waits while earlier jobs can use the
    whole capacity. Weights have no effect.
    """

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        return serve(candidates, capacity, candidates.order)
