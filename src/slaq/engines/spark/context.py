"""The context of a job on Spark: tasks over cached partitions, losses to the engine."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from typing_extensions import override

from slaq.core.errors import TaskError
from slaq.engines import checkpoints
from slaq.engines.packing import pack, pack_error, unpack, unpack_error
from slaq.engines.spark.cache import PartitionCache
from slaq.engines.spark.runs import SparkRun
from slaq.jobs.context import Cancelled, Context, whole_number
from slaq.jobs.demands import reported_demand
from slaq.jobs.options import DemandOptions


class SparkJobContext(Context):
    """The context of a program on Spark."""

    def __init__(self, run: SparkRun, cache: PartitionCache) -> None:
        self.data = run.job.data.shape(run.job.partitions)
        self.restored = None
        self._run = run
        self._cache = cache
        self._checkpoint = run.directory / checkpoints.FILE
        if self._checkpoint.exists():
            kept = checkpoints.read(self._checkpoint)
            run.iteration, run.first_loss = kept.reports - 1, kept.first_loss
            self.restored = unpack(kept.state)

    @property
    @override
    def workers(self) -> float:
        self._look()
        return self._run.slots

    @property
    @override
    def stopping(self) -> bool:
        return self._run.ending is not None

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        run = self._run
        run.pass_gate()
        partitions = self._cache.take(run.job_id, run.job.data, run.job.partitions)
        try:
            told = partitions.mapPartitions(_Task(function, args)).collect()
        except Exception as error:
            # A cancelled Spark job fails too; then the job is to end.
            self._look()
            raise _lost(error) from error
        results: list[Any] = [None] * self.data.num_partitions
        for index, cpu_seconds, result, failure in told:
            run.cpu_python += cpu_seconds
            if failure is not None:
                raised, text = unpack_error(memoryview(failure))
                raise TaskError(index, text) if raised is None else raised
            results[index] = result
        return results

    @override
    def report(
        self, loss: float, *, step: float | None = None, total: float | None = None, **metrics: float
    ) -> None:
        self._look()
        if total is not None:
            self._run.foresee(whole_number("total", total))
        if step is None or self._run.skip_to(whole_number("step", step)):
            self._run.report(float(loss), {name: float(value) for name, value in metrics.items()})

    @override
    def checkpoint(self, state: Any) -> None:
        checkpoints.write(self._checkpoint, self._run.iteration + 1, self._run.first_loss, pack(state))

    @override
    def announce(self, *, learning_rate: float) -> None:
        self._look()
        self._run.journal.learning_rate_changed(self._run.job_id, float(learning_rate))

    @override
    def can_use(self, **reported: Unpack[DemandOptions]) -> None:
        demand = reported_demand(**reported)
        self._look()
        self._run.journal.demand_changed(self._run.job_id, demand)

    def _look(self) -> None:
        if self.stopping:
            raise Cancelled(self._run.reason)


class _Task:
    """Runs a function over the partition of a Spark task; returns what it raises, so that Spark does not retry."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args

    def __call__(self, elements: Iterator[Any]) -> list[Any]:
        told = []
        for index, partition in elements:
            began = time.process_time()
            result, failure = None, None
            try:
                result = self._function(partition, *self._args)
            except Exception as error:
                failure = b"".join(pack_error(error))
            told.append((index, time.process_time() - began, result, failure))
        return told


def _lost(error: Exception) -> TaskError:
    """Return the error of tasks that Spark gave up: the last line of Python's message, or the first of Java's."""
    lines = [line for line in str(error).partition("JVM stacktrace")[0].splitlines() if line.strip()]
    raised = [line for line in lines if not line.startswith((" ", "\t")) and "Error" in line]
    reason = (raised or lines or [repr(error)])[-1 if raised else 0].strip()
    if "No module named 'slaq'" in reason:
        reason += (
            "; install slaq where Spark's Python workers run, or set PYSPARK_PYTHON to a Python that has it "
            "before the session is made"
        )
    return TaskError(-1, reason)
