"""The base of all algorithms: hyperparameters as a value, `fit` in this process, and one training run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.model import Model
from slaq.core.errors import UnknownNameError
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset
from slaq.jobs.inline import InlineContext

M_co = TypeVar("M_co", bound=Model, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(ABC, Generic[M_co]):
    """A training program whose hyperparameters are its fields: call it with a context, or `fit` it here.

    Laws: the losses and the model do not depend on the number of partitions, up to rounding; the same
    seed gives the same model; a run that is resumed from a checkpoint ends as one that was never stopped.
    """

    #: How many iterations at most.
    iterations: int = 100
    #: Stop once an iteration changes the loss by less than this share of it; 0 never stops early.
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        check.whole(self, "iterations", at_least=0)
        check.real(self, "tolerance", at_least=0)
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise a HyperparameterError if a hyperparameter of this algorithm is invalid."""

    @abstractmethod
    def __call__(self, ctx: Context) -> M_co:
        """Train in the context and return the model."""

    def fit(self, x: Any, y: Any = None, *, partitions: int = 1) -> M_co:
        """Train in this process and return the model."""
        return self(InlineContext(Dataset(x, y), partitions=partitions))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the algorithm with these hyperparameters, as a job file names them."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise UnknownNameError(f"hyperparameter of {cls.__name__}", name, known)
        return cls(**options)


class TrainingRun:
    """One training run: reports each loss, keeps checkpoints, and knows when to stop.

    A checkpoint holds the state after an iteration and the losses so far, so that a resumed run neither
    repeats a report nor forgets that it had converged.
    """

    def __init__(self, ctx: Context, algorithm: Algorithm[Model], *, checkpoint_every: int = 1) -> None:
        self._ctx = ctx
        self._limit = algorithm.iterations
        self._tolerance = algorithm.tolerance
        self._every = checkpoint_every
        kept = ctx.restored
        #: The state an earlier run of the job had reached; None on a first run.
        self.restored: Any = None if kept is None else kept["state"]
        #: The loss before the first iteration, and after each.
        self.losses: tuple[float, ...] = () if kept is None else tuple(kept["losses"])

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        return max(0, len(self.losses) - 1)

    @property
    def goes_on(self) -> bool:
        """Whether there is another iteration to do."""
        # A job that is stopped returns the model of this iteration.
        if self._ctx.stopping or self.iteration >= self._limit:
            return False
        if len(self.losses) < 2:
            return True
        before, now = self.losses[-2:]
        # The comparison is written so that training continues after a NaN loss; the user decides what to do.
        return not abs(before - now) < self._tolerance * abs(before)

    def record(self, loss: float, state: Any) -> None:
        """Report the loss of a state that an iteration reached (the first time: that training starts from)."""
        self.losses = (*self.losses, float(loss))
        self._ctx.report(loss, total=self._limit)
        if self.iteration % self._every == 0 or not self.goes_on:
            self._ctx.checkpoint({"state": state, "losses": self.losses})
