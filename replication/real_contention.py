"""Figures 3, 7a and 7b on this machine: jobs that train for real, under fair sharing and under slaq.

Each seed draws its own jobs: algorithms, data, sizes and Poisson arrivals. The same jobs then train on a `slaq`
cluster of this machine's cores, once under each policy, the policies taking turns at going first, so that a machine
that gets slower or faster in the meantime favours neither. One of the jobs, in the middle of the crowd, is
Figure 3's: it also tells its accuracy on rows that it does not train on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.crowd import FULL, QUICK, plan
from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
)
from replication.intervals import (
    Estimate,
    changes,
    estimate,
    listed,
    number,
    percent,
    sentences,
    short_of,
    shown,
    table,
)
from replication.paper_workload import PAPER
from replication.quiet import busy_share, noise
from replication.simulated import BESIDE, MEASURE_NAMES, TOLD, binned
from replication.watched_job import NAMES, POLICIES, figure_3, followed
from slaq.cli.demo.training import Trained, TrainingSite, measured, train
from slaq.core.outcome import REDUCTIONS
from slaq.engines.processes import cores_here
from slaq.reports.style import few_ticks, pen

EPOCH_SECONDS = 0.5
#: Seconds without a decision after which nothing is taken to have been active.
LONGEST_GAP = 4 * EPOCH_SECONDS


def run(settings: Settings) -> Results:
    """Train every seed's jobs under both policies."""
    crowd, cores = QUICK if settings.quick else FULL, cores_here()
    site = TrainingSite(cores=cores, epoch_seconds=EPOCH_SECONDS)
    pairs, busy, origin = [], list[float | None](), ""
    for place, seed in enumerate(settings.seeds):
        jobs, origin = plan(crowd, cores, seed, settings)
        trained: dict[str, Trained] = {}
        for turn, policy in enumerate(POLICIES if place % 2 == 0 else reversed(POLICIES)):
            busy.append(busy_share(0.1 if settings.quick else 1.0))
            done = (2 * place + turn) / (2 * len(settings.seeds))
            trained[policy] = train(
                policy,
                jobs,
                site,
                lambda share, done=done: settings.progress(done + share / 2 / len(settings.seeds)),  # type: ignore[misc]
            )
        pairs.append({"seed": seed, **pair(trained, drawn=place == 0)})
    return {
        "cores": cores,
        "jobs": crowd.jobs,
        "mean_arrival": crowd.mean_arrival,
        "epoch_seconds": EPOCH_SECONDS,
        "reductions": REDUCTIONS,
        "probe_data": origin,
        "busy": busy,
        "pairs": pairs,
    }


def pair(trained: Mapping[str, Trained], *, drawn: bool) -> dict[str, Any]:
    """Return what one seed's jobs came to under each policy, with the series of one that is drawn."""
    runs = measured(trained, EPOCH_SECONDS)
    return {
        policy: {
            **{name: getattr(runs[policy].outcome, name) for name in (*TOLD, "mean_active")},
            "time_to": runs[policy].outcome.time_to,
            "cpu_seconds": trained[policy].cpu_seconds,
            "loss": binned(runs[policy].outcome.times, runs[policy].outcome.loss),
            "probe": followed(runs[policy], trained[policy], drawn=drawn),
        }
        for policy in POLICIES
    }


def sections(results: Results) -> list[Section]:
    """Return Figure 3, and the real halves of Figures 7a and 7b."""
    pairs = results["pairs"]
    made = (
        f"{results['jobs']} real training jobs of the nine algorithms per seed, arriving every "
        f"{results['mean_arrival']:g} s on average, on a `slaq` cluster of {results['cores']} cores with an epoch "
        f"of {results['epoch_seconds']:g} s. Every seed's jobs train under both policies, one run right after the "
        f"other; {len(pairs)} pairs. A job's final best is the best loss that either run found."
    )
    return [figure_3(results, made), _figure_7a(results, made), _figure_7b(results, made)]


def recorded(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the measures that every run tells: results of earlier versions lack some."""
    return [name for name in TOLD if all(name in each[policy] for each in pairs for policy in POLICIES)]


def _each(pairs: Sequence[Mapping[str, Any]], policy: str, name: str) -> list[float]:
    return [float("nan") if each[policy][name] is None else each[policy][name] for each in pairs]


def change_of(pairs: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Return the change of a measure against fair sharing, paired by seed."""
    return changes(_each(pairs, "total-quality", name), _each(pairs, "fair", name))


def _figure_7a(results: Results, made: str) -> Section:
    pairs = results["pairs"]
    loss = change_of(pairs, "mean_normalised_loss")
    delivered = change_of(pairs, "cpu_seconds")
    rows = [
        (
            str(each["seed"]),
            *(number(each[policy]["mean_normalised_loss"], 3) for policy in POLICIES),
            *(number(each[policy]["mean_active"], 1) for policy in POLICIES),
        )
        for each in pairs
    ]
    header = (
        "seed",
        *(f"loss, {NAMES[p]}" for p in POLICIES),
        *(f"active jobs, {NAMES[p]}" for p in POLICIES),
    )
    return Section(
        heading="Figure 7a",
        title=f"The same, for real: {results['jobs']} jobs on this machine's {results['cores']} cores",
        ours=(
            f"Mean normalised loss of the active jobs against fair sharing: {percent(loss)}. The CPU time that "
            f"jobs were given differed by {percent(delivered, 1)}.\n\n{table(header, rows)}"
        ),
        made=made,
        falls_short=sentences(
            short_of("mean normalised loss in the real run", loss, PAPER["mean_normalised_loss"]),
            f"{results['cores']} cores and {results['jobs']} jobs stand here for the paper's 640 and 160.",
            noise(results["busy"]),
        ),
        pictures=(
            Picture(
                name="figure-7a-real",
                alt="Mean normalised loss of the active jobs over time in a real run, under both policies.",
                draw=lambda figure: draw_losses(figure, pairs[0]),
            ),
        ),
        readme=(
            Comparison(
                what=f"mean normalised loss in a real run on {results['cores']} cores, against fair sharing",
                paper=f"{number(100 * PAPER['mean_normalised_loss'])}%",
                ours=percent(loss),
            ),
        ),
    )


def _figure_7b(results: Results, made: str) -> Section:
    pairs = results["pairs"]
    found = {name: change_of(pairs, name) for name in ("time_to_90", "time_to_95")}
    beside = {name: change_of(pairs, name) for name in recorded(pairs) if name in BESIDE}
    return Section(
        heading="Figure 7b",
        title=f"The same, for real: {results['jobs']} jobs on this machine's {results['cores']} cores",
        ours=(
            "Against fair sharing, paired by seed: "
            + ", ".join(f"{MEASURE_NAMES[name]} {percent(change)}" for name, change in found.items())
            + f".\n\n{_by_seed(pairs, tuple(found))}\n\nBeside the paper's measures: "
            + ", ".join(f"{MEASURE_NAMES[name]} {percent(change)}" for name, change in beside.items())
            + f".\n\n{_by_seed(pairs, tuple(beside))}"
        ),
        made=made,
        falls_short=sentences(
            *(
                short_of(f"{MEASURE_NAMES[name]} in the real run", change, PAPER[name])
                for name, change in found.items()
            ),
            _grown(beside),
            noise(results["busy"]),
        ),
        pictures=(
            Picture(
                name="figure-7b-real",
                alt="Mean seconds from arrival to each share of the loss reduction in real runs, by policy.",
                draw=lambda figure: draw_times(figure, results),
            ),
        ),
        readme=tuple(
            Comparison(
                what=f"{MEASURE_NAMES[name]} in a real run on {results['cores']} cores, against fair sharing",
                paper=f"{number(100 * PAPER[name])}%",
                ours=percent(change),
            )
            for name, change in found.items()
        )
        + tuple(
            Comparison(
                what=f"{MEASURE_NAMES[name]} in a real run on {results['cores']} cores, against fair sharing",
                paper="–",
                ours=percent(change),
            )
            for name, change in beside.items()
        ),
    )


def _by_seed(pairs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Return the table of these measures in seconds, by seed and policy, and their means."""
    columns = [(name, policy) for name in names for policy in POLICIES]
    rows = [
        (str(each["seed"]), *(number(each[policy][name], 1) for name, policy in columns)) for each in pairs
    ]
    means = (shown(estimate(_each(pairs, policy, name)), 1) for name, policy in columns)
    header = ("seed", *(f"{MEASURE_NAMES[name]}, {NAMES[policy]} (s)" for name, policy in columns))
    return table(header, [*rows, ("mean", *means)])


def _grown(beside: Mapping[str, Estimate]) -> str:
    grown = [
        f"{MEASURE_NAMES[name]} {percent(change)}" for name, change in beside.items() if change["mean"] > 0
    ]
    return f"More than under fair sharing in the real run: {listed(grown)}." if grown else ""


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the changes against fair sharing."""
    return [
        KeyFigure(name=f"change of {what}, real run", value=change_of(results["pairs"], name))
        for name, what in MEASURE_NAMES.items()
        if name in recorded(results["pairs"])
    ]


def draw_losses(figure: Figure, pair_drawn: Mapping[str, Any]) -> None:
    """Draw the mean normalised loss of the active jobs over time, of one seed."""
    axes = figure.add_subplot()
    for policy in POLICIES:
        series, (color, dash) = pair_drawn[policy]["loss"], pen(policy)
        seconds = np.array(series["times"]) - series["times"][0]
        # Where no job was there to train for a while, there is no line.
        idle = np.flatnonzero(np.diff(seconds) > LONGEST_GAP) + 1
        values = np.insert(np.array(series["values"], dtype=float), idle, np.nan)
        axes.plot(np.insert(seconds, idle, np.nan), values, color=color, linestyle=dash, label=NAMES[policy])
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(f"seconds since the first arrival (seed {pair_drawn['seed']})")
    axes.set_ylabel("mean normalised loss")
    few_ticks(axes)
    axes.legend(loc="upper right")


def draw_times(figure: Figure, results: Results) -> None:
    """Draw the mean time to each share of the reduction, with intervals over seeds."""
    axes = figure.add_subplot()
    shares = 100.0 * np.array(results["reductions"])
    for policy in POLICIES:
        times = np.array([each[policy]["time_to"] for each in results["pairs"]], dtype=float)
        found = [estimate(column) for column in times.T]
        means = [each["mean"] for each in found]
        spans = [each["high"] - each["mean"] for each in found]
        color, dash = pen(policy)
        axes.errorbar(
            shares, means, yerr=spans, color=color, linestyle=dash, marker="o", ms=4, capsize=2,
            label=NAMES[policy],
        )  # fmt: skip
    axes.set_xlabel("share of the job's loss reduction, %")
    axes.set_ylabel("mean seconds since arrival")
    axes.set_ylim(bottom=0.0)
    axes.set_xticks([25, 50, 75, 80, 85, 90, 95, 99])
    axes.legend(loc="upper left")


EXPERIMENT = Experiment(
    name="real_contention",
    headings=("Figure 3", "Figure 7a", "Figure 7b"),
    run=run,
    sections=sections,
    key_figures=key_figures,
)
