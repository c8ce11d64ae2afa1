"""Fair sharing: each job gets its weighted max-min share of the units, independent of its loss."""

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import guarantee, spread


@dataclass(frozen=True, slots=True)
class Fair(Policy):
    """Gives each job its weighted max-min fair share: the paper's baseline (§6).

    In each epoch a job holds its share rounded down or up. The credit decides which, so that over time the job
    holds exactly its share.
    """

    serves_all: ClassVar[bool] = True

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        sure = guarantee(candidates, capacity, fraction=1.0)
        units = spread(candidates, sure.lower, sure.credit, capacity)
        return sure.allocation(candidates, units)
