"""The policies: each divides the units among the jobs for the coming epoch."""

from slaq.core.policies.best_first import BestFirst, searching
from slaq.core.policies.between_owners import BetweenOwners
from slaq.core.policies.deadline import Deadline
from slaq.core.policies.fair import Fair
from slaq.core.policies.fifo import Fifo
from slaq.core.policies.least_attained import LeastAttained
from slaq.core.policies.min_quality import MinQuality
from slaq.core.policies.shortest_first import ShortestFirst
from slaq.core.policies.total_quality import TotalQuality

__all__ = [
    "BestFirst",
    "BetweenOwners",
    "Deadline",
    "Fair",
    "Fifo",
    "LeastAttained",
    "MinQuality",
    "ShortestFirst",
    "TotalQuality",
    "searching",
]
