"""What users submit to the service and what it shows them: values that JSON can hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from slaq.core.demand import Sizes
from slaq.core.errors import CommandError
from slaq.core.explanation import Standing
from slaq.core.job import JobState
from slaq.jobs.grid import Kept, kept
from slaq.jobs.options import EXTERNAL, SERVICE_COMMAND, SERVICE_PROGRAM, WAITS, OptionSet, ServiceOptions

#: The options that a job takes, by what it runs.
OPTION_SETS: Mapping[str, OptionSet[Any]] = {
    "command": SERVICE_COMMAND,
    "program": SERVICE_PROGRAM,
    "external": EXTERNAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The user who sends a request."""

    user: str
    #: The Unix user of that name; None where this machine has none.
    uid: int | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job as its owner asks for it. Exactly one of `command`, `program` and `external` is given."""

    #: The program and its arguments, as they are: no shell reads them.
    command: tuple[str, ...] | None = None
    #: What a [[job]] table of a jobs file says of an algorithm or a program: run by slaq in a process of its own.
    program: Mapping[str, Any] | None = None
    #: Runs elsewhere: the service starts nothing and takes its reports. With `max_cores` the job competes for cores
    #: of this machine, and the service says how many it may use; without, it is only watched.
    external: bool = False
    #: Those that are given; `completed` adds the others.
    options: ServiceOptions = field(default_factory=ServiceOptions)

    @property
    def kind(self) -> str:
        """Which of the three is given; raises CommandError unless exactly one is."""
        given = [name for name in OPTION_SETS if getattr(self, name) not in (None, False)]
        if len(given) != 1:
            found = " and ".join(given) if given else "nothing to run"
            raise CommandError(f"the job has {found}", "give exactly one of command, program and external")
        return given[0]

    def completed(self) -> "Submission":
        """Return the submission with every option that it takes; raises a SlaqError where one cannot be taken."""
        whole = replace(self, options=OPTION_SETS[self.kind].complete(self.options))
        return whole if self.program is None else whole._with_parameters(self.program)

    def _with_parameters(self, program: Mapping[str, Any]) -> "Submission":
        """Return a program's submission with its parameters in both places: its table, and the job's options."""
        own, given = program.get("parameters"), self.options["parameters"]
        if not isinstance(own or {}, Mapping):
            return self
        parameters = {**given, **(own or {})}
        table = {**program, "parameters": parameters} if given else program
        options = cast(ServiceOptions, {**self.options, "parameters": kept(parameters)})
        return replace(self, program=table, options=options)

    def checked(self) -> "Submission":
        """Return the submission with the options that are given, as slaq keeps them; raises as `completed` does."""
        complete = self.completed().options
        given = {name: value for name, value in complete.items() if name in self.options}
        return replace(self, options=cast(ServiceOptions, given))

    def waiting_for(self, ids: Mapping[str | None, str]) -> "Submission":
        """Return the submission with the ids of the jobs that it waits for by name."""
        named = {
            name: tuple(ids.get(job, job) for job in self.options[name])  # type: ignore[literal-required]
            for name in WAITS
            if self.options.get(name)
        }
        return replace(self, options=cast(ServiceOptions, {**self.options, **named}))

    def as_json(self) -> dict[str, Any]:
        """Return the submission as the API takes it and the store keeps it: options beside what the job runs."""
        return {"command": self.command, "program": self.program, "external": self.external, **self.options}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Submission":
        """Return a submission that the store kept; options that it did not know yet have their defaults."""
        command = found.get("command")
        work = cls(
            command=None if command is None else tuple(command),
            program=found.get("program"),
            external=found.get("external", False),
        )
        taken = OPTION_SETS[work.kind].options
        options = {name: found.get(name, option.default) for name, option in taken.items()}
        return replace(work, options=cast(ServiceOptions, options))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """When a job is expected to be good enough; moments are Unix seconds, None for never."""

    #: Expected moments of 90% and 95% of its whole reduction, with the cores it holds now.
    at_90: float | None = None
    at_95: float | None = None
    #: The probability of making its target by its deadline; None where it has none.
    chance: float | None = None
    #: Whether it is forecast to miss its target even with all the cores it could use.
    out_of_reach: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as the service shows it. Times are Unix seconds."""

    id: str
    owner: str
    state: JobState
    #: Why it ended, or why it is not started yet; in words that go on from its name.
    reason: str
    #: "command", "program" or "external".
    work: str
    #: One line that says what it runs.
    summary: str
    trains: bool
    #: Whether its losses are numbers that should rise.
    maximize: bool
    tags: tuple[str, ...]
    #: The group it belongs to; None for no group.
    group: str | None
    #: What tells it from others of its group.
    parameters: Mapping[str, Kept]
    #: The policy of its group, as it asked for; None for that of the cluster. Whether it is ended where it loses.
    policy: str | None
    stop_losers: bool
    weight: float
    min_cores: float
    max_cores: float | None
    sizes: Sizes
    #: In bytes, as declared; None if undeclared.
    memory: int | None
    target_loss: float | None
    stop_at: float | None
    deadline: float | None
    #: The jobs that must have completed before it starts, and those that must have ended.
    after: tuple[str, ...]
    after_any: tuple[str, ...]
    #: When it is due.
    arrival: float
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    #: Cores it holds.
    cores: float
    #: What it last said it can use, by the names of `slaq.can_use`; None where it said nothing.
    can_use: Mapping[str, Any] | None
    #: The last iteration reported; -1 before the first loss.
    iteration: int
    #: How many iterations it makes in all, as it reported or `max_iterations` says; None where neither says.
    total: int | None
    #: Where its losses come from, in words: the series, its place, and what else there is; empty until known.
    loss_source: str
    #: Why no losses can be read, or not those asked for, and what to type instead; empty where all is well.
    loss_trouble: str
    #: The threads that a command got when it last began, and why; None before, and for other jobs.
    threads: int | None
    threads_reason: str
    #: The most bytes of memory that its processes took together; 0 if unknown.
    memory_peak: int
    first_loss: float | None
    loss: float | None
    best_loss: float | None
    #: The share of its whole reduction done so far, as far as known.
    reduction: float
    diverged: bool
    #: Where its loss is expected to end beside the best of its search; None for a job of no search.
    standing: Standing | None
    cpu_seconds: float
    #: How often it was started.
    attempts: int
    directory: str
    prospect: Prospect


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """What a user may have, and what their jobs hold."""

    user: str
    weight: float
    #: None for no limit.
    max_jobs: int | None
    max_running: int | None
    max_cores: float | None
    queued: int
    running: int
    paused: int
    #: Cores that their jobs hold.
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The state of the cluster."""

    version: str
    policy: str
    #: Cores that can be handed out now, and those handed out.
    capacity: float
    granted: float
    epoch: int
    epoch_seconds: float
    started_at: float
    now: float
    queued: int
    running: int
    paused: int
    #: How CPU shares are enforced; None before the first job.
    throttle: str | None
    #: What is wrong, in one sentence each; empty when all is well.
    troubles: tuple[str, ...] = ()


NoticeKind = Literal[
    "job.submitted",
    "job.waiting",
    "job.started",
    "job.observed",
    "job.source",
    "job.paused",
    "job.resumed",
    "job.changed",
    "job.ended",
    "job.notified",
    "decision",
    "cluster.changed",
    # Notices were lost: the listener was too slow, or away for too long.
    "missed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One event of the event stream."""

    #: Ascending, never used twice, also over restarts.
    number: int
    kind: NoticeKind
    at: float
    job_id: str | None
    #: The owner of the job; None where the notice is about the cluster.
    owner: str | None
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of what a job printed."""

    offset: int
    data: bytes
    next_offset: int
    #: Whether the log ends with this piece.
    ended: bool
