"""What an experiment is: its settings, what it runs, and the sections it adds to the report."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from matplotlib.figure import Figure

from replication.intervals import Estimate
from slaq import SlaqError
from slaq.simulation.generator import CurveShape
from slaq.simulation.workload import Workload

HERE = Path(__file__).parent
#: Curves recorded from runs of our own: workload files, one job per run, with the cost it was measured at.
CURVES = HERE / "curves"
#: Where a quick run writes, so that it never touches committed results.
QUICK_HOME = HERE.parent / "build" / "replication"

#: Modules that hold no experiment and are not imported in the search for one: the second needs PyTorch.
NO_EXPERIMENTS = ("__main__", "elastic_rules")

FULL_SEEDS = (1, 2, 3, 4, 5)
QUICK_SEEDS = (1, 2)

#: JSON-able: what `run` returns and `sections` reads.
Results = dict[str, Any]


class SkippedError(SlaqError):
    """An experiment cannot run with these settings; says what it would need."""

    def __init__(self, needs: str) -> None:
        super().__init__(needs)
        self.needs = needs


class UnknownExperimentError(SlaqError):
    """There is no experiment of that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"there is no experiment {name!r}; choose from {', '.join(self.known)}")


def _unseen(share: float) -> None:
    """Take note of no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to run: everything an experiment may depend on besides its own constants."""

    #: Tiny sizes: shows that everything works, not what it achieves.
    quick: bool = False
    seeds: tuple[int, ...] = FULL_SEEDS
    #: Folder of outside data (curves_public, trace_philly, libsvm_a9a, ...); None without.
    data: Path | None = None
    curves: Path = CURVES
    #: The interpreter that runs ordinary scripts, which has their frameworks.
    python: Path = Path(sys.executable)
    #: Told the share of the experiment that is done, from 0 to 1.
    progress: Callable[[float], None] = _unseen

    def part(self, index: int, count: int) -> "Settings":
        """Return the settings of the index-th of `count` parts, whose progress is a part of this one's."""
        return replace(self, progress=lambda share: self.progress((index + share) / count))

    def outside(self, folder: str) -> Path:
        """Return that folder of the outside data, or skip the experiment."""
        if self.data is None or not (self.data / folder).is_dir():
            raise SkippedError(f"it needs the folder {folder} of outside data: give --data DIR")
        return self.data / folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart, drawn when the report is made."""

    #: Also the name of its file, without the ending.
    name: str
    #: What a reader who cannot see it should know.
    alt: str
    #: Draws on an empty figure, inside the style of slaq's own charts.
    draw: Callable[[Figure], None]
    #: Inches; the width is 7.
    height: float = 2.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One line of the README's table."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One heading of the report; sections of the same heading are joined, in the order of the experiments."""

    #: "Figure 7a", or the name of an experiment beyond the paper.
    heading: str
    title: str
    #: What the paper shows, with its numbers; empty beyond the paper and in what joins another section.
    paper: str = ""
    #: Markdown made from the results.
    ours: str
    #: Data, seeds, and how each number was made; the machine is added by the report.
    made: str
    #: In plain words, where our number is worse than the paper's or the set-up differs.
    falls_short: str = ""
    pictures: tuple[Picture, ...] = ()
    readme: tuple[Comparison, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
    """A number that must not get worse from one version to the next."""

    name: str
    value: Estimate
    lower_is_better: bool = True

    def worse_than(self, committed: "KeyFigure") -> bool:
        """Return whether this lies outside the committed interval, on its bad side."""
        mean = self.value["mean"]
        if self.lower_is_better:
            return bool(mean > committed.value["high"])
        return bool(mean < committed.value["low"])


def _no_key_figures(results: Results) -> list[KeyFigure]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One script of this folder: what it runs, and what its results say.

    `sections` and `key_figures` are pure in the results, so that the report can be made again without a run.
    """

    name: str
    #: The headings it writes under, known before it has run.
    headings: tuple[str, ...]
    run: Callable[[Settings], Results]
    sections: Callable[[Results], list[Section]]
    key_figures: Callable[[Results], list[KeyFigure]] = _no_key_figures


def experiments() -> dict[str, Experiment]:
    """Return every experiment of this folder by name: what its modules call EXPERIMENT."""
    found = {}
    for module in sorted(module.name for module in iter_modules([str(HERE)])):
        if module in NO_EXPERIMENTS:
            continue
        experiment = getattr(import_module(f"replication.{module}"), "EXPERIMENT", None)
        if isinstance(experiment, Experiment):
            found[experiment.name] = experiment
    return found


def choose(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments of these names, or all."""
    known = experiments()
    for name in names:
        if name not in known:
            raise UnknownExperimentError(name, known)
    return [known[name] for name in names or known]


# Work on all cores.

Case = TypeVar("Case")
Answer = TypeVar("Answer")


def in_parallel(
    function: Callable[[Case], Answer], cases: Sequence[Case], settings: Settings
) -> list[Answer]:
    """Return the function of every case, computed in as many processes as there are cores.

    Function and cases are sent to other processes, so the function stands at the top of a module.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["slaq.bootstrap"])
    with ProcessPoolExecutor(max_workers=min(cores, len(cases)), mp_context=context) as pool:
        futures = [pool.submit(function, case) for case in cases]
        for done, _ in enumerate(as_completed(futures), start=1):
            settings.progress(done / len(cases))
        return [future.result() for future in futures]


# Curves.


def recorded_runs(folder: Path = CURVES) -> Workload | None:
    """Return the runs recorded in the folder, each with the CPU seconds of an iteration; None without any."""
    jobs = [job for path in sorted(folder.glob("*.jsonl")) for job in Workload.read(path)]
    return Workload(tuple(jobs)) if jobs else None


def recorded_curves(folder: Path = CURVES) -> tuple[CurveShape, ...]:
    """Return the curves of those runs, labelled with their algorithms; empty without any."""
    runs = recorded_runs(folder)
    return () if runs is None else tuple(CurveShape(job.algorithm, job.losses) for job in runs)
