"""When a job has done what was asked of it: by iterations, or by how far its loss has come."""

from dataclasses import dataclass
from typing import Protocol


class Limits(Protocol):
    """What the owner of a job asked for."""

    @property
    def max_iterations(self) -> int | None:
        """Iterations after which it is enough."""
        ...

    @property
    def target(self) -> float | None:
        """The loss the owner is content with."""
        ...

    @property
    def stop_at(self) -> float | None:
        """The share of the way to it after which it is enough."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What ends a job as completed; None for what was not asked for."""

    max_iterations: int | None = None
    target: float | None = None
    stop_at: float | None = None


def why_enough(limits: Limits, iteration: int, first_loss: float, loss: float) -> str:
    """Return why a job has done what was asked after this iteration; nothing where it has not."""
    if limits.max_iterations is not None and iteration >= limits.max_iterations:
        return f"it has done its {limits.max_iterations} iterations"
    if limits.target is not None and limits.stop_at is not None:
        wanted = first_loss - limits.stop_at * (first_loss - limits.target)
        if loss <= wanted:
            return f"its loss has come to {loss:g}, and {wanted:g} was asked for"
    return ""
