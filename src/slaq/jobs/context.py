"""The context of a training program, the same on every engine."""

from collections.abc import Callable
from typing import Any, Protocol, Unpack

from slaq.core.errors import JobOptionError
from slaq.jobs.data import DataShape
from slaq.jobs.options import DemandOptions


class Cancelled(BaseException):
    """Raised inside a program at its next call of the context after a stop of its job was requested.

    Not an `Exception`, so that `except Exception` in a training loop does not catch it. A program
    that catches even this is killed after a short time.
    """


class Context(Protocol):
    """The argument of a training program, whose loop calls `map` and `report`."""

    #: How large the job's data is.
    data: DataShape
    #: The state saved by the last `checkpoint` of an earlier run of this job; None on a first run.
    restored: Any

    @property
    def workers(self) -> float:
        """The workers of one core each that the job holds now; may be a fraction, and changes while it runs."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested: the next map or report raises `Cancelled`.

        A program that checks this between iterations can return its present result instead.
        """
        ...

    def map(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run function(partition, *args) for every partition, on the workers that the job holds.

        Results come in the order of the partitions. May be called several times per iteration. The function
        must return the same for the same arguments: a task whose worker is lost runs again elsewhere.
        """
        ...

    def report(
        self, loss: float, *, step: float | None = None, total: float | None = None, **metrics: float
    ) -> None:
        """Report the loss after an iteration; the first report is the loss before the first iteration.

        `step` is the program's own number of the iteration, from 0 on; without it reports are counted. Numbers may
        be left out; a report whose number is not larger than the last one is ignored. `total` is how many
        iterations the program will make in all, where it knows; it may change.
        """
        ...

    def checkpoint(self, state: Any) -> None:
        """Save any picklable state, from which the job continues if it is started again."""
        ...

    def announce(self, *, learning_rate: float) -> None:
        """Announce a new learning rate, which changes the loss curve from here on."""
        ...

    def can_use(self, **reported: Unpack[DemandOptions]) -> None:
        """Report what the job can use from now on; this replaces earlier reports.

        Takes `min_cores`, `max_cores` and `sizes`: "any", "whole" (workers of one core each) or a list of numbers
        of cores; `worth`, where more workers help less and less; and `change_seconds`, what a change of
        size costs. What is left out is as the job's owner asked, and nothing can exceed that.
        """
        ...


#: The largest number of an iteration that a program can report.
LARGEST_ITERATION = 2**32 - 1


def whole_number(name: str, value: float) -> int:
    """Return a number of iterations that a program reports; raises ReportError for one that is none."""
    if not 0 <= value <= LARGEST_ITERATION or value != int(value):
        raise JobOptionError(name, value, f"a whole number from 0 to {LARGEST_ITERATION}")
    return int(value)


#: A training program: called once with its context; what it returns is the job's result.
Program = Callable[[Context], Any]
