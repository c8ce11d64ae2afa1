"""The contents of a jobs file as values: the cluster, the jobs with their work and options, the known names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Features and targets as arrays, or no targets: what `Cluster.submit` takes as data.
Data = tuple[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """The [cluster] table of the file; None for a key that is not given."""

    engine: str | None = None
    #: Of a Spark application.
    master: str | None = None
    cores: int | None = None
    policy: str | None = None
    epoch_seconds: float | None = None
    units_per_core: int | None = None
    concurrent: int | None = None
    results: Path | None = None
    report: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How an algorithm is made from a job's parameters."""

    #: Its hyperparameters.
    names: tuple[str, ...]
    #: Returns the training program; raises a SlaqError for a value that the algorithm cannot have.
    make: Callable[[Mapping[str, Any]], Any]
    #: Whether it learns targets from features, rather than features alone.
    needs_targets: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The names a file may use."""

    policies: Sequence[str]
    #: The usual one first.
    engines: Sequence[str]
    algorithms: Mapping[str, Recipe]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmWork:
    """One of slaq's own algorithms on some data."""

    algorithm: str
    program: Any
    data: Data


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramWork:
    """A training program of the user's own, its parameters filled in."""

    #: As the file names it.
    reference: str
    program: Callable[..., Any]
    data: Data | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FitWork:
    """A function of the user's own that fits on Spark, its parameters filled in."""

    #: As the file names it.
    reference: str
    #: Takes a Spark session, or that and a context.
    fit: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandWork:
    """Any command."""

    argv: tuple[str, ...]


Work = AlgorithmWork | ProgramWork | FitWork | CommandWork


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """One job of the file."""

    name: str
    work: Work
    #: The options of a job that the file gives, checked, without the name; paths are absolute.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: What the job does, as the file says it, with this job's parameters in place of grids.
    table: Mapping[str, Any] = field(default_factory=dict)
    #: What tells it from the other jobs of its grid, and its other parameters.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: The group that the file names for it.
    group: str | None = None
    #: For a job of a grid, the name of the grid's group where the file names none.
    own_group: str | None = None

    @property
    def arrival(self) -> float:
        """Seconds from the start of the batch to the job's arrival."""
        return float(self.options.get("arrival", 0.0))

    @property
    def kind(self) -> str:
        """What the job is, in one word: its algorithm, its program, or the program its command runs."""
        if isinstance(self.work, AlgorithmWork):
            return self.work.algorithm
        if isinstance(self.work, ProgramWork | FitWork):
            return self.work.reference.rpartition("/")[2]
        return command_name(self.work.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsFile:
    """A whole file without mistakes."""

    path: Path
    cluster: ClusterTable
    #: In the order of the file, grids expanded.
    jobs: tuple[JobTable, ...]


def command_name(argv: tuple[str, ...]) -> str:
    """Return the name of what a command runs: the script that an interpreter is given, else the program."""
    scripts = [word for word in argv[1:3] if Path(word).suffix in (".py", ".sh", ".R", ".jl")]
    return Path(scripts[0] if scripts else argv[0]).name
