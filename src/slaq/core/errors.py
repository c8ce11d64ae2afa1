"""The exceptions a user of slaq may meet, all under one root."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from typing_extensions import override


class SlaqError(Exception):
    """The root of every error that slaq raises on purpose; its text is one sentence for the user.

    SlaqError
    ├── AddressError        an address that a service cannot listen on, or that names none
    ├── CapacityError       a capacity, or its course over time, that no cluster can have
    ├── ClosingError        a service that is stopping was asked for more
    ├── ClusterClosedError  a cluster that was shut down was asked for more
    ├── CommandError        a command that cannot be run as a job
    ├── ConflictError       a request that does not fit the state of what it is about
    ├── DataError           features and targets that do not fit together
    ├── DuplicateJobError   a job id was given to two jobs
    ├── ForbiddenError      a user asked for what only others may
    ├── ForecastError       a history or horizons that no forecast can be made from
    ├── HyperparameterError a hyperparameter that an algorithm cannot train with
    ├── IdentityError       a request without a token that the service knows
    ├── JobFailedError      a job failed without an exception of its program to show for it
    ├── JobOptionError      an option of a job that makes no sense
    ├── JobsFileError       a jobs file with mistakes in it
    ├── LimitError          a limit of a user, or of the service, is reached
    ├── LossSourceError     a loss pattern or loss file that yields no losses
    ├── LostReplyError      a service was lost before its reply came
    ├── MissingExtraError   a library is needed that comes with an extra of slaq
    ├── ModelError          a file does not hold the model that was asked for
    ├── ProgramError        a training program that a jobs file names and that cannot be had
    ├── StoreError          a database of jobs that cannot be used as it was asked to be
    │   ├── StoreCorruptError  it is damaged, or no database of slaq's
    │   ├── StoreFullError     it cannot be written: a full disk, or one that may only be read
    │   ├── StoreLockedError   another process has it open
    │   └── StoreVersionError  a newer slaq wrote it
    ├── RateError           a user asks too often
    ├── RequestError        a request that the service's API does not take
    ├── ServiceFaultError   a defect of the service
    ├── SettingsError       settings of a service with mistakes in them
    ├── SnapshotError       a snapshot of the jobs under way that cannot be used
    ├── SparkApiError       a private part of Spark that this version does not have
    ├── SparkSessionError   a Spark session that jobs cannot be scheduled on
    ├── TaskError           a task was lost for good, or raised what cannot be sent between processes
    ├── ThrottleError       a way to enforce CPU shares that does not work on this machine
    ├── TokenError          a token that cannot be made or removed
    ├── UnknownDecisionError  a decision that was never made, or is no longer kept
    ├── UnknownJobError     a job id was named that nobody submitted
    ├── UnknownNameError    a policy, engine or other choice was named that does not exist
    ├── UnreachableError    no service answers at an address
    └── WorkloadError       a workload or recorded curve could not be read or written

    A subclass carries its data as attributes and writes its own message: what was found, what was
    expected, what to type instead.
    """

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as a call with their message, which does not fit a subclass's arguments;
        # these travel between processes as they are.
        return as_it_was, (type(self), self.args, vars(self))


def as_it_was(kind: type[SlaqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SlaqError:
    """Return an error that was taken apart, from its message and its data."""
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


class SnapshotError(SlaqError):
    """A snapshot of the jobs under way cannot be used."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"the snapshot cannot be used: {found}; leave it out and read the observations again"
        )


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


class UnknownDecisionError(SlaqError):
    """A decision was asked for that was never made, or is no longer kept."""

    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch
        which = "no decision yet" if epoch is None else f"no decision of epoch {epoch}"
        super().__init__(f"there is {which}; /decisions lists those that are kept")


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


class SettingsError(SlaqError):
    """The settings of a service have mistakes; all of them are told at once."""

    def __init__(self, mistakes: Sequence[tuple[str, str, str]]) -> None:
        #: Each with where it stands (a file and line, a flag, a variable), what was found there, and what to do.
        self.mistakes = tuple(mistakes)
        told = [f"{where}: {found}; {remedy}" for where, found, remedy in self.mistakes]
        if len(told) > 1:
            told = [f"the settings have {len(told)} mistakes, and nothing was started:", *told]
        super().__init__("\n  ".join(told))


class ProgramError(SlaqError):
    """A jobs file names a training program that cannot be had."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class AddressError(SlaqError):
    """An address that a service cannot listen on, or that names none."""

    def __init__(self, address: str, found: str, remedy: str) -> None:
        self.address = address
        self.found = found
        self.remedy = remedy
        super().__init__(f"{address}: {found}; {remedy}")


class ClosingError(SlaqError):
    """A service that is stopping was asked for more."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; ask again when it is back")


class ConflictError(SlaqError):
    """A request does not fit the state of what it is about."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ForbiddenError(SlaqError):
    """A user asked for what only others may."""

    def __init__(self, user: str, what: str) -> None:
        self.user = user
        #: Reads on after "may not".
        self.what = what
        super().__init__(f"{user} may not {what}; ask an admin of this service")


class IdentityError(SlaqError):
    """A request came without a token that the service knows."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(f"{found}; give one that an admin made with `slaq token`, in SLAQ_TOKEN")


class LimitError(SlaqError):
    """A limit of a user, or of the service, is reached."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class LostReplyError(SlaqError):
    """A service was lost before its reply came, so that nobody knows whether it did what was asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"the service at {address} was lost before it replied; see whether it did what was asked "
            "(`slaq ls`) before you ask again"
        )


class RateError(SlaqError):
    """A user asks too often."""

    def __init__(self, seconds: float) -> None:
        #: After which the next request is taken.
        self.seconds = seconds
        super().__init__(f"too many requests; ask again in {seconds:.1f} seconds")


class RequestError(SlaqError):
    """A request that the service's API does not take; its text says what is wrong with it."""


class ServiceFaultError(SlaqError):
    """The service failed at something by a defect of its own."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        super().__init__(f"the service failed at this by a defect; its log tells more under {reference}")


class TokenError(SlaqError):
    """A token cannot be made or removed."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class UnreachableError(SlaqError):
    """No service answers at an address."""

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(
            f"no service answers at {address} ({reason}); start one with `slaq serve`, or name another in SLAQ_URL"
        )


class StoreError(SlaqError):
    """A database of jobs cannot be used as it was asked to be."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.remedy = remedy
        super().__init__(f"{path}: {found}; {remedy}")


class StoreCorruptError(StoreError):
    """A database of jobs is damaged, or is no such thing."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found, "restore a backup, or name another file")


class StoreFullError(StoreError):
    """A database of jobs cannot be written; nothing of what was to be written was kept."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            path,
            f"it cannot be written ({found})",
            "make room on its disk, and what was kept so far is still there",
        )


class StoreLockedError(StoreError):
    """A database of jobs is open in another process."""

    def __init__(self, path: str, pid: int | None) -> None:
        #: The process that has it open, where that is known.
        self.pid = pid
        who = "another program" if pid is None else f"process {pid}"
        super().__init__(path, f"it is in use by {who}", "stop that first, or name another file")


class StoreVersionError(StoreError):
    """A database of jobs was written by a newer slaq."""

    def __init__(self, path: str, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(
            path, f"its schema is version {version}, and this slaq knows up to {known}", "run a newer slaq"
        )
