"""Figure 5: how far each iteration of the nine algorithms still cuts the loss, normalised as the paper does it.

An iteration's change of loss over the largest change so far goes from 1 towards 0 whatever the loss is measured in,
which is what lets a scheduler compare jobs. The runs are those recorded in `replication/curves`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.catalogue import ACRONYMS
from replication.experiment import Experiment, Picture, Results, Section, Settings, recorded_runs
from replication.intervals import listed, number, sentences, table
from slaq.core.arrays import Floats
from slaq.core.errors import WorkloadError
from slaq.reports.style import BLUE, MUTED

#: Iterations that are drawn.
SHOWN = 60
#: The change is called small below this share of the largest.
SMALL = 0.1


def normalised_change(losses: Floats) -> Floats:
    """Return |change of loss| over the largest so far, for every iteration."""
    change = np.abs(np.diff(losses))
    largest = np.maximum.accumulate(change)
    return np.divide(change, largest, out=np.zeros_like(change), where=largest > 0)


def iterations_until_small(change: Floats) -> float:
    """Return how many iterations pass until all later ones change the loss by less than SMALL; NaN if never."""
    large = np.flatnonzero(change >= SMALL)
    return float(large[-1] + 1) if large.size and large[-1] + 1 < len(change) else np.nan


def _median(column: Floats) -> float:
    """Return the median over the runs that have not ended, NaN where most have: the rest are not typical."""
    known = column[np.isfinite(column)]
    return float(np.median(known)) if known.size >= len(column) / 2 else np.nan


def run(settings: Settings) -> Results:
    """Normalise the changes of every recorded run."""
    runs = recorded_runs(settings.curves)
    if runs is None:
        raise WorkloadError(str(settings.curves), None, "no run is recorded here", "record some first")
    found = {}
    for acronym in ACRONYMS:
        changes = [normalised_change(job.losses) for job in runs if job.algorithm == acronym]
        if not changes:
            continue
        padded = np.full((len(changes), SHOWN), np.nan)
        for row, change in zip(padded, changes, strict=True):
            row[: len(change)] = change[:SHOWN]
        small = np.array([iterations_until_small(change) for change in changes])
        found[acronym] = {
            "runs": len(changes),
            "changes": np.round(padded, 4),
            "median": [_median(column) for column in padded.T],
            "until_small": float(np.median(small[np.isfinite(small)])) if np.isfinite(small).any() else None,
            "reached_small": float(np.isfinite(small).mean()),
            "last": float(np.median([change[-1] for change in changes])),
        }
    return {"algorithms": found}


def sections(results: Results) -> list[Section]:
    """Return Figure 5."""
    found = results["algorithms"]
    stubborn = [name for name, each in found.items() if each["reached_small"] < 1]
    return [
        Section(
            heading="Figure 5",
            title="Normalised change of loss for the nine algorithms",
            paper=(
                "Losses differ by orders of magnitude between algorithms, but the change of loss over the "
                "largest change so far falls from 1 to 0 for all of them alike."
            ),
            ours=table(
                (
                    "algorithm",
                    "runs",
                    f"iterations until the change stays below {number(100 * SMALL)}% (median)",
                    "runs that get there",
                    "change in the last iteration (median)",
                ),
                [
                    (
                        name,
                        number(each["runs"]),
                        number(each["until_small"]),
                        f"{100 * each['reached_small']:.0f}%",
                        f"{100 * each['last']:.2g}%",
                    )
                    for name, each in found.items()
                ],
            ),
            made=(
                f"{sum(each['runs'] for each in found.values())} runs recorded by `python -m "
                "replication.record_curves`; no chance is involved beyond the data they were trained on."
            ),
            falls_short=sentences(
                f"Not every run of {listed(stubborn)} gets below {number(100 * SMALL)}% for good within its "
                "iterations."
                if stubborn
                else "",
                "The algorithms are the paper's, the data is not: ours is smaller.",
            ),
            pictures=(
                Picture(
                    name="figure-5",
                    alt="Nine small charts, one per algorithm: the normalised change of loss over iterations.",
                    draw=lambda figure: draw(figure, found),
                    height=5.2,
                ),
            ),
        )
    ]


def draw(figure: Figure, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw one small chart per algorithm: every run thin, their median thick."""
    panels = figure.subplots(3, 3, sharex=True, sharey=True)
    for axes, (name, each) in zip(panels.flat, found.items(), strict=False):
        iterations = np.arange(1, SHOWN + 1)
        for change in each["changes"]:
            values = np.array([np.nan if value is None else value for value in change])
            axes.plot(iterations, values, color=MUTED, linewidth=0.6, alpha=0.35)
        median = [np.nan if value is None else value for value in each["median"]]
        axes.plot(iterations, median, color=BLUE, linewidth=1.8)
        axes.set_title(name)
        axes.set_ylim(0.0, 1.02)
        axes.set_yticks([0.0, 0.5, 1.0])
    figure.supxlabel("iteration", fontsize=9, color=MUTED)
    figure.supylabel("change of loss / largest change so far", fontsize=9, color=MUTED)


EXPERIMENT = Experiment(name="convergence", headings=("Figure 5",), run=run, sections=sections)
