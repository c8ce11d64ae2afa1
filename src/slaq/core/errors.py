"""The exceptions a user of slaq may meet, all under one root."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from typing_extensions import override


class SlaqError(Exception):
    """The root of every error that slaq raises on purpose; its text is one sentence for the user.

    SlaqError
    ├── CapacityError       a capacity, or its course over time, that no cluster can have
    ├── ClusterClosedError  a cluster that was shut down was asked for more
    ├── CommandError        a command that cannot be run as a job
    ├── DataError           features and targets that do not fit together
    ├── DuplicateJobError   a job id was given to two jobs
    ├── ForecastError       a history or horizons that no forecast can be made from
    ├── HyperparameterError a hyperparameter that an algorithm cannot train with
    ├── JobFailedError      a job failed without an exception of its program to show for it
    ├── JobOptionError      an option of a job that makes no sense
    ├── JobsFileError       a jobs file with mistakes in it
    ├── MissingExtraError   a library is needed that comes with an extra of slaq
    ├── ModelError          a file does not hold the model that was asked for
    ├── ProgramError        a training program that a jobs file names and that cannot be had
    ├── SparkApiError       a private part of Spark that this version does not have
    ├── SparkSessionError   a Spark session that jobs cannot be scheduled on
    ├── TaskError           a task was lost for good, or raised what cannot be sent between processes
    ├── LossSourceError     a loss pattern or loss file that yields no losses
    ├── ThrottleError       a way to enforce CPU shares that does not work on this machine
    ├── UnknownJobError     a job id was named that nobody submitted
    ├── WorkloadError       a workload or recorded curve could not be read or written
    └── UnknownNameError    a policy, engine or other choice was named that does not exist

    A subclass carries its data as attributes and writes its own message: what was found, what was
    expected, what to type instead.
    """

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as a call with their message, which does not fit a subclass's arguments;
        # these travel between processes as they are.
        return _as_it_was, (type(self), self.args, vars(self))


def _as_it_was(kind: type[SlaqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SlaqError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class UnknownNameError(SlaqError):
    """A name was given where only certain names are known."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = tuple(known)
        close = get_close_matches(name, self.known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        super().__init__(f"there is no {kind} {name!r}; {hint}known: {', '.join(self.known)}")


class CapacityError(SlaqError):
    """A capacity, or its course over time, is not one that a cluster can have."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}; give 0 or more units, or (seconds, units) pairs in ascending order of time"
        )


class CommandError(SlaqError):
    """A command that cannot be run as a job."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ClusterClosedError(SlaqError):
    """A cluster was asked for something after it was shut down."""

    def __init__(self) -> None:
        super().__init__("this cluster was shut down; make a new one, or submit inside its `with` block")


class DataError(SlaqError):
    """Features and targets that no job can be trained on; its text says what is wrong with them."""


class DuplicateJobError(SlaqError):
    """A job id was given to two jobs."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is a job {job_id!r} already; give each job an id of its own")


class ForecastError(SlaqError):
    """A history, or horizons, that no forecast can be made from; its text says what to give instead."""


class HyperparameterError(SlaqError):
    """A hyperparameter has a value that its algorithm cannot train with."""

    def __init__(self, algorithm: str, name: str, found: object, expected: str) -> None:
        self.algorithm = algorithm
        self.name = name
        self.found = found
        self.expected = expected
        super().__init__(f"{algorithm}: {name} must be {expected}, not {found!r}")


class MissingExtraError(SlaqError):
    """A library is not installed that one of slaq's extras brings."""

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(f"{library} is not installed; install it with: pip install slaq[{extra}]")


class ModelError(SlaqError):
    """A file does not hold the model that was asked for."""

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(f"{path}: {found}; give a file that the model's save() wrote")


class LossSourceError(SlaqError):
    """A loss pattern or loss file that yields no losses."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class SparkApiError(SlaqError):
    """Spark lacks, or has moved, private parts that scheduling needs."""

    def __init__(self, versions: Mapping[str, str], moved: Sequence[tuple[str, str]]) -> None:
        self.versions = dict(versions)
        #: Each part with what was met in its place.
        self.moved = tuple(moved)
        here = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        told = "; ".join(f"{what}: {found}" for what, found in self.moved)
        super().__init__(
            f"this Spark ({here}) does not have what slaq steers it by: {told}; "
            "install the version slaq was tested with: pip install slaq[spark]"
        )


class SparkSessionError(SlaqError):
    """A Spark session on which jobs cannot be scheduled."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ThrottleError(SlaqError):
    """A way to enforce CPU shares that does not work on this machine."""

    def __init__(self, name: str, reason: str, usable: Iterable[str]) -> None:
        self.name = name
        self.reason = reason
        self.usable = tuple(usable)
        super().__init__(
            f"CPU shares cannot be enforced by {name!r} here ({reason}); usable: {', '.join(self.usable)}"
        )


class JobFailedError(SlaqError):
    """A job failed, and there is no exception of its program that tells why."""

    def __init__(self, job_id: str, reason: str) -> None:
        self.job_id = job_id
        self.reason = reason
        super().__init__(f"job {job_id!r} failed: {reason}")


class JobOptionError(SlaqError):
    """An option of a job was given a value that makes no sense."""

    def __init__(self, option: str, value: object, wanted: str) -> None:
        self.option = option
        self.value = value
        self.wanted = wanted
        super().__init__(f"{option} is {value!r}; give {wanted}")


class TaskError(SlaqError):
    """A task was lost for good, or raised what cannot be sent between processes."""

    def __init__(self, partition: int, reason: str) -> None:
        #: -1 where it is not known.
        self.partition = partition
        self.reason = reason
        where = f"the task of partition {partition}" if partition >= 0 else "a task"
        super().__init__(f"{where} failed: {reason}")


class UnknownJobError(SlaqError):
    """A job id was named that nobody submitted."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id!r}; submit it first, or check the id")


class WorkloadError(SlaqError):
    """A workload or a recorded curve could not be read or written."""

    def __init__(self, path: str, line: int | None, found: str, remedy: str) -> None:
        self.path = path
        #: Counted from 1; None where the whole file is meant.
        self.line = line
        self.found = found
        self.remedy = remedy
        place = path if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {found}; {remedy}")


class JobsFileError(SlaqError):
    """A jobs file has mistakes; all of them are told at once."""

    def __init__(self, path: str, mistakes: Sequence[tuple[int, str, str]]) -> None:
        self.path = path
        #: Each with its line, counted from 1, what was found there, and what to do.
        self.mistakes = tuple(mistakes)
        told = [f"{path}, line {line}: {found}; {remedy}" for line, found, remedy in mistakes]
        if len(told) > 1:
            told = [f"{path} has {len(told)} mistakes, and nothing was started:", *told]
        super().__init__("\n  ".join(told))


class ProgramError(SlaqError):
    """A jobs file names a training program that cannot be had."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")
