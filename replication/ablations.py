"""Ablations: what each part of slaq is worth, with the paper's predictors and normaliser in place of its own.

Forecasters are compared on the curves as they were recorded, which hardly have any noise, and with noise on every
loss, as losses of mini-batches have. The paper's weighted fit is a straight line until it has three losses.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.drawing import draw_changes
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings
from replication.intervals import changes, estimate, listed, number, percent, sentences, table
from replication.simulated import (
    MEASURE_NAMES,
    TOLD,
    UNITS,
    Arm,
    changes_row,
    changes_table,
    loads,
    longer,
    origin,
    run_all,
    summary,
)
from slaq.reports.style import BLUE

#: The forecasters that are compared under noise, from the simplest to slaq's own, and how each is drawn.
FORECASTERS = {
    "the last loss": Arm(forecaster="last"),
    "the paper's strawman": Arm(forecaster="strawman"),
    "the paper's weighted fit": Arm(forecaster="weighted-fit"),
    "slaq": Arm(),
}
PENS = (("#b7bdc5", "v"), ("#7d858f", "s"), ("#e69f00", "^"), (BLUE, "o"))
ARMS = {
    "fair": Arm(policy="fair"),
    "slaq": Arm(),
    **{name: arm for name, arm in FORECASTERS.items() if name != "slaq"},
    "the last loss, no optimism": Arm(forecaster="last", optimism=0.0),
    "the paper's normaliser": Arm(by_largest_fall=True),
    "the paper's weighted fit and normaliser, no optimism": Arm(
        forecaster="weighted-fit", by_largest_fall=True, optimism=0.0
    ),
    "no optimism": Arm(optimism=0.0),
    "full optimism": Arm(optimism=1.0),
    "no floor": Arm(floor=0.0),
    "a floor of a quarter": Arm(floor=0.25),
    "no floor, no optimism": Arm(floor=0.0, optimism=0.0),
    "clairvoyant": Arm(policy="clairvoyant"),
}
#: Standard deviations of the noise on each loss, in ranges of the job's curve.
NOISE = (0.0, 0.02, 0.05, 0.1)
QUICK = ("fair", *FORECASTERS, "no floor, no optimism", "clairvoyant")
QUICK_NOISE = (0.0, 0.05)


def run(settings: Settings) -> Results:
    """Run every arm on every seed's jobs, and every forecaster with every noise."""
    jobs = loads(settings)
    arms = {(name, 0.0): arm for name, arm in ARMS.items() if not settings.quick or name in QUICK}
    levels = QUICK_NOISE if settings.quick else NOISE
    noisy = {
        (name, level): replace(ARMS[name], loss_noise=level)
        for level in levels
        for name in ("fair", *FORECASTERS)
    }
    every = {**noisy, **arms}
    found = run_all([(load, arm) for arm in every.values() for load in jobs], settings)
    seen = {key: [found[load, arm] for load in jobs] for key, arm in every.items()}
    return {
        "curves": origin(settings),
        "jobs": jobs[0].jobs,
        "arms": {name: summary(seen[name, 0.0], seen["fair", 0.0]) for name, _ in arms},
        "noise": [
            {
                "noise": level,
                "active_under_fair": estimate(each["mean_active"] for each in seen["fair", level]),
                "forecasters": {name: _under_noise(seen, name, level) for name in FORECASTERS},
            }
            for level in levels
        ],
    }


def _under_noise(
    seen: Mapping[tuple[str, float], list[dict[str, float]]], name: str, level: float
) -> dict[str, Any]:
    """Return how a forecaster does under a noise: against fair sharing, and slaq's own against it, by seed."""
    ours, its = ([each["time_to_90"] for each in seen[forecaster, level]] for forecaster in ("slaq", name))
    return {**summary(seen[name, level], seen["fair", level]), "slaq_against_it": changes(ours, its)}


def sections(results: Results) -> list[Section]:
    """Return the section on each part, and the one on forecasters under noise."""
    made = f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of 3 s, on {results['curves']}."
    return [_parts(results, made), _forecasters(results["noise"], made)]


def _parts(results: Results, made: str) -> Section:
    arms = {name: seen for name, seen in results["arms"].items() if name != "fair"}
    ours = arms["slaq"]["change"]["time_to_90"]["mean"]
    better = [
        name
        for name, seen in arms.items()
        if name != "clairvoyant" and seen["change"]["time_to_90"]["mean"] < ours
    ]
    return Section(
        heading="Ablations",
        title="Change against fair sharing with one part of slaq replaced",
        ours=changes_table([changes_row(name, seen) for name, seen in arms.items()]),
        made=f"{made} Optimism is the part of the lower half of a forecast's interval that is added to its fall; "
        "the floor is the part of its fair share that a job always keeps; until its second loss a job is taken to "
        "gain as jobs usually do, whoever forecasts. The clairvoyant knows every loss to come. All rows share the "
        "same jobs, so that they differ more surely than their intervals suggest.",
        falls_short=sentences(
            f"At 90%, slaq as it is does not win over: {'; '.join(better)}. Differences within the intervals "
            "say little."
            if better
            else "",
            longer(arms["slaq"]),
        ),
        pictures=(
            Picture(
                name="ablations",
                alt="Change of the time to 90% against fair sharing for every ablation, with intervals",
                draw=lambda figure: draw_changes(
                    figure, [(name, seen["change"]["time_to_90"]) for name, seen in arms.items()]
                ),
                height=0.9 + 0.22 * len(arms),
            ),
        ),
    )


def _forecasters(noise: list[dict[str, Any]], made: str) -> Section:
    rows = []
    for level in noise:
        for name, seen in level["forecasters"].items():
            against = "" if name == "slaq" else percent(seen["slaq_against_it"])
            rows.append([_level(level["noise"]), *changes_row(name, seen), against])
    header = ("noise", "forecaster", *(MEASURE_NAMES[m] for m in TOLD), "slaq's time to 90% against its")
    return Section(
        heading="Ablations",
        title="Change against fair sharing by forecaster, without and with noise on the losses",
        ours=f"{_conclusion(noise)}\n\n{table(header, rows)}",
        made=f"{made} Normally distributed noise on every loss but the first; its standard deviation is in shares "
        "of the range of the job's curve. Fair sharing runs under the same noise, and a job's best loss is the "
        "best it reports. All else is slaq's own: optimism, floor, normaliser.",
        falls_short=_falls_short(noise),
        pictures=(
            Picture(
                name="ablations-noise",
                alt="Change of the time to 90% against fair sharing by noise, for four forecasters",
                draw=lambda figure: _draw(figure, noise),
            ),
        ),
    )


def _level(noise: float) -> str:
    return f"{100 * noise:g}%" if noise else "none"


def _named(noise: float) -> str:
    return f"with {_level(noise)} noise" if noise else "without noise"


def _conclusion(noise: list[dict[str, Any]]) -> str:
    """Return how far the forecasters are apart at each noise, and what follows from it."""
    told, apart = [], []
    for level in noise:
        means = {name: seen["change"]["time_to_90"]["mean"] for name, seen in level["forecasters"].items()}
        each = ", ".join(f"{name} {number(100 * mean)}%" for name, mean in means.items())
        told.append(f"{_named(level['noise'])} {each}")
        apart.append(100 * (max(means.values()) - min(means.values())))
    text = f"Change of the time to 90%: {'; '.join(told)}."
    if apart[-1] > 2 * apart[0]:
        text += (
            f" The four are {number(apart[0])} points apart without noise, where even the last loss, hoped to go "
            f"on falling as it lately moved, is good enough, and {number(apart[-1])} points "
            f"{_named(noise[-1]['noise'])}: what a forecaster is worth shows under noise."
        )
    return text


def _falls_short(noise: list[dict[str, Any]]) -> str:
    """Return where a rival is as good: slaq's time to 90% is not surely shorter than with that forecaster."""
    told = []
    for level in noise:
        rivals = [
            name
            for name, seen in level["forecasters"].items()
            if name != "slaq" and seen["slaq_against_it"]["high"] >= 0
        ]
        if rivals:
            told.append(
                f"{_named(level['noise']).capitalize()} slaq's forecaster is not surely better at 90% than "
                f"{listed(rivals)}."
            )
    sooner = [
        name
        for name in FORECASTERS
        if all(_completion(level, name) < _completion(level, "slaq") for level in noise)
    ]
    if sooner:
        told.append(f"Jobs end later with slaq's forecaster than with {listed(sooner)}, at every noise.")
    return sentences(*told)


def _completion(level: dict[str, Any], name: str) -> float:
    return float(level["forecasters"][name]["change"]["completion"]["mean"])


def _draw(figure: Figure, noise: list[dict[str, Any]]) -> None:
    axes = figure.subplots()
    place = 100 * np.array([level["noise"] for level in noise])
    for name, (color, marker) in zip(FORECASTERS, PENS, strict=True):
        seen = [level["forecasters"][name]["change"]["time_to_90"] for level in noise]
        mean = 100 * np.array([each["mean"] for each in seen])
        axes.plot(place, mean, label=name, color=color, marker=marker, ms=5)
    axes.axhline(0.0, color="#1c2126", lw=0.8)
    axes.set_xticks(place)
    axes.set(
        xlabel="noise on every loss (% of the range of the job's curve)", ylabel="change of time to 90% (%)"
    )
    figure.legend(loc="outside upper left", ncols=4)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return slaq's own change of every measure, and that of the time to 90% under every noise."""
    ours = results["arms"]["slaq"]["change"]
    return [KeyFigure(name=f"change of {MEASURE_NAMES[m]}", value=ours[m]) for m in TOLD] + [
        KeyFigure(
            name=f"change of time to 90% {_named(level['noise'])}",
            value=level["forecasters"]["slaq"]["change"]["time_to_90"],
        )
        for level in results["noise"]
        if level["noise"]
    ]


EXPERIMENT = Experiment(
    name="ablations", headings=("Ablations",), run=run, sections=sections, key_figures=key_figures
)
