"""The options of a job: the one definition that Python, jobs files, the command line and the API take them from.

Each option is declared once, with its type, its range, its default and its help. A `TypedDict` says which options
one way of submitting a job takes: its keys are the keywords of the Python call, the keys of a jobs file, and the
fields of the API; with dashes they are the options of `slaq submit`.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar, get_args, get_type_hints

from slaq.core.errors import JobOptionError, UnknownNameError
from slaq.jobs.grid import LONGEST_VALUE, MOST_PARAMETERS, Kept
from slaq.jobs.option_types import (
    OptionType,
    choice,
    flag,
    loss_pattern,
    number,
    parameters,
    path,
    seconds,
    shown,
    size_in_bytes,
    sizes,
    text,
    texts,
    variables,
    whole,
)

#: A name is also that of a folder and part of an address.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
TAG = re.compile(r"[\w.:/@+-]{1,100}")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
#: Options that are paths of what is there already. A service takes them as whole paths only.
PATHS = ("cwd", "checkpoint")
#: Options that name other jobs to wait for.
WAITS = ("after", "after_any")
#: The policy that a group may have of its own.
BEST_FIRST = "best-first"
#: Bounds on what one job may carry.
MOST_GRACE = 600.0
#: The most seconds that a change of size can be said to cost.
MOST_CHANGE = 86_400.0
MOST_CORES, MOST_VARIABLES, MOST_TAGS, LONGEST_TEXT = 1e6, 500, 50, 100_000


class OnNan(StrEnum):
    """What becomes of a job whose loss is no finite number."""

    #: It is ended, as diverged.
    STOP = "stop"
    #: It goes on; it has diverged if it ends with such a loss.
    GO_ON = "go-on"


class IfLost(StrEnum):
    """What happens to a job that was running when the service ended unexpectedly."""

    #: Run again; the job resumes from files in its folder, and its loss curve continues.
    RESUME = "resume"
    #: Run again from the beginning, with a fresh curve.
    RESTART = "restart"
    #: Not run again: reported as failed.
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a job."""

    type: OptionType
    #: One sentence.
    help: str
    default: Any = None
    #: What the default means, for a person; empty where it says so itself.
    usual: str = ""
    #: Its key in the `TypedDict`.
    name: str = ""
    #: Other words for it at the command line.
    also: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def described(self) -> str:
        """Its help with its default."""
        usual = self.usual or ("" if self.default in ((), {}) else str(shown(self.default)).lower())
        return f"{self.help}  [default: {usual}]" if usual else self.help

    def read(self, value: object) -> Any:
        """Return the value as slaq keeps it; raises JobOptionError. None stands for a default of None."""
        if value is None and self.default is None:
            return None
        try:
            return self.type.read(value)
        except ValueError:
            raise JobOptionError(self.name, shown(value), self.type.wanted) from None


_WEIGHT = number(least=1e-6, most=1e6)
_NAME = text(
    "up to 80 letters, digits, '_', '.' or '-', the first a letter, a digit or '_'",
    metavar="NAME",
    pattern=NAME,
)
_COUNT = whole(least=1, most=10**9)

Weight = Annotated[
    float,
    Option(
        type=_WEIGHT,
        help="How much the job counts against others: multiplies its gain, or its fair share.",
        default=1.0,
    ),
]
MinCores = Annotated[
    float,
    Option(
        type=number("a number of cores", least=0, most=MOST_CORES),
        help="Cores that the job holds at all times, as far as there are enough.",
        default=0.0,
    ),
]
MaxCores = Annotated[
    float | None,
    Option(
        type=number("a number of cores", above=0, most=MOST_CORES),
        help="Cores beyond which the job gets none.",
        usual="as many as the job can use",
    ),
]
Sizes = Annotated[
    Literal["any", "whole"] | Sequence[float],
    Option(
        type=sizes(MOST_CORES),
        help="Numbers of cores that the job can run with: any fraction, whole numbers, or the listed ones.",
        default="any",
    ),
]
Worth = Annotated[
    float | None,
    Option(
        type=number("a number of workers", least=1, most=MOST_CORES),
        help="n workers advance the training like worth * n / (worth - 1 + n) single ones: never like more.",
        usual="n workers advance it like n",
    ),
]
ChangeSeconds = Annotated[
    float | None,
    Option(
        type=number("a number of seconds", least=0, most=MOST_CHANGE),
        help="Seconds that a change of size costs the job.",
        usual="unknown",
    ),
]
Tags = Annotated[
    Sequence[str],
    Option(
        type=texts(
            f"a list of at most {MOST_TAGS} words of letters, digits and . : / @ + _ -",
            text("a tag", metavar="TAG", longest=100, pattern=TAG),
            most=MOST_TAGS,
        ),
        help="Words to find the job by.",
        default=(),
    ),
]
Memory = Annotated[
    int | None,
    Option(
        type=size_in_bytes(),
        help="Memory the job declares: it starts once so much is free. For a program this is also the limit of the "
        "driver, and of each task, separately.",
        usual="no limit",
    ),
]
_RETRY = Option(
    type=whole(least=0, most=10**6),
    help="How often the job is started again after a failure: a program whose driver is lost, from its last "
    "checkpoint; a command that fails, from its beginning.",
    usual="2 for a program, 0 for a command",
)
Grace = Annotated[
    float | None,
    Option(
        type=seconds(zero=True, most=MOST_GRACE),
        help="How long the job has to end once it is told to, before it is killed.",
        usual="30, or what the service is set to",
    ),
]
Cwd = Annotated[
    str | os.PathLike[str] | None,
    Option(type=path("the path of a folder"), help="The folder that the job runs in.", usual="here"),
]
Env = Annotated[
    Mapping[str, str],
    Option(
        type=variables(
            f"at most {MOST_VARIABLES} variables as names with texts, {LONGEST_TEXT:,} characters in all",
            most=MOST_VARIABLES,
            longest=LONGEST_TEXT,
        ),
        help="Variables of the job's environment.",
        default={},
    ),
]


class JobOptions(TypedDict, total=False):
    """What every job takes."""

    name: Annotated[
        str | None,
        Option(type=_NAME, help="What the job is called.", usual="after what the job runs"),
    ]
    weight: Weight
    min_cores: MinCores
    max_cores: MaxCores
    sizes: Sizes
    target_loss: Annotated[
        float | None,
        Option(
            type=number(least=-1e300, most=1e300),
            help="The loss you are content with: the job's curve is taken to end there.",
            usual="where the curve is forecast to end",
        ),
    ]
    stop_at: Annotated[
        float | None,
        Option(
            type=number("a share", above=0, most=1),
            help="End the job, as completed, once this share of its whole reduction is done, such as 0.95.",
            usual="never",
        ),
    ]
    deadline: Annotated[
        float | None,
        Option(
            type=seconds(),
            help="How long after its submission the job is to reach its target: the target loss, else the share of "
            "stop-at, else 95% of its reduction.",
            usual="no deadline",
        ),
    ]
    max_iterations: Annotated[
        int | None,
        Option(type=_COUNT, help="End the job, as completed, after so many iterations.", usual="never"),
    ]
    on_nan: Annotated[
        Literal["stop", "go-on"] | OnNan | None,
        Option(
            type=choice(tuple(OnNan)),
            help="What happens when the loss is not a finite number: the job is ended as diverged, or goes on.",
            usual="stop for a job of a group, else go-on",
        ),
    ]
    trains: Annotated[
        bool,
        Option(
            type=flag(),
            help="Whether the job competes by its loss. Other work holds its fair share instead.",
            default=True,
        ),
    ]
    maximize: Annotated[
        bool,
        Option(
            type=flag(),
            help="Whether what the job reports as its loss should rise, as an accuracy or a reward does.",
            default=False,
        ),
    ]
    arrival: Annotated[
        float,
        Option(
            type=seconds(zero=True),
            help="How long after its submission the job is due: it does not start before.",
            default=0.0,
        ),
    ]
    after: Annotated[
        Sequence[str],
        Option(
            type=texts(
                "a list of at most 100 ids of jobs", text("an id", metavar="JOB", longest=200), most=100
            ),
            help="Jobs that must have completed before this one starts. Where one fails, diverges or is cancelled, "
            "this one is cancelled.",
            default=(),
        ),
    ]
    after_any: Annotated[
        Sequence[str],
        Option(
            type=texts(
                "a list of at most 100 ids of jobs", text("an id", metavar="JOB", longest=200), most=100
            ),
            help="Jobs that must have ended, in whatever way, before this one starts.",
            default=(),
        ),
    ]
    group: Annotated[
        str | None,
        Option(
            type=_NAME,
            help="The group that the job belongs to: its jobs are listed, ranked and steered together.",
            usual="none; for the jobs of a grid one of their own",
        ),
    ]
    policy: Annotated[
        Literal["best-first"] | None,
        Option(
            type=choice((BEST_FIRST,)),
            help="How the jobs of its group that say so share what they hold together: best-first is for a "
            "search, of which the best job is wanted soon.",
            usual="that of the cluster",
        ),
    ]
    stop_losers: Annotated[
        bool,
        Option(
            type=flag(),
            help="Whether the job is ended, as beaten, once it has practically no chance to become the best of its "
            "search.",
            default=False,
        ),
    ]


class FitOptions(JobOptions, total=False):
    """What a fit on Spark takes."""

    time_budget: Annotated[
        float | None,
        Option(type=seconds(), help="End the job, as completed, after it has run so long.", usual="never"),
    ]


class SparkProgramOptions(FitOptions, total=False):
    """What a training program on Spark takes."""

    partitions: Annotated[
        int | None,
        Option(type=_COUNT, help="How many parts the data is cut into.", usual="four for each core"),
    ]


class ProgramOptions(SparkProgramOptions, total=False):
    """What a training program on this machine takes."""

    memory: Memory
    retry: Annotated[int, replace(_RETRY, default=2)]
    task_timeout: Annotated[
        float | None,
        Option(
            type=seconds(), help="How long a task may take: one that takes longer fails.", usual="no limit"
        ),
    ]
    checkpoint: Annotated[
        str | os.PathLike[str] | None,
        Option(
            type=path("the path of a checkpoint"),
            help="The file `checkpoint` that an earlier run of the program left: the program goes on from there.",
            usual="none",
        ),
    ]


class CommandOptions(FitOptions, total=False):
    """What a command takes."""

    memory: Memory
    threads: Annotated[
        int | None,
        Option(
            type=whole(least=1, most=10_000),
            help="Threads that number libraries are told to use, as in OMP_NUM_THREADS.",
            usual="as many as the cores that the job can expect to hold when it starts",
        ),
    ]
    retry: Annotated[int, replace(_RETRY, default=0)]
    loss_pattern: Annotated[
        str | None,
        Option(type=loss_pattern(), help="Finds the losses in the lines that the job prints.", usual="none"),
    ]
    loss_file: Annotated[
        str | os.PathLike[str] | None,
        Option(
            type=path("the path of a file"),
            help="The file that the job writes its losses to: CSV with a header, or JSON Lines.",
            usual="none",
        ),
    ]
    loss_column: Annotated[
        str,
        Option(
            type=text("the name of a column", metavar="NAME", longest=256),
            help="The column, or key, of the loss file that holds the loss.",
            default="loss",
        ),
    ]
    loss: Annotated[
        str | None,
        Option(
            type=text("the name of a series", metavar="NAME", longest=100),
            help="The series to read, by its name, of those that the job prints or writes to known files.",
            usual="the most likely one",
        ),
    ]
    grace: Grace
    cwd: Cwd
    env: Env


class _OwnedOptions(TypedDict, total=False):
    """Further options of every job of a service."""

    tags: Tags
    parameters: Annotated[
        Mapping[str, Kept],
        Option(
            type=parameters(
                f"at most {MOST_PARAMETERS} parameters as names with numbers, true, false, or texts of at most "
                f"{LONGEST_VALUE:,} letters",
                most=MOST_PARAMETERS,
            ),
            help="What tells the job from others of its group: kept with the job and shown. A program takes them "
            "as arguments, and in a command that is typed each replaces its {name}.",
            default={},
            also=("--param", "-p"),
        ),
    ]
    notify: Annotated[
        str | None,
        Option(
            type=text("a command of at most 10,000 characters", metavar="COMMAND", longest=10_000),
            help="A command for the shell, run as the job's owner when the job has ended; SLAQ_JOB and SLAQ_STATE "
            "say which and how.",
            usual="none",
        ),
    ]
    user: Annotated[
        str | None,
        Option(
            type=text("the name of a user", metavar="NAME", longest=64, pattern=USER),
            help="Whose job it is, where an admin submits for somebody else.",
            usual="yourself",
        ),
    ]


class _ResumedOptions(_OwnedOptions, total=False):
    """Further options of jobs that the service runs itself."""

    if_lost: Annotated[
        Literal["resume", "restart", "fail"] | IfLost,
        Option(
            type=choice(tuple(IfLost)),
            help="What becomes of the job when the service was lost while it ran: it is run again and its curve "
            "goes on, it is run again from the beginning, or it counts as failed.",
            default="resume",
        ),
    ]


class ServiceProgramOptions(ProgramOptions, _ResumedOptions, total=False):
    """What a training program takes that a service runs."""

    grace: Grace
    cwd: Cwd
    env: Env
    python: Annotated[
        str | os.PathLike[str] | None,
        Option(
            type=path("the path of a Python interpreter"),
            help="The interpreter of a program.",
            usual="the one that runs slaq",
        ),
    ]


class ServiceCommandOptions(CommandOptions, _ResumedOptions, total=False):
    """What a command takes that a service runs."""


class ExternalOptions(JobOptions, _OwnedOptions, total=False):
    """What a job takes that runs elsewhere and reports to a service."""


class ServiceOptions(ServiceProgramOptions, ServiceCommandOptions, ExternalOptions, total=False):
    """What any job of a service takes."""


class DemandOptions(TypedDict, total=False):
    """What a running job may report that it can use."""

    min_cores: MinCores
    max_cores: MaxCores
    sizes: Sizes
    worth: Worth
    change_seconds: ChangeSeconds


class JobChanges(TypedDict, total=False):
    """What may be changed of a job while it is under way."""

    weight: Weight
    max_cores: MaxCores
    tags: Tags


class ClusterOptions(TypedDict, total=False):
    """What a cluster of this machine takes, in the user's process or as a service."""

    cores: Annotated[
        int | None, Option(type=whole(least=1, most=10**6), help="Cores to hand out.", usual="all")
    ]
    units_per_core: Annotated[
        int | None,
        Option(
            type=whole(least=1, most=10**6),
            help="Units into which decisions cut a core.",
            usual="so that there are about 64 units",
        ),
    ]
    epoch_seconds: Annotated[
        float,
        Option(
            type=number("seconds", above=0, most=3600),
            help="Seconds from one decision to the next.",
            default=1.0,
        ),
    ]
    concurrent: Annotated[
        int | None,
        Option(
            type=whole(least=1, most=10**6),
            help="Jobs that may have started and not ended; others wait in the queue.",
            usual="as many as there is room for",
        ),
    ]


class LimitOptions(TypedDict, total=False):
    """What an admin may limit of a user."""

    weight: Annotated[
        float,
        Option(type=_WEIGHT, help="Their part in the sharing between users.", default=1.0),
    ]
    max_jobs: Annotated[
        int | None,
        Option(type=whole(least=0, most=10**9), help="Jobs that have not ended.", usual="no limit"),
    ]
    max_running: Annotated[
        int | None,
        Option(type=whole(least=0, most=10**9), help="Jobs that run at a time.", usual="no limit"),
    ]
    max_cores: Annotated[
        float | None,
        Option(
            type=number("a number of cores", above=0, most=MOST_CORES),
            help="Cores held at once.",
            usual="no limit",
        ),
    ]


Options = TypeVar("Options", bound=Mapping[str, object])
Function = TypeVar("Function", bound=Callable[..., Any])


class OptionSet(Generic[Options]):
    """The options that one way of submitting a job takes, in the order of their declaration."""

    def __init__(self, noun: str, declared: type[Options]) -> None:
        #: What takes them, for a person.
        self.noun = noun
        hints = get_type_hints(declared, include_extras=True)
        self._hints = {name: get_args(hint)[0] for name, hint in hints.items()}
        self.options: Mapping[str, Option] = {
            name: replace(get_args(hint)[1], name=name) for name, hint in hints.items()
        }

    def check_names(self, names: Iterable[str]) -> None:
        """Raise UnknownNameError for a name that is not an option of this set."""
        for name in names:
            if name not in self.options:
                raise UnknownNameError(f"{self.noun} option", name, self.options)

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the given options, each checked alone and as slaq keeps it; raises SlaqError."""
        self.check_names(given)
        return {name: self.options[name].read(value) for name, value in given.items()}

    def complete(self, given: Options) -> Options:
        """Return every option of the set, as given and checked or with its default; raises SlaqError."""
        found = {name: option.default for name, option in self.options.items()} | self.read(given)
        conflict = conflict_in(found)
        if conflict is not None:
            raise conflict
        return found  # type: ignore[return-value]

    def takes(self, function: Function) -> Function:
        """Let `help` and editors show the options as keywords of a function that takes them as `**options`."""
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=self._hints[name]
            )
            for name, option in self.options.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *keywords])  # type: ignore[attr-defined]
        return function


def waits(options: Mapping[str, Any]) -> bool:
    """Return whether a job waits for others, or for a moment: what it runs may be made until then."""
    return any(options.get(name) for name in (*WAITS, "arrival"))


def conflict_in(options: Mapping[str, Any]) -> JobOptionError | None:
    """Return the conflict between options that are each valid; None if there is none."""
    least, most = options.get("min_cores") or 0.0, options.get("max_cores")
    if most is not None and least > most:
        return JobOptionError("min_cores", shown(least), f"at most max_cores, which is {most:g}")
    listed = options.get("sizes", "any")
    if most is not None and not isinstance(listed, str) and listed[0] > most:
        return JobOptionError("sizes", shown(listed), f"a size that is at most max_cores, which is {most:g}")
    return _conflict_of_search(options) or _conflict_of_losses(options)


def _conflict_of_search(options: Mapping[str, Any]) -> JobOptionError | None:
    """Return the conflict between the options of a search; None if there is none.

    Where `group` is left out altogether, it is not known yet.
    """
    policy = options.get("policy")
    if policy is not None and options.get("group", "unknown") is None:
        return JobOptionError("policy", policy, "a group too, whose jobs are compared with one another")
    if policy is not None and options.get("trains") is False:
        return JobOptionError("policy", policy, "trains too: jobs are compared by their losses")
    if options.get("stop_losers") and policy is None:
        return JobOptionError(
            "stop_losers", True, f"the policy {BEST_FIRST} too, which says who the losers are"
        )
    return None


def check_search(asked: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> None:
    """Raise JobOptionError where a job of a search differs in direction from others of it that have not ended."""
    if asked["policy"] is None:
        return
    for other in others:
        same = other["policy"] is not None and other["group"] == asked["group"]
        if same and other["maximize"] != asked["maximize"]:
            wanted = f"{str(other['maximize']).lower()}, as the jobs of {asked['group']!r} that it is compared with"
            raise JobOptionError("maximize", asked["maximize"], wanted)


def losses_are_searched(options: Mapping[str, Any]) -> bool:
    """Return whether the losses of a command are looked for where it names no pattern and no file.

    What should rise is not guessed: it is reported, or named.
    """
    return bool(options["trains"]) and (not options["maximize"] or options.get("loss") is not None)


def _conflict_of_losses(options: Mapping[str, Any]) -> JobOptionError | None:
    """Return the conflict between the options that say where losses come from; None if there is none."""
    pattern, file, series = (options.get(name) for name in ("loss_pattern", "loss_file", "loss"))
    if pattern is not None and file is not None:
        return JobOptionError("loss_file", file, "either loss_pattern or loss_file, not both")
    if options.get("loss_column", "loss") != "loss" and file is None:
        return JobOptionError("loss_column", options["loss_column"], "loss_file too, the file of that column")
    if series is not None and (pattern is not None or file is not None):
        return JobOptionError("loss", series, "either loss, or loss_pattern or loss_file")
    if options.get("trains") is False and any(one is not None for one in (pattern, file, series)):
        return JobOptionError("trains", False, "true, or neither loss_pattern nor loss_file nor loss")
    return None


FIT = OptionSet("Spark fit", FitOptions)
SPARK_PROGRAM = OptionSet("Spark program", SparkProgramOptions)
PROGRAM = OptionSet("program", ProgramOptions)
COMMAND = OptionSet("command", CommandOptions)
SERVICE_PROGRAM = OptionSet("program", ServiceProgramOptions)
SERVICE_COMMAND = OptionSet("command", ServiceCommandOptions)
EXTERNAL = OptionSet("external job", ExternalOptions)
#: Every option of a job of a service.
SERVICE = OptionSet("job", ServiceOptions)
DEMAND = OptionSet("demand", DemandOptions)
CHANGES = OptionSet("job", JobChanges)
LIMITS = OptionSet("user", LimitOptions)
CLUSTER = OptionSet("cluster", ClusterOptions)
