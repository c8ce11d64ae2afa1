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

from replication.crowd import FULL, PROBE, QUICK, plan
from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
)
from replication.intervals import changes, estimate, number, percent, sentences, short_of, shown, table
from replication.quiet import busy_share, noise
from replication.simulated import binned
from slaq.bootstrap import Run
from slaq.cli.training import Site, Trained, measured, train
from slaq.core.outcome import REDUCTIONS, JobCurve
from slaq.core.quality import time_to
from slaq.engines.local.engine import cores_here
from slaq.reports.style import few_ticks, pen

POLICIES = ("fair", "total-quality")
NAMES = {"fair": "fair sharing", "total-quality": "slaq"}
EPOCH_SECONDS = 0.5
#: Seconds without a decision after which nothing is taken to have been active.
LONGEST_GAP = 4 * EPOCH_SECONDS
MEASURES = {
    "mean_normalised_loss": "mean normalised loss",
    "time_to_90": "time to 90%",
    "time_to_95": "time to 95%",
}
#: The paper's changes against fair sharing (§6.2.1), on 640 cores.
PAPER = {"mean_normalised_loss": -0.73, "time_to_90": -0.45, "time_to_95": -0.30}
#: The paper's seconds to 90% accuracy in its Figure 3, under the fair scheduler and under SLAQ.
PAPER_ACCURACY = (230, 70)
#: The accuracy that is waited for, where the probe gets there in every run.
MARK = 0.9


def run(settings: Settings) -> Results:
    """Train every seed's jobs under both policies."""
    crowd, cores = QUICK if settings.quick else FULL, cores_here()
    site = Site(cores=cores, epoch_seconds=EPOCH_SECONDS)
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
            **{name: getattr(runs[policy].outcome, name) for name in (*MEASURES, "mean_active", "makespan")},
            "time_to": runs[policy].outcome.time_to,
            "cpu_seconds": trained[policy].cpu_seconds,
            "loss": binned(runs[policy].outcome.times, runs[policy].outcome.loss),
            "probe": followed(runs[policy], trained[policy], drawn=drawn),
        }
        for policy in POLICIES
    }


def followed(run: Run, trained: Trained, *, drawn: bool) -> dict[str, Any]:
    """Return the probe's course in seconds since it arrived: its ends, and all of it where it is drawn."""
    spec = next(each for each in run.history.jobs() if each.id == PROBE)
    curve = JobCurve.of(spec, run.history.events(PROBE))
    seconds = curve.times - spec.arrival
    accuracy = np.array([beside["accuracy"] for beside in trained.metrics[PROBE]])
    return {
        "loss_90": time_to(seconds, curve.losses, 0.9),
        "accuracy": float(accuracy.max()),
        # When each whole percent of accuracy was first reached.
        "percents": [
            float(seconds[np.argmax(accuracy >= mark / 100)]) if accuracy.max() >= mark / 100 else None
            for mark in range(101)
        ],
        "course": {"seconds": seconds, "losses": curve.losses, "accuracy": accuracy} if drawn else None,
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
    return [_figure_3(results, made), _figure_7a(results, made), _figure_7b(results, made)]


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
                what=f"the same in a real run on {results['cores']} cores",
                paper="",
                ours=percent(loss),
            ),
        ),
    )


def _figure_7b(results: Results, made: str) -> Section:
    pairs = results["pairs"]
    found = {name: change_of(pairs, name) for name in ("time_to_90", "time_to_95")}
    rows = [
        (
            str(each["seed"]),
            *(number(each[policy][name], 1) for name in found for policy in POLICIES),
        )
        for each in pairs
    ]
    rows.append(
        (
            "mean",
            *(shown(estimate(_each(pairs, policy, name)), 1) for name in found for policy in POLICIES),
        )
    )
    header = ("seed", *(f"{MEASURES[name]}, {NAMES[policy]} (s)" for name in found for policy in POLICIES))
    return Section(
        heading="Figure 7b",
        title=f"The same, for real: {results['jobs']} jobs on this machine's {results['cores']} cores",
        ours=(
            "Against fair sharing, paired by seed: "
            + ", ".join(f"{MEASURES[name]} {percent(change)}" for name, change in found.items())
            + f".\n\n{table(header, rows)}"
        ),
        made=made,
        falls_short=sentences(
            *(
                short_of(f"{MEASURES[name]} in the real run", change, PAPER[name])
                for name, change in found.items()
            ),
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
                what=f"{MEASURES[name]} of the loss reduction in a real run on {results['cores']} cores",
                paper="",
                ours=percent(change),
            )
            for name, change in found.items()
        ),
    )


def accuracy_mark(pairs: Sequence[Mapping[str, Any]]) -> int:
    """Return the percents of accuracy to wait for: MARK, or the most that every run reached."""
    lowest = min(each[policy]["probe"]["accuracy"] for each in pairs for policy in POLICIES)
    return int(100 * min(MARK, lowest))


def probe_times(pairs: Sequence[Mapping[str, Any]], policy: str, mark: int) -> list[float]:
    """Return the seconds from the probe's arrival to that accuracy, for every seed."""
    return [each[policy]["probe"]["percents"][mark] for each in pairs]


def _figure_3(results: Results, made: str) -> Section:
    pairs = results["pairs"]
    mark = accuracy_mark(pairs)
    seconds = {policy: probe_times(pairs, policy, mark) for policy in POLICIES}
    loss = {policy: [each[policy]["probe"]["loss_90"] for each in pairs] for policy in POLICIES}
    sooner = changes(seconds["total-quality"], seconds["fair"])
    fair, ours = PAPER_ACCURACY
    rows = [
        (
            str(each["seed"]),
            *(number(seconds[policy][place], 1) for policy in POLICIES),
            *(number(loss[policy][place], 1) for policy in POLICIES),
        )
        for place, each in enumerate(pairs)
    ]
    header = (
        "seed",
        *(f"{mark}% accuracy, {NAMES[policy]} (s)" for policy in POLICIES),
        *(f"90% of the loss reduction, {NAMES[policy]} (s)" for policy in POLICIES),
    )
    return Section(
        heading="Figure 3",
        title="One job's accuracy and loss over time, in the middle of a crowd",
        paper=(
            f"The job reaches 90% accuracy after {fair} s under the fair scheduler and after {ours} s under SLAQ, "
            f"{100 * (1 - ours / fair):.0f}% sooner."
        ),
        ours=(
            f"Time from the job's arrival to {mark}% accuracy on rows held out, against fair sharing: "
            f"{percent(sooner)}; to 90% of its loss reduction: "
            f"{percent(changes(loss['total-quality'], loss['fair']))}.\n\n{table(header, rows)}"
        ),
        made=(
            f"The job is a logistic regression by gradient descent on {results['probe_data']}, a fifth of the rows "
            f"held out; it is in the middle of the crowd of Figure 7's real run. {made}"
        ),
        falls_short=sentences(
            short_of(f"the time to {mark}% accuracy", sooner, ours / fair - 1),
            ""
            if mark == int(100 * MARK)
            else f"{mark}% is the most accuracy that this job reached in every run; it stands for the paper's 90%.",
            noise(results["busy"]),
        ),
        pictures=(
            Picture(
                name="figure-3",
                alt="Accuracy on held-out rows and loss of one job over time, under fair sharing and slaq.",
                draw=lambda figure: draw_probe(figure, pairs[0], mark),
                height=4.2,
            ),
        ),
        readme=(
            Comparison(
                what=f"one job's time to {mark}% accuracy, in a real run",
                paper=f"{number(100 * (ours / fair - 1))}%",
                ours=percent(sooner),
            ),
        ),
    )


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the changes against fair sharing."""
    return [
        KeyFigure(name=f"change of {what}, real run", value=change_of(results["pairs"], name))
        for name, what in MEASURES.items()
    ]


def draw_probe(figure: Figure, pair_drawn: Mapping[str, Any], mark: int) -> None:
    """Draw Figure 3's job: accuracy above, loss below."""
    top, bottom = figure.subplots(2, 1, sharex=True)
    for policy in POLICIES:
        course, (color, dash) = pair_drawn[policy]["probe"]["course"], pen(policy)
        accuracy = 100.0 * np.array(course["accuracy"])
        top.plot(course["seconds"], accuracy, color=color, linestyle=dash, label=NAMES[policy])
        bottom.plot(course["seconds"], course["losses"], color=color, linestyle=dash)
        reached = pair_drawn[policy]["probe"]["percents"][mark]
        top.plot([reached], [mark], marker="o", ms=5, color=color)
    top.set_ylabel("test accuracy, %")
    bottom.set_ylabel("loss")
    bottom.set_xlabel("seconds since the job arrived")
    for axes in (top, bottom):
        few_ticks(axes)
    top.legend(loc="lower right")


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
