"""Shortest remaining first: the job with the fewest predicted CPU seconds to its end gets all it can use."""

from dataclasses import dataclass

from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import serve


@dataclass(frozen=True, slots=True)
class ShortestFirst(Policy):
    """Serves jobs by their predicted remaining CPU seconds, fewest first.

    Minima and the shares of jobs that do not compete come first. A long job waits while shorter jobs keep
    arriving. Weights have no effect.
    """

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        return serve(candidates, capacity, candidates.remaining)
