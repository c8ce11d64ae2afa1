"""What a job can use: its resource, the least and most of it, its sizes, and its memory."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

#: Any fraction of a core, whole workers only, or these sizes only: ascending numbers of cores above 0.
Sizes = Literal["any", "whole"] | tuple[float, ...]


class Resource(StrEnum):
    """The resource that a job competes for."""

    CORES = "cores"
    GPUS = "gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """How much of one resource a job can use; amounts are cores or GPUs, as real numbers."""

    resource: Resource = Resource.CORES
    #: The least amount that the job holds at all times, as far as the capacity allows.
    least: float = 0.0
    #: The amount beyond which the job cannot run faster; None for no such limit.
    most: float | None = None
    #: The amounts that the job can run with, besides 0.
    sizes: Sizes = "any"
    #: n workers of one core advance the training like worth * n / (worth - 1 + n) single ones: never like more than
    #: `worth` (AdaScale's gain); None where n advance it like n.
    worth: float | None = None
    #: Seconds that a change of size costs the job; None if unknown.
    change_seconds: float | None = None
    #: The most bytes that the job may use; None if undeclared. Memory is a limit and is not shared out.
    memory: int | None = None

    def bounded_by(self, asked: "Demand") -> "Demand":
        """Return the demand that a running job reports, bounded by what its owner asked for.

        The owner sets the resource and the memory. The job may lower its most and its least, may name sizes if its
        owner named none, and says itself what workers are worth and what a change costs.
        """
        mosts = [most for most in (self.most, asked.most) if most is not None]
        most = min(mosts) if mosts else None
        least = min(self.least, asked.least)
        return replace(
            asked,
            least=least if most is None else min(least, most),
            most=most,
            sizes=self.sizes if asked.sizes == "any" else asked.sizes,
            worth=self.worth,
            change_seconds=self.change_seconds,
        )
