"""Figures 6 and 10a: how well losses 1, 5 and 10 iterations ahead are forecast, by three ways and by algorithm.

The ways are the paper's strawman (the last fall, repeated), the paper's weighted fit of two families of curves, and
slaq's own average over many curves. They forecast from every place of the runs recorded in `replication/curves`,
fed as a scheduler would see them, and the error is relative to the true loss, as in the paper. With outside data
they also forecast from places drawn, with each seed anew, from loss curves that others have published.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.recorded_curves import RecordedCurve
from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
    recorded_runs,
)
from replication.forecast_errors import (
    EARLIEST,
    FARTHEST,
    HORIZONS,
    PUBLIC_EARLIEST,
    WAYS,
    example,
    own_errors,
    published_errors,
)
from replication.intervals import Estimate, listed, number, percent, sentences, table
from slaq.core.arrays import Floats
from slaq.core.errors import WorkloadError
from slaq.reports.style import INK, MUTED

#: The run that is drawn as the paper's Figure 6 draws one.
EXAMPLE = "gbt-usual-made12k-2"
EXAMPLE_SHOWN = 50
#: The paper's mean error ten iterations ahead (§4.2.2), and its bound for every algorithm (§6.3).
PAPER_MEAN, PAPER_BOUND = 0.035, 0.05


def run(settings: Settings) -> Results:
    """Forecast from every place of our own runs, and from drawn places of published ones."""
    runs = recorded_runs(settings.curves)
    if runs is None:
        raise WorkloadError(str(settings.curves), None, "no run is recorded here", "record some first")
    curves = [
        RecordedCurve(source=job.spec.id, family=job.algorithm, losses=job.losses)
        for job in runs
        if len(job.losses) >= EARLIEST + FARTHEST
    ]
    if settings.quick:
        curves = curves[:: max(1, len(curves) // 30)]
    own = own_errors(curves)
    settings.progress(0.6)
    return {
        "runs": len(curves),
        "own": own,
        "example": example([RecordedCurve(source=EXAMPLE, family="", losses=_run(runs, EXAMPLE))]),
        "published": published_errors(settings),
    }


def _run(runs: Any, name: str) -> Floats:
    return next((job.losses for job in runs if job.spec.id == name), next(iter(runs)).losses)


def sections(results: Results) -> list[Section]:
    """Return Figure 6 and Figure 10a."""
    own, published = results["own"], results["published"]
    farthest = {method: own[method][str(FARTHEST)] for method in WAYS}
    made = (
        f"Forecasts from every place, from the {EARLIEST}th loss on, of {results['runs']} runs recorded by "
        "`python -m replication.record_curves` and long enough. A run's error is the mean over its places of "
        "|forecast / truth − 1| or, where it says so, of |forecast − truth| over the range of the run's losses; "
        "algorithms count alike; intervals are over the runs of an algorithm. slaq's "
        "forecaster was never fitted on these runs."
    )
    return [_figure_6(results, farthest, published, made), _figure_10a(own, farthest, made)]


def _figure_6(
    results: Results, farthest: Mapping[str, Any], published: Mapping[str, Any] | None, made: str
) -> Section:
    own = results["own"]
    rows = [
        ("nine algorithms", str(h), *(percent(own[m][str(h)]["mean"], 1) for m in WAYS)) for h in HORIZONS
    ]
    rows.append(
        (
            "nine algorithms, of range",
            str(FARTHEST),
            *(percent(own[m]["range"]["mean"], 1) for m in WAYS),
        )
    )
    if published is not None:
        error = published["error"]
        rows += [
            ("published curves, of range", str(h), *(percent(error[m][str(h)], 1) for m in WAYS))
            for h in HORIZONS
        ]
        made += (
            f" Published curves: {published['curves']} finite, improving ones of {published['families']} families, "
            f"{published['cases']:,} places drawn over all seeds with {PUBLIC_EARLIEST} or more losses known; "
            "their error is in % of the curve's range, since many of them fall to nearly 0, and families count "
            "alike. slaq's forecaster was fitted on these very curves, so this half is in sample."
        )
    ours, fit = farthest["slaq"]["mean"], farthest["weighted-fit"]["mean"]
    return Section(
        heading="Figure 6",
        title="Forecasts 1, 5 and 10 iterations ahead, by three ways",
        paper=(
            "The strawman is good for one or two iterations and degrades quickly; the weighted fit's mean error "
            f"ten iterations ahead is {100 * PAPER_MEAN:.1f}%."
        ),
        ours=table(("curves", "iterations ahead", *(name for name, _, _ in WAYS.values())), rows),
        made=made,
        falls_short=sentences(
            _against_paper(ours),
            ""
            if ours["mean"] <= fit["mean"]
            else "The paper's weighted fit, as we implemented it, has the lower mean error on our runs.",
            "The algorithms are the paper's, the data is not: ours is smaller.",
            "" if published is not None else "Published curves were left out: they need `--data DIR`.",
        ),
        pictures=(
            Picture(
                name="figure-6-example",
                alt="One run's losses, with what three ways forecast for each 1, 5 and 10 iterations before it.",
                draw=lambda figure: draw_example(figure, results["example"]),
            ),
            Picture(
                name="figure-6",
                alt="Mean forecast error against iterations ahead, for the strawman, the weighted fit and slaq.",
                draw=lambda figure: draw_horizons(figure, own, published),
            ),
        ),
        readme=(
            Comparison(
                what=f"forecast error {FARTHEST} iterations ahead, nine algorithms",
                paper=f"{100 * PAPER_MEAN:.1f}%",
                ours=f"{percent(ours, 1)}; the paper's fit on the same runs {percent(fit, 1)}",
            ),
        ),
    )


def _against_paper(ours: Estimate) -> str:
    if ours["mean"] <= PAPER_MEAN:
        return ""
    return (
        f"slaq's mean error {FARTHEST} iterations ahead, {percent(ours, 1)}, is above the "
        f"{100 * PAPER_MEAN:.1f}% that the paper reports for its own runs."
    )


def _figure_10a(own: Mapping[str, Any], farthest: Mapping[str, Any], made: str) -> Section:
    by_way = {method: farthest[method]["algorithms"] for method in WAYS}
    ours, of_range = by_way["slaq"], own["slaq"]["range"]["algorithms"]
    above = [name for name in ours if ours[name]["mean"] >= PAPER_BOUND]
    beaten = [name for name in ours if ours[name]["mean"] > by_way["weighted-fit"][name]["mean"]]
    return Section(
        heading="Figure 10a",
        title=f"Forecast error {FARTHEST} iterations ahead, by algorithm",
        paper=(
            f"The weighted fit's error is below {100 * PAPER_BOUND:.0f}% for every algorithm; the strawman's is "
            "not."
        ),
        ours=table(
            ("algorithm", "runs", *(name for name, _, _ in WAYS.values()), "slaq, of the run's range"),
            [
                (
                    name,
                    number(ours[name]["n"]),
                    *(percent(by_way[method][name], 1) for method in WAYS),
                    percent(of_range[name], 1),
                )
                for name in ours
            ],
        ),
        made=made,
        falls_short=sentences(
            f"slaq's error is not below {100 * PAPER_BOUND:.0f}% for {listed(above)}." if above else "",
            f"The paper's weighted fit has the lower mean error for {listed(beaten)}." if beaten else "",
        ),
        pictures=(
            Picture(
                name="figure-10a",
                alt="Forecast error ten iterations ahead for each of nine algorithms and three ways to forecast.",
                draw=lambda figure: draw_algorithms(figure, by_way),
                height=3.4,
            ),
        ),
    )


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the mean error of slaq's forecasts at each horizon."""
    own = results["own"]["slaq"]
    return [KeyFigure(name=f"forecast error {h} ahead", value=own[str(h)]["mean"]) for h in HORIZONS]


def draw_example(figure: Figure, shown_run: Mapping[str, Any]) -> None:
    """Draw one run with the forecasts of each of its losses, one chart per horizon."""
    losses, places = np.array(shown_run["losses"]), np.array(shown_run["places"])
    panels = figure.subplots(1, len(HORIZONS), sharey=True)
    for place, (axes, horizon) in enumerate(zip(panels, HORIZONS, strict=True)):
        axes.plot(losses, color=INK, linewidth=3.0, alpha=0.25, label="the loss itself")
        for method, (name, colour, _) in WAYS.items():
            said = shown_run["forecasts"][method][place]
            dash = "-" if method == "slaq" else "--"
            axes.plot(places + horizon, said, color=colour, linewidth=1.3, linestyle=dash, label=name)
        axes.set_title(f"{horizon} iteration{'s' if horizon > 1 else ''} ahead")
        axes.set_xlim(0, min(len(losses), EXAMPLE_SHOWN))
        axes.set_xlabel("iteration")
    low, top = float(losses.min()), float(losses.max())
    panels[0].set_ylim(max(0.0, low - 0.25 * (top - low)), top)
    panels[0].set_ylabel(f"loss of {shown_run['run']}", fontsize=8)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=4)


def draw_horizons(figure: Figure, own: Mapping[str, Any], published: Mapping[str, Any] | None) -> None:
    """Draw the mean error against how far ahead, for our runs and for published ones if there are any."""
    panels = figure.subplots(1, 1 if published is None else 2, squeeze=False)[0]
    _draw_errors(panels[0], {m: [own[m][str(h)]["mean"] for h in HORIZONS] for m in WAYS})
    panels[0].set_title("the nine algorithms")
    panels[0].set_ylabel("mean error, % of the true loss")
    panels[0].legend(loc="upper left")
    if published is not None:
        error = published["error"]
        _draw_errors(panels[1], {m: [error[m][str(h)] for h in HORIZONS] for m in WAYS})
        panels[1].set_title("published curves")
        panels[1].set_ylabel("mean error, % of a curve's range")


def _draw_errors(axes: Axes, errors: Mapping[str, list[Estimate]]) -> None:
    for method, (name, colour, marker) in WAYS.items():
        means = [100.0 * each["mean"] for each in errors[method]]
        spans = [100.0 * (each["high"] - each["mean"]) for each in errors[method]]
        axes.errorbar(HORIZONS, means, yerr=spans, color=colour, marker=marker, ms=4, capsize=2, label=name)
    axes.set_xticks(HORIZONS)
    axes.set_xlabel("iterations ahead")
    axes.set_ylim(bottom=0.0)


def draw_algorithms(figure: Figure, by_way: Mapping[str, Mapping[str, Estimate]]) -> None:
    """Draw one line of points per algorithm, on a logarithmic scale."""
    axes = figure.add_subplot()
    names = list(by_way["slaq"])
    places = np.arange(len(names))
    for method, (name, colour, marker) in WAYS.items():
        values = np.array([100.0 * by_way[method][each]["mean"] for each in names])
        axes.plot(values, places, linestyle="", color=colour, marker=marker, ms=6, label=name)
    axes.axvline(100.0 * PAPER_BOUND, color=MUTED, linewidth=0.9, linestyle=":")
    axes.annotate(
        "the paper's bound", (100.0 * PAPER_BOUND, -0.75), color=MUTED, fontsize=8, ha="left", xytext=(4, 0),
        textcoords="offset points", va="center",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -1.1)
    axes.grid(visible=True, axis="both")
    axes.set_xlabel(f"mean error {FARTHEST} iterations ahead, % of the true loss (logarithmic)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)


EXPERIMENT = Experiment(
    name="forecasts",
    headings=("Figure 6", "Figure 10a"),
    run=run,
    sections=sections,
    key_figures=key_figures,
)
