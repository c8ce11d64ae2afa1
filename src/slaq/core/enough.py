"""When a job has come near enough to where its curve is forecast to end."""

from dataclasses import dataclass

#: Losses that must be known before, and decisions in a row that must find so: forecasts wander at first.
SETTLED, DECISIONS = 10, 2


@dataclass(slots=True)
class Enough:
    """Watches one job whose owner wants this share of its whole reduction, and no more."""

    share: float
    _found: int = 0

    def found(self, losses: int, reduction: float) -> bool:
        """Take note of what a decision found; return whether the job is to end."""
        self._found = self._found + 1 if losses >= SETTLED and reduction >= self.share else 0
        return self._found >= DECISIONS
