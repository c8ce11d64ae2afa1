"""Shortest remaining first: the job predicted to be nearest its end takes all it can use."""

from dataclasses import dataclass

from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import serve


@dataclass(frozen=True, slots=True)
class ShortestFirst(Policy):
    """Serves jobs by the CPU seconds they are predicted to need still, fewest first.

    Minima and the shares of jobs that do not compete come first. A long job may wait for as long as
    shorter ones keep coming; weights do not count.
    """

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        return serve(candidates, capacity, candidates.remaining)
