"""What a service is composed of: the interfaces it consumes, and one value that holds them all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slaq.core.admission import Rule as AdmissionRule
from slaq.core.allocation import Policy
from slaq.core.explanation import PolicyRule
from slaq.core.roster import Roster
from slaq.ports import Clock, LiveEngine
from slaq.service.kinds import Kinds
from slaq.stores.sqlite import SqliteStore


class Policies(Protocol):
    """The policies that a live cluster can decide by, by name."""

    def make(self, name: str) -> Policy:
        """Return the policy of that name; raises UnknownNameError."""
        ...

    def rule(self, name: str) -> PolicyRule:
        """Return what explanations have to know of the policy of that name."""
        ...


class Watched(Protocol):
    """A background thread whose health is told."""

    @property
    def name(self) -> str:
        """What it does, in a word."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it runs, or is not needed yet."""
        ...

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong, in one sentence each, without names of jobs and files; empty when all is well."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that has ended, and the command that its owner wants to be run then."""

    owner: str
    command: str
    #: Where it is run; None for the owner's home.
    cwd: str | None
    #: Variables of its environment.
    env: Mapping[str, str]


class Notifier(Protocol):
    """Runs what owners asked to be run when their jobs have ended. May be called from any thread."""

    def check(self, owner: str) -> None:
        """Raise a SlaqError where nothing can be run for that owner."""
        ...

    def notify(self, job: EndedJob, told: Callable[[str], None]) -> None:
        """Run a job's command soon, and call `told` with what went wrong, or with nothing; returns at once."""
        ...

    def close(self) -> None:
        """End what runs, and run nothing more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a service is composed of."""

    store: SqliteStore
    #: Begins no earlier than what is stored, and is woken by the engine when a job has ended.
    clock: Clock
    engine: LiveEngine
    kinds: Kinds
    policies: Policies
    roster: Roster
    #: Into how many units decisions cut a core.
    units_per_core: int
    #: Runs the commands of jobs that have ended.
    notifier: Notifier
    #: What the machine itself allows: reasons to hold jobs back beside those that settings and users give.
    admission: Sequence[AdmissionRule] = ()
    #: Returns in a word how the engine enforces shares; None before the first job.
    enforcement: Callable[[], str | None] = lambda: None
    #: The threads of the engine.
    threads: Sequence[Watched] = ()
    #: Deletes what folders of removed jobs have left, until it is told to stop; returns by job why something is
    #: left still.
    delete_removed: Callable[[Callable[[], bool]], Mapping[str, str]] = lambda stop: {}
