"""Chances and times: what slaq says of targets and deadlines, held against what came, on recorded curves.

Every source of curves is judged with tables of `slaq.core.reliability` that were fitted to the other sources. The
paper forecasts losses and promises nothing of deadlines.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.prospect_calibration import chosen_curves, judged_without_source, questions
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings
from replication.intervals import estimate, number, sentences, shown, table
from slaq.reports.style import BLUE, MUTED

#: Curves of each family.
CURVES, QUICK_CURVES = 40, 2
#: Kinds of targets by what they are called.
KINDS = {
    "target_loss": "a target loss",
    "share_end_known": "a share of the whole reduction, end known",
    "share_end_unknown": "the same, end unknown",
}
#: How far a chance may be from what comes true in each tenth of chances.
WITHIN = 0.05
#: How far off expected times may be.
NEAR = 1.5


def run(settings: Settings) -> Results:
    """Ask about every curve with each seed's draw of curves and targets."""
    folder = settings.outside("curves_public")
    runs = settings.curves / "recorded.jsonl"
    seen = []
    for index, seed in enumerate(settings.seeds):
        many = QUICK_CURVES if settings.quick else CURVES
        curves = chosen_curves(folder, runs, many, np.random.default_rng(seed))
        asked, times = questions([curve.losses for curve in curves], seed)
        seen.append(judged_without_source(curves, asked, times) | {"curves": len(curves)})
        settings.progress((index + 1) / len(settings.seeds))
    return {
        "curves": [each["curves"] for each in seen],
        "chances": {kind: _bands([each["chances"][kind] for each in seen]) for kind in KINDS},
        "times": {
            name: {key: round(float(np.mean([each["times"][name][key] for each in seen])), 2) for key in row}
            for name, row in seen[0]["times"].items()
        },
    }


def _bands(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the reliability of one kind of target: the means over seeds, for slaq and its trajectories alone."""
    found: dict[str, Any] = {
        key: estimate(each[key] for each in seen)
        for key in ("brier", "brier_of_trajectories", "brier_of_the_mean")
    }
    for name in ("bands", "trajectories"):
        rows: dict[int, list[dict[str, float]]] = {}
        for each in seen:
            for row in each[name]:
                rows.setdefault(min(int(10 * row["said"]), 9), []).append(row)
        found[name] = [
            {
                "cases": int(sum(row["cases"] for row in tenth)),
                **{
                    key: round(
                        float(np.average([row[key] for row in tenth], weights=[r["cases"] for r in tenth])), 3
                    )
                    for key in ("said", "came_true")
                },
            }
            for _, tenth in sorted(rows.items())
        ]
    return found


def sections(results: Results) -> list[Section]:
    """Return the section."""
    chances, times = results["chances"], results["times"]
    worst = {
        kind: max(abs(row["said"] - row["came_true"]) for row in found["bands"])
        for kind, found in chances.items()
    }
    far = [f"{KINDS[kind]}: {number(off, 3)}" for kind, off in worst.items() if off > WITHIN]
    late = [f"{name}: {number(row['off'], 1)}" for name, row in times.items() if row["off"] > NEAR]
    return [
        Section(
            heading="Chances and times",
            title="How likely a target is in time, and when it is made",
            ours="The Brier score is the mean square error of chances; that of always saying the mean is for "
            "comparison. Farthest off is the largest difference, over the tenths of chances, between what was "
            "said and what came true.\n\n"
            f"{_chances_table(results, worst)}\n\n"
            "Times to a share of the fall of a whole curve. The factors are medians; too soon is the share of "
            "cases in which slaq said too early that the share was made.\n\n"
            f"{_times_table(results)}",
            made=f"{number(float(np.mean(results['curves'])))} curves in each of {len(results['curves'])} draws: "
            f"at most {CURVES} of each family of the published curves and of our own runs. Asked after 3 to 80 "
            "losses, with 2 to 80 iterations left. Tables were fitted without the source that they are judged on; "
            "the forecaster's own tables had seen it. Families count alike.",
            falls_short=sentences(
                f"Chances are off by more than {number(WITHIN, 2)} in some tenth ({'; '.join(far)})."
                if far
                else "",
                f"Times are off by more than {number(NEAR, 1)} ({'; '.join(late)}): a curve is flat where it "
                "reaches its last tenth, so that a small error of the loss is a large one of the time. The "
                "intervals say so."
                if late
                else "",
            ),
            pictures=(
                Picture(
                    name="reliability",
                    alt="Three charts, one for each kind of target: how often a target was made in time "
                    "against the chance that was said, for slaq near the diagonal, and for its trajectories alone, "
                    "farther off",
                    draw=lambda figure: _draw(figure, chances),
                ),
            ),
        )
    ]


def _chances_table(results: Results, worst: dict[str, float]) -> str:
    rows = [
        (
            KINDS[kind],
            number(sum(row["cases"] for row in found["bands"])),
            *(shown(found[each], 3) for each in ("brier", "brier_of_trajectories", "brier_of_the_mean")),
            number(worst[kind], 3),
        )
        for kind, found in results["chances"].items()
    ]
    return table(
        ("target", "cases", "Brier score", "of the trajectories alone", "of the mean", "farthest off"), rows
    )


def _times_table(results: Results) -> str:
    rows = [
        (
            name,
            number(row["off"], 1),
            number(row["off_from_20"], 1),
            f"{100 * row['too_soon']:.0f}%",
            f"{100 * row['covered']:.0f}%",
            number(row["width"]),
        )
        for name, row in results["times"].items()
    ]
    header = (
        "share",
        "off by",
        "from 20 losses on",
        "too soon",
        "inside the 80% interval",
        "whose ends are apart by",
    )
    return table(header, rows)


def _draw(figure: Figure, chances: dict[str, Any]) -> None:
    """Draw a reliability diagram for each kind of target."""
    for axes, (kind, found) in zip(figure.subplots(1, len(KINDS), sharey=True), chances.items(), strict=True):
        axes.plot((0, 1), (0, 1), color=MUTED, lw=0.8)
        for name, color, marker, label in (
            ("trajectories", "#b7bdc5", "s", "trajectories alone"),
            ("bands", BLUE, "o", "slaq"),
        ):
            said, came = ([row[key] for row in found[name]] for key in ("said", "came_true"))
            axes.plot(said, came, color=color, marker=marker, ms=4, lw=1.2, label=label)
        axes.set_title(KINDS[kind].replace("a share of the whole reduction", "a share"), fontsize=9)
        axes.set(xlabel="chance said", xlim=(0, 1), ylim=(0, 1))
    figure.axes[0].set_ylabel("came true")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the error of chances by kind of target."""
    return [
        KeyFigure(name=f"Brier score of chances, {KINDS[kind]}", value=found["brier"])
        for kind, found in results["chances"].items()
    ]


EXPERIMENT = Experiment(
    name="chances", headings=("Chances and times",), run=run, sections=sections, key_figures=key_figures
)
