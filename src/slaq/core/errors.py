"""The exceptions a user of slaq may meet, all under one root."""

from collections.abc import Iterable
from difflib import get_close_matches


class SlaqError(Exception):
    """The root of every error that slaq raises on purpose; its text is one sentence for the user.

    SlaqError
    ├── CapacityError       a capacity, or its course over time, that no cluster can have
    ├── DataError           features and targets that do not fit together
    ├── DuplicateJobError   a job id was given to two jobs
    ├── ForecastError       a history or horizons that no forecast can be made from
    ├── UnknownJobError     a job id was named that nobody submitted
    ├── WorkloadError       a workload or recorded curve could not be read or written
    └── UnknownNameError    a policy, engine or other choice was named that does not exist

    A subclass carries its data as attributes and writes its own message: what was found, what was
    expected, what to type instead.
    """


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


class DataError(SlaqError):
    """Features and targets that no job can be trained on; its text says what is wrong with them."""


class DuplicateJobError(SlaqError):
    """A job id was given to two jobs."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is a job {job_id!r} already; give each job an id of its own")


class ForecastError(SlaqError):
    """A history, or horizons, that no forecast can be made from; its text says what to give instead."""


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
