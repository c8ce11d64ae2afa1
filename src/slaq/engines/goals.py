"""When a job has done what was asked of it: by iterations, by how far its loss has fallen, or by its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What ends a job as completed; None for what was not asked for."""

    max_iterations: int | None = None
    #: The loss the owner is content with, and the share of the way to it after which the job ends.
    target_loss: float | None = None
    stop_at: float | None = None
    #: Seconds after its program began.
    time_budget: float | None = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> Self:
        """Return the goal in a job's options."""
        return cls(**{name: options.get(name) for name in cls.__slots__})

    def reached(self, iteration: int, first_loss: float, loss: float) -> str:
        """Return why the job has done what was asked after this iteration; nothing where it has not."""
        if self.max_iterations is not None and iteration >= self.max_iterations:
            return f"it has done its {self.max_iterations} iterations"
        if self.target_loss is not None and self.stop_at is not None:
            wanted = first_loss - self.stop_at * (first_loss - self.target_loss)
            if loss <= wanted:
                return f"its loss has reached {loss:g}, and {wanted:g} was asked for"
        return ""

    def overdue(self, seconds: float) -> str:
        """Return why a job that has run so many seconds ends; nothing where it does not."""
        if self.time_budget is None or seconds <= self.time_budget:
            return ""
        return f"its {self.time_budget:g} seconds are over"
