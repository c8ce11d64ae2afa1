"""Figure 9: time to 90% and 95% of the loss reduction as jobs arrive faster and faster.

The paper calls a mean arrival of 10 s a light load. Jobs here are cheaper than in Figure 7, so that it is one: the
units could do a third more work than arrives. At 4 s nearly twice as much arrives as they can do.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
)
from replication.intervals import listed, number, percent, sentences, short_of, table
from replication.simulated import (
    BESIDE,
    EPOCH_SECONDS,
    MEASURE_NAMES,
    UNITS,
    Arm,
    loads,
    origin,
    run_all,
    summary,
)
from slaq.reports.style import pen

ARRIVALS = (10.0, 8.0, 6.0, 5.0, 4.0)
QUICK_ARRIVALS = (10.0, 4.0)
MEDIAN_CPU_SECONDS = 4000.0
ARMS = {"fair": Arm(policy="fair"), "total-quality": Arm()}
TIMES = ("time_to_90", "time_to_95")
#: The paper's changes (§6.2.2) by mean arrival; it names only the two ends.
PAPER = {10.0: {"time_to_90": -0.23, "time_to_95": -0.20}, 4.0: {"time_to_90": -0.44, "time_to_95": -0.30}}


def run(settings: Settings) -> Results:
    """Run both policies at every mean arrival time."""
    arrivals = QUICK_ARRIVALS if settings.quick else ARRIVALS
    jobs = {
        arrival: [
            replace(load, mean_arrival=arrival, median_cpu_seconds=MEDIAN_CPU_SECONDS)
            for load in loads(settings)
        ]
        for arrival in arrivals
    }
    # The most crowded runs take longest, so they come first.
    found = run_all(
        [(load, arm) for arrival in reversed(arrivals) for load in jobs[arrival] for arm in ARMS.values()],
        settings,
    )
    points = [
        {
            "mean_arrival": arrival,
            "jobs": here[0].jobs,
            "policies": {
                policy: summary(
                    [found[load, arm] for load in here], [found[load, ARMS["fair"]] for load in here]
                )
                for policy, arm in ARMS.items()
            },
        }
        for arrival, here in jobs.items()
    ]
    return {"curves": origin(settings), "median_cpu_seconds": MEDIAN_CPU_SECONDS, "points": points}


def sections(results: Results) -> list[Section]:
    """Return the figure."""
    points = results["points"]
    rows = []
    for point in points:
        fair, ours = point["policies"]["fair"], point["policies"]["total-quality"]
        paper = PAPER.get(point["mean_arrival"])
        rows.append(
            [
                f"{point['mean_arrival']:g} s",
                number(fair["mean_active"]["mean"], 1),
                *(
                    text
                    for m in TIMES
                    for text in (
                        f"{number(fair[m]['mean'])} → {number(ours[m]['mean'])} s",
                        percent(ours["change"][m]),
                        f"{number(100 * paper[m])}%" if paper else "",
                    )
                ),
            ]
        )
    header = (
        "mean arrival",
        "active under fair",
        *(t for m in (90, 95) for t in (f"to {m}%", "change", "paper")),
    )
    return [
        Section(
            heading="Figure 9",
            title="Time to 90% and 95% of the loss reduction against the mean time between arrivals",
            paper="The advantage grows with contention: −23% (−20%) for 90% (95%) at a mean arrival of 10 s, −44% "
            "(−30%) at 4 s.",
            ours=f"{table(header, rows)}\n\nBeside the paper's measures, of the same runs:\n\n{_beside(points)}",
            made=f"Simulated: {points[0]['jobs']} jobs on {UNITS} units with epochs of {EPOCH_SECONDS:g} s, on "
            f"{results['curves']}. The paper does not tell its jobs' costs; with a median of "
            f"{number(results['median_cpu_seconds'])} CPU seconds a mean arrival of 10 s is a light load here too.",
            falls_short=sentences(*_short(points), _not_growing(points), _later(points)),
            pictures=(
                Picture(
                    name="figure-9",
                    alt="Mean time to 90% and 95% against mean arrival time, fair and total-quality",
                    draw=lambda figure: _draw(figure, points),
                ),
            ),
            readme=_readme(points),
        )
    ]


def _readme(points: list[dict[str, Any]]) -> tuple[Comparison, ...]:
    """Return the rows of the README: sooner good enough, and sooner or later at an end, at the paper's loads."""
    return tuple(
        Comparison(
            what=f"{name}, against fair, at a mean arrival of {point['mean_arrival']:g} s (simulated)",
            # The paper does not tell when jobs complete.
            paper=f"{number(100 * told[measure])}%" if measure in told else "–",
            ours=percent(point["policies"]["total-quality"]["change"][measure]),
        )
        for name, measure in (("time to 90%", "time_to_90"), ("completion", "completion"))
        for point in points
        if (told := PAPER.get(point["mean_arrival"])) is not None
    )


def _beside(points: list[dict[str, Any]]) -> str:
    """Return the table of loss seconds, completion and makespan at every load."""
    rows = []
    for point in points:
        fair, ours = point["policies"]["fair"], point["policies"]["total-quality"]
        texts = (
            text
            for m in BESIDE
            for text in (
                f"{number(fair[m]['mean'], 1 if m == 'loss_seconds' else 0)} → "
                f"{number(ours[m]['mean'], 1 if m == 'loss_seconds' else 0)} s",
                percent(ours["change"][m]),
            )
        )
        rows.append([f"{point['mean_arrival']:g} s", *texts])
    return table(("mean arrival", *(t for m in BESIDE for t in (MEASURE_NAMES[m], "change"))), rows)


def _later(points: list[dict[str, Any]]) -> str:
    """Return at which loads jobs end later than under fair sharing; "" where they do nowhere."""
    changes = [
        (point["mean_arrival"], point["policies"]["total-quality"]["change"]["completion"])
        for point in points
    ]
    late = [f"{arrival:g} s ({percent(change)})" for arrival, change in changes if change["mean"] > 0]
    return f"Jobs end later on average than under fair sharing at {listed(late)}." if late else ""


def _short(points: list[dict[str, Any]]) -> list[str]:
    return [
        short_of(
            f"{MEASURE_NAMES[m]} at {point['mean_arrival']:g} s", change[m], PAPER[point["mean_arrival"]][m]
        )
        for point in points
        if point["mean_arrival"] in PAPER
        for change in [point["policies"]["total-quality"]["change"]]
        for m in TIMES
    ]


def _not_growing(points: list[dict[str, Any]]) -> str:
    """Return where the advantage does not grow with contention, as the paper says it does; "" where it does."""
    changes = [point["policies"]["total-quality"]["change"]["time_to_90"]["mean"] for point in points]
    if all(later <= earlier for earlier, later in pairwise(changes)):
        return ""
    return (
        "The advantage does not grow at every step: "
        + ", ".join(number(100 * each) + "%" for each in changes)
        + "."
    )


def _draw(figure: Figure, points: list[dict[str, Any]]) -> None:
    place = np.arange(len(points))
    for axes, measure in zip(figure.subplots(1, 2, sharey=True), TIMES, strict=True):
        for policy, shift in (("fair", -0.2), ("total-quality", 0.2)):
            seen = [point["policies"][policy][measure] for point in points]
            mean, low, high = (np.array([each[key] for each in seen]) for key in ("mean", "low", "high"))
            errors = np.array([mean - low, high - mean])
            axes.bar(
                place + shift,
                mean,
                0.38,
                yerr=errors,
                color=pen(policy).color,
                label=policy,
                error_kw={"elinewidth": 0.8, "ecolor": "#1c2126"},
            )
        axes.set_xticks(place, [f"{point['mean_arrival']:g}" for point in points])
        axes.set(xlabel="mean time between arrivals (s)", title=MEASURE_NAMES[measure])
    # Once both are drawn: they share the axis, and a limit set early would cut the second one off.
    figure.axes[0].set_ylim(0, None)
    figure.axes[0].set_ylabel("mean time (s)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the changes of the time to 90%, and of what is told beside it, at every load."""
    return [
        KeyFigure(
            name=f"change of {MEASURE_NAMES[m]} at {point['mean_arrival']:g} s",
            value=point["policies"]["total-quality"]["change"][m],
        )
        for point in results["points"]
        for m in ("time_to_90", *BESIDE)
    ]


EXPERIMENT = Experiment(
    name="contention", headings=("Figure 9",), run=run, sections=sections, key_figures=key_figures
)
