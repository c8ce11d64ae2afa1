"""Figure 1: the share of a job's whole time that it takes to each share of its loss reduction.

Four algorithms train for real, one job at a time on a `slaq` cluster, until they converge as the paper defines it:
an iteration cuts the loss by less than a ten-thousandth of the largest cut. Time is CPU time, which for a job that
has the machine to itself is the time it takes, but for what other programs do there meanwhile.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import Experiment, Picture, Results, Section, Settings
from replication.intervals import estimate, listed, percent, sentences, table
from replication.training_sets import TrainingSet, found, made
from slaq import Cluster, Dataset, Job
from slaq.algorithms import LDA, Algorithm, LinearSVM, LogisticRegression, MLPClassifier, Model
from slaq.core.quality import times_to

#: A cut of the loss this small, relative to the largest, is convergence when several in a row are.
CONVERGED, IN_A_ROW = 1e-4, 3
REDUCTIONS = (0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)
SHOWN = 0.95
#: The paper's text names one point: the SVM makes 95% of its reduction in 20% of its time.
PAPER_SVM = 0.20
#: Algorithm, what it is trained on, and the outside data that is preferred.
JOBS: dict[str, tuple[str, str]] = {
    "LogReg": ("two-classes", "epsilon-like"),
    "SVM": ("two-classes", "epsilon-like"),
    "LDA": ("documents", "ap"),
    "MLPC": ("two-classes", "epsilon-like"),
}
PENS = {"LogReg": "#0072b2", "SVM": "#d55e00", "LDA": "#009e73", "MLPC": "#cc79a7"}


def program(acronym: str, iterations: int, seed: int) -> Algorithm[Model]:
    """Return the algorithm with its usual settings."""
    programs: dict[str, Algorithm[Model]] = {
        "LogReg": LogisticRegression(iterations=iterations),
        "SVM": LinearSVM(iterations=iterations),
        "LDA": LDA(topics=10, iterations=iterations, seed=seed),
        "MLPC": MLPClassifier(hidden=(32,), iterations=iterations, l2=1e-3, seed=seed),
    }
    return programs[acronym]


def run(settings: Settings) -> Results:
    """Train each algorithm to convergence on every seed's data."""
    sets = made(0.4 if settings.quick else 6.0)
    outside = [] if settings.data is None else found(settings.data)
    iterations = 40 if settings.quick else 2000
    jobs: dict[str, Any] = {}
    with Cluster() as cluster:
        for place, (acronym, (task, preferred)) in enumerate(JOBS.items()):
            chosen = next(
                each
                for each in [*outside, *sets]
                if each.task == task and each.name in (preferred, sets[0].name)
            )
            courses = [
                course(
                    cluster.submit(program(acronym, iterations, seed), part_of(chosen, seed, settings.quick))
                )
                for seed in settings.seeds
            ]
            jobs[acronym] = {"data": chosen.name, **_summary(courses)}
            settings.progress((place + 1) / len(JOBS))
    return {"reductions": REDUCTIONS, "jobs": jobs}


def part_of(chosen: TrainingSet, seed: int, quick: bool) -> Dataset:
    """Return four fifths of the rows, other ones for every seed; few in a quick run."""
    rng = np.random.default_rng(seed)
    whole = chosen.draw(rng, 1.0)
    rows = rng.permutation(whole.x.shape[0])[: 400 if quick else whole.x.shape[0] * 4 // 5]
    return Dataset(whole.x[rows], None if whole.y is None else whole.y[rows])


def course(job: Job) -> dict[str, Any]:
    """Follow a job until it has converged or ended; return its losses and CPU seconds, from its first loss on."""
    losses: list[float] = []
    seconds: list[float] = []
    converged = False
    for seen in job:
        losses.append(seen.loss)
        seconds.append(seconds[-1] + seen.cpu_seconds if seconds else 0.0)
        cuts = -np.diff(losses)
        if len(cuts) > IN_A_ROW and (cuts[-IN_A_ROW:] < CONVERGED * cuts.max()).all():
            converged = True
            job.cancel()
            break
    job.wait()
    return {"losses": np.array(losses), "seconds": np.array(seconds), "converged": converged}


def _summary(courses: list[dict[str, Any]]) -> dict[str, Any]:
    shares = np.array(
        [times_to(each["seconds"], each["losses"], REDUCTIONS) / each["seconds"][-1] for each in courses]
    )
    return {
        "share_of_time": [estimate(column) for column in shares.T],
        "iterations": estimate(len(each["losses"]) - 1 for each in courses),
        "cpu_seconds": estimate(each["seconds"][-1] for each in courses),
        "converged": sum(each["converged"] for each in courses),
    }


def sections(results: Results) -> list[Section]:
    """Return Figure 1."""
    jobs, place = results["jobs"], results["reductions"].index(SHOWN)
    at = {name: each["share_of_time"] for name, each in jobs.items()}
    unfinished = [name for name, each in jobs.items() if each["converged"] < each["iterations"]["n"]]
    svm = at["SVM"][place]
    columns = [results["reductions"].index(share) for share in (0.5, 0.8, 0.9, 0.95, 0.99)]
    return [
        Section(
            heading="Figure 1",
            title="Time to each share of the loss reduction, alone on the machine",
            paper=(
                "Most of the time goes into the last few percent: the SVM job makes 95% of its reduction in "
                f"{100 * PAPER_SVM:.0f}% of its time."
            ),
            ours=table(
                (
                    "job",
                    "data",
                    "iterations",
                    *(f"{100 * results['reductions'][k]:.0f}% of the reduction" for k in columns),
                ),
                [
                    (
                        name,
                        each["data"],
                        f"{each['iterations']['mean']:.0f}",
                        *(percent(at[name][k]) for k in columns),
                    )
                    for name, each in jobs.items()
                ],
            ),
            made=(
                f"Shares of the CPU time from the first loss to convergence: {IN_A_ROW} iterations in a row that "
                f"cut the loss by less than {CONVERGED:g} of the largest cut. Every seed trains on other rows."
            ),
            falls_short=sentences(
                f"The SVM takes {percent(svm)} of its time to 95%, more than the paper's."
                if svm["mean"] > PAPER_SVM
                else "",
                f"Not every run of {listed(unfinished)} converged in the iterations it was given; their shares are "
                "of the time they had."
                if unfinished
                else "",
                "The data is smaller than the paper's.",
            ),
            pictures=(
                Picture(
                    name="figure-1",
                    alt="Share of the whole time against share of the loss reduction, for four algorithms.",
                    draw=lambda figure: draw(figure, results["reductions"], jobs),
                ),
            ),
        )
    ]


def draw(figure: Figure, reductions: list[float], jobs: Mapping[str, Any]) -> None:
    """Draw one line per algorithm, with intervals over seeds."""
    axes = figure.add_subplot()
    for name, each in jobs.items():
        shares = [100.0 * part["mean"] for part in each["share_of_time"]]
        low = [100.0 * part["low"] for part in each["share_of_time"]]
        high = [100.0 * part["high"] for part in each["share_of_time"]]
        marks = 100.0 * np.array(reductions)
        axes.plot(marks, shares, color=PENS[name], marker="o", ms=3.5, label=name)
        axes.fill_between(marks, low, high, color=PENS[name], alpha=0.15, linewidth=0)
    axes.set_xlabel("share of the loss reduction, %")
    axes.set_ylabel("share of the whole time, %")
    axes.set_ylim(0.0, 102.0)
    axes.set_xticks([25, 50, 75, 90, 100])
    axes.legend(loc="upper left")


EXPERIMENT = Experiment(name="diminishing_returns", headings=("Figure 1",), run=run, sections=sections)
