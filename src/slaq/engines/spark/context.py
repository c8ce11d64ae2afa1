"""The context of a job on Spark: tasks over cached partitions, losses to the engine."""

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from typing_extensions import override

from slaq.core.errors import TaskError
from slaq.engines.local import checkpoints
from slaq.engines.local.tracebacks import RemoteError
from slaq.engines.local.wire import pack, unpack
from slaq.engines.spark.runs import Run
from slaq.jobs.context import Cancelled, Context


class Desk(Protocol):
    """What the engine does for the context of a job."""

    def report(self, run: Run, loss: float, metrics: dict[str, float]) -> None:
        """Note a loss; returns once the job may go on, and raises `Cancelled` if it is to end."""
        ...

    def pass_gate(self, run: Run) -> None:
        """Wait until the job holds units; raises `Cancelled` if it is to end."""
        ...

    def announce(self, run: Run, learning_rate: float) -> None:
        """Note a new learning rate."""
        ...

    def partitions(self, run: Run) -> Any:
        """Return the job's data as an RDD of (index, partition), cached."""
        ...

    def workers(self, run: Run) -> float:
        """Return how many slots the job holds."""
        ...


class SparkJobContext(Context):
    """What a program on Spark is given."""

    def __init__(self, desk: Desk, run: Run) -> None:
        self.data = run.job.data.shape(run.job.partitions)
        self.restored = None
        self._desk = desk
        self._run = run
        self._checkpoint = run.directory / checkpoints.FILE
        if self._checkpoint.exists():
            kept = checkpoints.read(self._checkpoint)
            run.iteration, run.first_loss = kept.reports - 1, kept.first_loss
            self.restored = unpack(kept.state)

    @property
    @override
    def workers(self) -> float:
        self._look()
        return self._desk.workers(self._run)

    @property
    @override
    def stopping(self) -> bool:
        return self._run.ending is not None

    @override
    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        self._desk.pass_gate(self._run)
        partitions = self._desk.partitions(self._run)
        try:
            told = partitions.mapPartitions(_Task(function, args)).collect()
        except Exception as error:
            # A Spark job that was cancelled fails; why is known here.
            self._look()
            raise _lost(error) from error
        results: list[Any] = [None] * self.data.num_partitions
        for index, cpu_seconds, result, failure in told:
            self._run.cpu_python += cpu_seconds
            if failure is not None:
                raised, text = failure
                raise TaskError(index, text) if raised is None else raised from RemoteError(text)
            results[index] = result
        return results

    @override
    def report(self, loss: float, **metrics: float) -> None:
        self._look()
        self._desk.report(self._run, float(loss), {name: float(value) for name, value in metrics.items()})

    @override
    def checkpoint(self, state: Any) -> None:
        checkpoints.write(self._checkpoint, self._run.iteration + 1, self._run.first_loss, pack(state))

    @override
    def announce(self, *, learning_rate: float) -> None:
        self._look()
        self._desk.announce(self._run, float(learning_rate))

    def _look(self) -> None:
        if self.stopping:
            raise Cancelled(self._run.reason)


class _Task:
    """Runs a function over the partition of a Spark task; what it raises is a result, and so not retried."""

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
                failure = (_sendable(error), traceback.format_exc())
            told.append((index, time.process_time() - began, result, failure))
        return told


def _lost(error: Exception) -> TaskError:
    """Return what to say of tasks that Spark gave up: the last line of what Python said, or the first of Java's."""
    lines = [line for line in str(error).partition("JVM stacktrace")[0].splitlines() if line.strip()]
    raised = [line for line in lines if not line.startswith((" ", "\t")) and "Error" in line]
    reason = (raised or lines or [repr(error)])[-1 if raised else 0].strip()
    if "No module named 'slaq'" in reason:
        reason += (
            "; install slaq where Spark's Python workers run, or set PYSPARK_PYTHON to a Python that has it "
            "before the session is made"
        )
    return TaskError(-1, reason)


def _sendable(error: Exception) -> Exception | None:
    """Return the error if it arrives as it was sent."""
    import pickle

    with contextlib.suppress(Exception):
        if isinstance(pickle.loads(pickle.dumps(error)), type(error)):
            return error
    return None
