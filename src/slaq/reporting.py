"""What a training script says to slaq, in one line each: its loss, its learning rate, what it can use.

A report is one line of JSON appended to the file that SLAQ_REPORTS names:

    {"iteration":3,"loss":0.42,"time":1700000000.123456,"cpu":12.345678,"pid":4711,"metrics":{"accuracy":0.9}}

`iteration` counts the reports of that process from 0, `time` is the Unix time, `cpu` the CPU seconds of that
process so far. A report with the script's own number of the iteration has it as `step`. An announcement has
`learning_rate` in place of `iteration` and `loss`; a line with `total` there says how many iterations there will be
in all; what a job can use is an object `can_use` with `min_cores`, `max_cores`, `sizes`, `worth` and
`change_seconds`. Numbers that are not
finite are written NaN, Infinity and -Infinity, as Python's json module does. Outside slaq nothing is written.
"""

import os
import sys
import time
from math import isfinite, isnan

from slaq.jobs import variables

#: Type checkers read any constant of this name as true; the module itself loads no other.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import SupportsFloat, SupportsIndex

    Number = SupportsFloat | SupportsIndex | str


class _Pen:
    """The open file of reports, belonging to one process; a forked child makes its own."""

    __slots__ = ("count", "fd", "noted", "pid", "torn", "total")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.count = 0
        #: A line was cut short by a full disk, so that the next one has to begin on a new line.
        self.torn = False
        self.noted = False
        #: How many iterations there will be in all, as last told.
        self.total = 0
        self.fd = -1
        path = os.environ.get(variables.REPORTS)
        if not path and os.environ.get(variables.URL):
            path = self.spool()
        if path:
            try:
                self.fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                self.note(error)

    def spool(self) -> "str | None":
        """Return where reports to a service elsewhere are kept until they are sent."""
        try:
            from slaq.report_uploader import spool_for_this_process

            return spool_for_this_process()
        except Exception as error:
            self.note(error)
            return None

    def write(self, fields: str, metrics: "dict[str, Number]") -> None:
        line = f'{{{fields},"time":{time.time():.6f},"cpu":{time.process_time():.6f},"pid":{self.pid}'
        if metrics:
            line += f',"metrics":{{{self.listed(metrics)}}}'
        encoded = f"{line}}}\n".encode()
        # One write to a file opened for appending is never mixed with another process's.
        written = os.write(self.fd, b"\n" + encoded if self.torn else encoded)
        self.torn = written < len(encoded)

    def listed(self, metrics: "dict[str, Number]") -> str:
        parts = []
        for name, value in metrics.items():
            try:
                parts.append(f"{_quoted(name)}:{_number(value)}")
            except Exception as error:  # a metric that is no number must not cost the loss
                self.note(error)
        return ",".join(parts)

    def foresee(self, total: "Number") -> None:
        try:
            found = _whole(total)
            if found != self.total:
                self.write(f'"total":{found}', {})
                self.total = found
        except Exception as error:  # nor must a total that is no number
            self.note(error)

    def note(self, error: Exception) -> None:
        """Warn once that reports are lost; never raise."""
        if not self.noted:
            self.noted = True
            try:
                sys.stderr.write(f"slaq: a report was lost ({error}); this is said only once\n")
            except (AttributeError, OSError, ValueError):  # standard error is closed
                return


_pen: _Pen | None = None


def report(
    loss: "Number", *, step: "Number | None" = None, total: "Number | None" = None, **metrics: "Number"
) -> None:
    """Tell slaq the loss after an iteration; the first report is the loss before the first one.

    `step` is the script's own number of the iteration, from 0 on; without it reports are counted. Numbers may be
    left out; a report whose number is not larger than the last one is ignored. `total` is how many iterations the
    script will make in all, where it knows; it may change.

    Anything that float() takes will do, a tensor of one element among them. Outside slaq this does nothing;
    inside it never raises: what cannot be reported is noted once on standard error.
    """
    pen = _pen_of_this_process()
    if pen.fd < 0:
        return
    try:
        numbered = "" if step is None else f',"step":{_whole(step)}'
        if total is not None:
            pen.foresee(total)
        pen.write(f'"iteration":{pen.count},"loss":{_number(loss)}{numbered}', metrics)
        pen.count += 1
    except Exception as error:
        pen.note(error)


def heard() -> bool:
    """Return whether slaq hears the reports of this process: whether it belongs to a job."""
    return _pen_of_this_process().fd >= 0


def announce(*, learning_rate: "Number") -> None:
    """Report a new learning rate, from which the loss curve changes. Never raises, as `report`."""
    pen = _pen_of_this_process()
    if pen.fd < 0:
        return
    try:
        pen.write(f'"learning_rate":{_number(learning_rate)}', {})
    except Exception as error:
        pen.note(error)


# The keywords are written out, because this module imports nothing but the standard library.
def can_use(
    *,
    min_cores: "Number | None" = None,
    max_cores: "Number | None" = None,
    sizes: "str | Sequence[Number] | None" = None,
    worth: "Number | None" = None,
    change_seconds: "Number | None" = None,
) -> None:
    """Tell slaq what this job can use from now on, in place of what it said before.

    `sizes` is "any", "whole" (workers of one core each) or a list of numbers of cores. `worth` says that more
    workers help less and less: n of them advance the training like worth * n / (worth - 1 + n) single ones.
    `change_seconds` is what a change of size costs. What is left out is as the job's owner asked, and nothing can
    exceed that. Never raises, as `report`.
    """
    pen = _pen_of_this_process()
    if pen.fd < 0:
        return
    try:
        said = {
            "min_cores": min_cores,
            "max_cores": max_cores,
            "worth": worth,
            "change_seconds": change_seconds,
        }
        parts = [f'"{name}":{_number(value)}' for name, value in said.items() if value is not None]
        if isinstance(sizes, str):
            parts.append(f'"sizes":{_quoted(sizes)}')
        elif sizes is not None:
            parts.append(f'"sizes":[{",".join(map(_number, sizes))}]')
        pen.write(f'"can_use":{{{",".join(parts)}}}', {})
    except Exception as error:
        pen.note(error)


def _pen_of_this_process() -> _Pen:
    pen = _pen
    return _new_pen() if pen is None or pen.pid != os.getpid() else pen


def _new_pen() -> _Pen:
    global _pen  # noqa: PLW0603 -- the one piece of state of a process that reports
    inherited = _pen
    _pen = _Pen(os.getpid())
    if inherited is not None and inherited.fd >= 0:
        os.close(inherited.fd)
    return _pen


def _number(value: "Number") -> str:
    number = float(value)
    if isfinite(number):
        return repr(number)
    if isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _whole(value: "Number") -> int:
    number = float(value)
    if number < 0 or number != int(number):
        raise ValueError(f"{value!r} is not a whole number of iterations")
    return int(number)


def _quoted(name: str) -> str:
    if name.isidentifier() and name.isascii():
        return f'"{name}"'
    # Only a keyword from a dictionary can be any string; all others do without loading json.
    import json

    return json.dumps(name)
