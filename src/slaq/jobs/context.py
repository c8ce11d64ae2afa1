"""The context a training program runs in, the same whatever engine runs it."""

from collections.abc import Callable
from typing import Any, Protocol

from slaq.jobs.data import DataShape


class Cancelled(BaseException):
    """Raised inside a program at its next call of the context once its job is to end.

    Not an `Exception`, so that `except Exception` in a training loop does not swallow it. A program that
    catches even this is killed a moment later.
    """


class Context(Protocol):
    """What a training program is given: a plain loop calls `map` and `report`."""

    #: How large the job's data is.
    data: DataShape
    #: What the last `checkpoint` of an earlier run of this job kept; None on a first run.
    restored: Any

    @property
    def workers(self) -> float:
        """How many workers, in cores, the job holds now; may be a fraction."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether the job is to end: the next map or report raises `Cancelled`.

        A program that looks here between iterations can return what it has instead.
        """
        ...

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run function(partition, *args) for every partition, on whatever workers the job holds now.

        Results come in the order of the partitions. May be called several times per iteration. The function
        must return the same for the same arguments: a task whose worker is lost runs again elsewhere.
        """
        ...

    def report(self, loss: float, **metrics: float) -> None:
        """Tell the scheduler the loss after an iteration; the first report is the loss before the first one."""
        ...

    def checkpoint(self, state: Any) -> None:
        """Keep anything picklable, from which the job goes on if it has to be started again."""
        ...

    def announce(self, *, learning_rate: float) -> None:
        """Tell the scheduler of a new learning rate: the curve bends here."""
        ...


#: A training program: called once with its context; what it returns is the job's result.
Program = Callable[[Context], Any]
