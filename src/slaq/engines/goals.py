"""When a job has reached its goal: by iterations, by its loss, or by its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from slaq.core.direction import turned
from slaq.core.progress import is_number
from slaq.jobs.options import OnNan


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What ends a job early; None for an option that was not given."""

    #: Whether its loss is a number that should rise.
    maximize: bool = False
    max_iterations: int | None = None
    #: The loss the owner is content with, and the share of the way to it after which the job ends.
    target_loss: float | None = None
    stop_at: float | None = None
    #: Seconds after its program began.
    time_budget: float | None = None
    #: What becomes of a job whose loss is no finite number; None for what is usual for such a job.
    on_nan: str | None = None

    @classmethod
    def asked(cls, options: Mapping[str, Any]) -> Self:
        """Return the goal in a job's options."""
        asked = {name: value for name in cls.__slots__ if (value := options.get(name)) is not None}
        # In a group there are others to run in its place.
        usual = OnNan.STOP if options.get("group") else OnNan.GO_ON
        return cls(**{"on_nan": usual} | asked)

    def astray(self, loss: float) -> str:
        """Return why a job with this loss is to end as diverged; an empty string if it goes on."""
        if self.on_nan != OnNan.STOP or is_number(loss):
            return ""
        return f"its loss is {loss:g}, and the job was to stop at such a loss"

    def reached(self, iteration: int, first_loss: float, loss: float) -> str:
        """Return why the job has reached its goal after this iteration; an empty string if it has not."""
        if self.max_iterations is not None and iteration >= self.max_iterations:
            return f"it has done its {self.max_iterations} iterations"
        if self.target_loss is not None and self.stop_at is not None:
            wanted = first_loss - self.stop_at * (first_loss - self.target_loss)
            if turned(loss, self.maximize) <= turned(wanted, self.maximize):
                return f"its loss {loss:g} has reached the requested {wanted:g}"
        return ""

    def overdue(self, seconds: float) -> str:
        """Return why a job that has run so many seconds ends; an empty string if it does not."""
        if self.time_budget is None or seconds <= self.time_budget:
            return ""
        return f"its time budget of {self.time_budget:g} s is used up"
