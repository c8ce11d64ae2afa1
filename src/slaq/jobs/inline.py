"""A context that runs all tasks in this process, for tests, debugging and `fit` without a cluster."""

from collections.abc import Callable
from typing import Any, Unpack

from typing_extensions import override

from slaq.core.demand import Demand
from slaq.jobs.context import Context, whole_number
from slaq.jobs.data import Dataset
from slaq.jobs.demands import reported_demand
from slaq.jobs.options import DemandOptions


class InlineContext(Context):
    """Runs the tasks one after another, and keeps the reports."""

    def __init__(self, data: Dataset | None = None, *, partitions: int = 1, restored: Any = None) -> None:
        dataset = Dataset() if data is None else data
        self.data = dataset.shape(partitions)
        self.restored = restored
        self.losses: list[float] = []
        #: The number of the iteration of each loss, and how many there will be in all, as last reported.
        self.iterations: list[int] = []
        self.total: int | None = None
        self.metrics: list[dict[str, float]] = []
        self.learning_rates: list[float] = []
        self.demands: list[Demand] = []
        self.kept: Any = None
        self._partitions = dataset.cut(partitions)

    @property
    @override
    def workers(self) -> float:
        return 1.0

    @property
    @override
    def stopping(self) -> bool:
        return False

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        return [function(partition, *args) for partition in self._partitions]

    @override
    def report(
        self, loss: float, *, step: float | None = None, total: float | None = None, **metrics: float
    ) -> None:
        last = self.iterations[-1] if self.iterations else -1
        iteration = last + 1 if step is None else whole_number("step", step)
        if total is not None:
            self.total = whole_number("total", total) or self.total
        if iteration <= last:
            return
        self.iterations.append(iteration)
        self.losses.append(float(loss))
        self.metrics.append(metrics)

    @override
    def checkpoint(self, state: Any) -> None:
        self.kept = state

    @override
    def announce(self, *, learning_rate: float) -> None:
        self.learning_rates.append(learning_rate)

    @override
    def can_use(self, **reported: Unpack[DemandOptions]) -> None:
        self.demands.append(reported_demand(**reported))
