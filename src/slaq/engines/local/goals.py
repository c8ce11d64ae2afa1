"""What ends a job as completed: the iterations, or the part of the way to its target, that its owner asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """When a job has done what was asked; None for what was not."""

    max_iterations: int | None = None
    #: The loss its owner is content with, and the share of the way to it after which the job is ended.
    target: float | None = None
    stop_at: float | None = None

    def reached(self, iteration: int, loss: float, first_loss: float) -> str | None:
        """Return why the job is to end after this loss, in one sentence, or None."""
        if self.max_iterations is not None and iteration >= self.max_iterations:
            return f"its {self.max_iterations} iterations are done"
        if self.target is not None and self.stop_at is not None:
            wanted = first_loss - self.stop_at * (first_loss - self.target)
            if loss <= wanted:
                return f"it has done {self.stop_at:.1%} of the way to its target"
        return None
