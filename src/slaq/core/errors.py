"""Every exception that slaq raises on purpose, under one root."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import ceil
from typing import Any

from typing_extensions import override

from slaq.core.visible import visible

#: Letters of an unknown name that are compared with known ones and shown.
LONGEST_NAME = 100


class SlaqError(Exception):
    """The root of all errors of slaq. The text of each is one sentence for the user.

    SlaqError
    ├── AddressError        an address is malformed, or a service cannot listen on it
    ├── BusyError           a file cannot be read for the moment
    ├── CapacityError       a capacity, or a list of capacities over time, is invalid
    ├── CheckpointError     a checkpoint is damaged, or another user can have written it
    ├── ClosingError        the service is stopping and takes no more requests
    ├── ClusterClosedError  the cluster was shut down and takes no more jobs
    ├── CommandError        a command that cannot be run as a job
    │   └── SupervisorStartError  the process that supervises commands ended before it was ready
    ├── ConflictError       a request does not fit the present state of its job or user
    ├── DataError           features and targets do not fit together
    ├── DuplicateJobError   two jobs have the same id
    ├── ElasticError        elastic training was given something that it cannot work with
    ├── ForbiddenError      a user has no right to do this
    ├── ForecastError       a loss history or a horizon is invalid
    ├── GridError           a grid of parameters, or a command that takes one, has a mistake
    ├── HyperparameterError a hyperparameter has a value that its algorithm cannot train with
    ├── IdentityError       a request has no valid token
    ├── JobFailedError      a job failed, and its program raised no exception
    │   └── JobDivergedError  a job ended with a loss that is no finite number
    ├── JobOptionError      an option of a job has an invalid value
    ├── JobsFileError       a jobs file has mistakes
    ├── LearningRateError   a learning rate cannot be scaled as asked
    ├── LimitError          a limit of a user or of the service is reached
    ├── LossSourceError     a loss pattern or loss file yields no losses
    ├── LostReplyError      the connection to the service broke before its reply came
    ├── MissingExtraError   a library is not installed; one of slaq's extras installs it
    ├── MissingFrameworkError  a framework is not installed whose callback is wanted
    ├── ModelError          a file does not hold the expected model
    ├── PluginError         an installed package adds a policy or engine that cannot be used
    ├── ProgramError        a training program cannot be found or loaded
    ├── StoreError          a database of jobs cannot be used
    │   ├── StoreCorruptError  the file is damaged, or is not a database of slaq
    │   ├── StoreFullError     the file cannot be written: the disk is full or read-only
    │   ├── StoreLockedError   another process has the file open
    │   └── StoreVersionError  a newer slaq wrote the file
    ├── RateError           a user sends too many requests
    ├── RequestError        a request to the service's API is malformed
    ├── ServiceFaultError   the service has a defect
    ├── SettingsError       the settings of a service have mistakes
    ├── SnapshotError       a snapshot of the active jobs cannot be used
    ├── SparkApiError       this version of Spark lacks a private part that slaq uses
    ├── SparkSessionError   jobs cannot be scheduled on a Spark session
    ├── TaskError           a task was lost for good, or its exception cannot be pickled
    ├── ThrottleError       a way to enforce CPU shares does not work on this machine
    ├── TokenError          a token cannot be created, read or revoked
    ├── UnknownDecisionError  there is no such decision, or the store has removed it
    ├── UnknownGroupError   a user has no group of jobs of this name
    ├── UnknownJobError     there is no job of this id
    ├── UnknownNameError    there is no policy, engine or other choice of this name
    │   └── AmbiguousNameError  what was typed is the beginning of several names
    ├── UnreachableError    no service answers at an address
    └── WorkloadError       a workload or recorded curve cannot be read or written

    A subclass carries its data as attributes and writes its own message: what was found, what was
    expected, what to type instead.
    """

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is unpickled by a call with its message, which does not match the
        # arguments of a subclass. So the message and the attributes are restored without that call.
        return restore_error, (type(self), self.args, vars(self))


def restore_error(kind: type[SlaqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SlaqError:
    """Return the unpickled error, from its message and its attributes."""
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(attributes)
    return error


class UnknownNameError(SlaqError):
    """A name is not among the known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        # Whoever gave a long one chose it to take long.
        self.name = name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        self.known = tuple(known)
        close = get_close_matches(name, self.known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        super().__init__(f"there is no {kind} {name!r}; {hint}known: {', '.join(self.known)}")


class AmbiguousNameError(UnknownNameError):
    """What was typed is the beginning of several names."""

    def __init__(self, kind: str, name: str, alike: Iterable[str]) -> None:
        super().__init__(kind, name, alike)
        self.args = (f"{kind} {self.name!r} may be {' or '.join(self.known)}; type more of its name",)


class CapacityError(SlaqError):
    """A capacity, or a list of capacities over time, is invalid."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}; give a number of cores (0 or more), or (seconds, cores) pairs in ascending order of time"
        )


class BusyError(SlaqError):
    """A file cannot be read for the moment."""

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why
        super().__init__(f"{what} cannot be read now ({why}); try again in a moment")


class CheckpointError(SlaqError, ValueError):
    """A checkpoint is damaged, or another user can have written it."""

    def __init__(self, path: str, found: str, remedy: str = "") -> None:
        self.path = path
        self.found = found
        self.remedy = remedy
        super().__init__(f"{path} {found}; {remedy}" if remedy else f"{path} {found}")


class CommandError(SlaqError):
    """A command that cannot be run as a job."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class GridError(SlaqError):
    """A grid of parameters, or a command that takes one, has a mistake."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class SupervisorStartError(CommandError):
    """The process that is to supervise commands ended before it was ready, as when somebody kills it."""

    def __init__(self) -> None:
        super().__init__(
            "the process that supervises commands did not start", "see the log for why; report it"
        )


class ClusterClosedError(SlaqError):
    """The cluster was shut down and takes no more jobs."""

    def __init__(self) -> None:
        super().__init__("this cluster was shut down; make a new one, or submit inside its `with` block")


class DataError(SlaqError):
    """Features and targets do not fit together; the message says what to change."""


class DuplicateJobError(SlaqError):
    """Two jobs have the same id."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is already a job {job_id!r}; choose another id")


class ElasticError(SlaqError):
    """Elastic training was given something that it cannot work with."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ForecastError(SlaqError):
    """A loss history or a horizon is invalid; the message says what to give instead."""


class LearningRateError(SlaqError, ValueError):
    """A learning rate cannot be scaled as asked."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class HyperparameterError(SlaqError):
    """A hyperparameter has a value that its algorithm cannot train with."""

    def __init__(self, algorithm: str, name: str, found: object, expected: str) -> None:
        self.algorithm = algorithm
        self.name = name
        self.found = found
        self.expected = expected
        super().__init__(f"{algorithm}: {name} must be {expected}, not {found!r}")


class MissingExtraError(SlaqError):
    """A library is not installed; one of slaq's extras installs it."""

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(f"{library} is not installed; install it with: pip install 'slaq[{extra}]'")


class MissingFrameworkError(SlaqError):
    """A framework is not installed whose callback is wanted."""

    def __init__(self, framework: str, package: str) -> None:
        self.framework = framework
        self.package = package
        super().__init__(f"{framework} is not installed; install it with: pip install {package}")


class ModelError(SlaqError):
    """A file does not hold the expected model."""

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(f"{path}: {found}; give a file that the model's save() wrote")


class PluginError(SlaqError):
    """A policy or engine that an installed package adds cannot be used."""

    def __init__(self, kind: str, name: str, package: str, found: str) -> None:
        self.kind = kind
        self.name = name
        self.package = package
        self.found = found
        super().__init__(
            f"cannot use the {kind} {name!r} from {package}: {found}; update or uninstall that package"
        )


class LossSourceError(SlaqError):
    """A loss pattern or loss file that yields no losses."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class SnapshotError(SlaqError):
    """A snapshot of the active jobs cannot be used."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"the snapshot cannot be used: {found}; rebuild the jobs from their observations instead"
        )


class SparkApiError(SlaqError):
    """This version of Spark lacks private parts that scheduling needs."""

    def __init__(self, versions: Mapping[str, str], moved: Sequence[tuple[str, str]]) -> None:
        self.versions = dict(versions)
        #: Each missing part, and what was found instead.
        self.moved = tuple(moved)
        here = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        told = "; ".join(f"{what}: {found}" for what, found in self.moved)
        super().__init__(
            f"slaq cannot control this Spark ({here}): {told}; "
            "install the version that slaq was tested with: pip install 'slaq[spark]'"
        )


class SparkSessionError(SlaqError):
    """Jobs cannot be scheduled on this Spark session."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ThrottleError(SlaqError):
    """A way to enforce CPU shares does not work on this machine."""

    def __init__(self, name: str, reason: str, usable: Iterable[str]) -> None:
        self.name = name
        self.reason = reason
        self.usable = tuple(usable)
        super().__init__(
            f"CPU shares cannot be enforced by {name!r} here ({reason}); usable: {', '.join(self.usable)}"
        )


class JobFailedError(SlaqError):
    """A job failed, and its program raised no exception."""

    def __init__(self, job_id: str, reason: str) -> None:
        self.job_id = job_id
        self.reason = reason
        # The reason quotes the end of the log, and Python writes the text of an error to a terminal as it is.
        super().__init__(f"job {job_id!r} failed: {visible(reason, lines=True)}")


class JobDivergedError(JobFailedError):
    """A job ended with a loss that is no finite number."""

    def __init__(self, job_id: str, reason: str) -> None:
        super().__init__(job_id, reason)
        self.args = (f"job {job_id!r} diverged: {reason}; its log and its losses are kept",)


class JobOptionError(SlaqError):
    """An option of a job, or of a cluster, has an invalid value."""

    def __init__(self, option: str, value: object, wanted: str) -> None:
        self.option = option
        self.value = value
        self.wanted = wanted
        super().__init__("; ".join(self.parts))

    @property
    def parts(self) -> tuple[str, str]:
        """What was found, and what to do."""
        return f"{self.option} is {self.value!r}", f"give {self.wanted}"


class TaskError(SlaqError):
    """A task was lost for good, or its exception cannot be pickled."""

    def __init__(self, partition: int, reason: str) -> None:
        #: -1 if unknown.
        self.partition = partition
        self.reason = reason
        where = f"the task of partition {partition}" if partition >= 0 else "a task"
        super().__init__(f"{where} failed: {reason}")


class UnknownDecisionError(SlaqError):
    """There is no such decision, or the store has removed it."""

    def __init__(self, epoch: int | None) -> None:
        self.epoch = epoch
        which = "no decision yet" if epoch is None else f"no decision of epoch {epoch}"
        super().__init__(f"there is {which}; GET /decisions lists the decisions in the store")


class UnknownJobError(SlaqError):
    """There is no job of this id."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id!r}; `slaq ls --all` lists the ids of your jobs")


class UnknownGroupError(SlaqError):
    """A user has no group of jobs of this name."""

    def __init__(self, group: str, owner: str | None = None) -> None:
        self.group = group
        self.owner = owner
        owned = "you have" if owner is None else f"{owner} has"
        super().__init__(
            f"{owned} no group of jobs {group!r}; `slaq ls --all --columns user,group` lists the groups"
        )


class WorkloadError(SlaqError):
    """A workload or a recorded curve cannot be read or written."""

    def __init__(self, path: str, line: int | None, found: str, remedy: str) -> None:
        self.path = path
        #: Counted from 1; None if the whole file is meant.
        self.line = line
        self.found = found
        self.remedy = remedy
        place = path if line is None else f"{path}, line {line}"
        super().__init__(f"{place}: {found}; {remedy}")


class JobsFileError(SlaqError):
    """A jobs file has mistakes; the message lists all of them."""

    def __init__(self, path: str, mistakes: Sequence[tuple[int, str, str]]) -> None:
        self.path = path
        #: For each mistake: its line (counted from 1), what was found, what to write instead.
        self.mistakes = tuple(mistakes)
        told = [f"{path}, line {line}: {found}; {remedy}" for line, found, remedy in mistakes]
        if len(told) > 1:
            told = [f"{path} has {len(told)} mistakes, and nothing was started:", *told]
        super().__init__("\n  ".join(told))


class SettingsError(SlaqError):
    """The settings of a service have mistakes; the message lists all of them."""

    def __init__(self, mistakes: Sequence[tuple[str, str, str]]) -> None:
        #: For each mistake: its place (file and line, flag or variable), what was found, what to write instead.
        self.mistakes = tuple(mistakes)
        told = [f"{where}: {found}; {remedy}" for where, found, remedy in self.mistakes]
        if len(told) > 1:
            told = [f"the settings have {len(told)} mistakes, and nothing was started:", *told]
        super().__init__("\n  ".join(told))


class ProgramError(SlaqError):
    """A training program cannot be found or loaded."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class AddressError(SlaqError):
    """An address is malformed, or a service cannot listen on it."""

    def __init__(self, address: str, found: str, remedy: str) -> None:
        self.address = address
        self.found = found
        self.remedy = remedy
        super().__init__(f"{address}: {found}; {remedy}")


class ClosingError(SlaqError):
    """The service is stopping and takes no more requests."""

    def __init__(self) -> None:
        super().__init__("the service is stopping; try again when it has started again")


class ConflictError(SlaqError):
    """A request does not fit the present state of its job or user."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class ForbiddenError(SlaqError):
    """A user has no right to do this."""

    def __init__(self, user: str, what: str) -> None:
        self.user = user
        #: Completes the sentence "the user may not ...".
        self.what = what
        super().__init__(f"{user} may not {what}; ask an admin of this service")


class IdentityError(SlaqError):
    """A request has no valid token."""

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"{found}; put a token from an admin (`slaq token create`) into the variable SLAQ_TOKEN"
        )


class LimitError(SlaqError):
    """A limit of a user or of the service is reached."""

    def __init__(self, found: str, remedy: str) -> None:
        self.found = found
        self.remedy = remedy
        super().__init__(f"{found}; {remedy}")


class LostReplyError(SlaqError):
    """The connection to the service broke before its reply came; the request may or may not have taken effect."""

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"the connection to the service at {address} broke before its reply came; "
            "check with `slaq ls` whether the request took effect before you repeat it"
        )


class RateError(SlaqError):
    """A user sends too many requests."""

    def __init__(self, seconds: float) -> None:
        #: Seconds until the next request is accepted.
        self.seconds = seconds
        # Rounded up, so that a wait of 10 ms does not read as 0.0 seconds.
        super().__init__(f"too many requests; wait {max(ceil(10 * seconds), 1) / 10:.1f} seconds")


class RequestError(SlaqError):
    """A request to the service's API is malformed; the message says what to change."""


class ServiceFaultError(SlaqError):
    """The service has a defect."""

    def __init__(self, reference: str) -> None:
        self.reference = reference
        super().__init__(
            f"the request failed because of a defect in the service; its log has the traceback under {reference}"
        )


class TokenError(SlaqError):
    """A token cannot be created, read or revoked."""

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
            f"no service answers at {address} ({reason}); start one with `slaq serve`, "
            "or set SLAQ_URL to another service's address"
        )


class StoreError(SlaqError):
    """A database of jobs cannot be used."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.remedy = remedy
        super().__init__(f"{path}: {found}; {remedy}")


class StoreCorruptError(StoreError):
    """The file is damaged, or is not a database of slaq."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(path, found, "restore a backup, or name another file")


class StoreFullError(StoreError):
    """The file cannot be written; the failed transaction left no trace."""

    def __init__(self, path: str, found: str) -> None:
        super().__init__(
            path,
            f"the database cannot be written ({found})",
            "free space on its disk; what was stored before is intact",
        )


class StoreLockedError(StoreError):
    """Another process has the file open."""

    def __init__(self, path: str, pid: int | None) -> None:
        #: The process that has the file open; None if unknown.
        self.pid = pid
        who = "another program" if pid is None else f"process {pid}"
        super().__init__(path, f"the database is in use by {who}", f"stop {who} first, or name another file")


class StoreVersionError(StoreError):
    """A newer slaq wrote the file."""

    def __init__(self, path: str, version: int, known: int) -> None:
        self.version = version
        self.known = known
        super().__init__(
            path,
            f"the database has schema version {version}, and this slaq reads versions up to {known}",
            "upgrade slaq",
        )
