"""Fair sharing: every job its weighted max-min share of the units, whatever its loss."""

from dataclasses import dataclass

from typing_extensions import override

from slaq.core.allocation import Allocation, Candidates, Policy
from slaq.core.sharing import guarantee, spread


@dataclass(frozen=True, slots=True)
class Fair(Policy):
    """Gives each job its weighted max-min fair share: the paper's baseline (§6).

    Each epoch a job holds its real share rounded down or up; which of the two rotates through the credit,
    so that over time it holds exactly that share.
    """

    @override
    def allocate(self, candidates: Candidates, capacity: int) -> Allocation:
        sure = guarantee(candidates, capacity, fraction=1.0)
        units = spread(candidates, sure.lower, sure.credit, capacity)
        return sure.allocation(candidates, units)
