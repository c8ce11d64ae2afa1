"""Figure 3: one job in the middle of a crowd, its accuracy on rows it does not train on and its loss over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.crowd import PROBE
from replication.experiment import Comparison, Picture, Results, Section
from replication.intervals import (
    Estimate,
    changes,
    estimate,
    number,
    percent,
    sentences,
    short_of,
    shown,
    table,
)
from replication.quiet import noise
from slaq.bootstrap import Run
from slaq.cli.demo.training import Trained
from slaq.core.outcome import JobCurve
from slaq.core.quality import time_to
from slaq.reports.style import few_ticks, pen

POLICIES = ("fair", "total-quality")
NAMES = {"fair": "fair sharing", "total-quality": "slaq"}
#: The paper's seconds to 90% accuracy in its Figure 3, under the fair scheduler and under SLAQ.
PAPER_ACCURACY = (230, 70)
#: Percents of accuracy whose times are told, as far as the probe gets there in every run; and the paper's, for
#: which the most that it reaches in every run stands in, if that is less.
MARKS = (60, 70, 80, 85, 86, 87, 88, 89, 90)
MARK = 90


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


def accuracy_marks(pairs: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the percents of accuracy to tell of: the most that every run reached, and those of MARKS below."""
    runs = [each[policy]["probe"]["percents"] for each in pairs for policy in POLICIES]
    most = max(mark for mark in range(MARK + 1) if all(run[mark] is not None for run in runs))
    return [*(mark for mark in MARKS if mark < most), most]


def probe_times(pairs: Sequence[Mapping[str, Any]], policy: str, mark: int) -> list[float]:
    """Return the seconds from the probe's arrival to that accuracy, for every seed."""
    return [each[policy]["probe"]["percents"][mark] for each in pairs]


def sooner(pairs: Sequence[Mapping[str, Any]], mark: int) -> Estimate:
    """Return the change of the time to that accuracy against fair sharing, paired by seed."""
    ours, fair = (probe_times(pairs, policy, mark) for policy in ("total-quality", "fair"))
    return changes(ours, fair)


def figure_3(results: Results, made: str) -> Section:
    """Return the section, given how the runs were made."""
    pairs = results["pairs"]
    marks = accuracy_marks(pairs)
    most = marks[-1]
    loss = {policy: [each[policy]["probe"]["loss_90"] for each in pairs] for policy in POLICIES}
    fair, ours = PAPER_ACCURACY
    return Section(
        heading="Figure 3",
        title="One job's accuracy and loss over time, in the middle of a crowd",
        paper=(
            f"The job reaches 90% accuracy after {fair} s under the fair scheduler and after {ours} s under SLAQ, "
            f"{100 * (1 - ours / fair):.0f}% sooner."
        ),
        ours=(
            "Seconds from the job's arrival to each accuracy on rows held out, and the change against fair "
            f"sharing, paired by seed:\n\n{_by_mark(pairs, marks)}\n\n{_tail(pairs, most)} To 90% of its loss "
            f"reduction: {percent(changes(loss['total-quality'], loss['fair']))}."
        ),
        made=(
            f"The job is a logistic regression by gradient descent on {results['probe_data']}, a fifth of the rows "
            f"held out; it is in the middle of the crowd of Figure 7's real run. {made}"
        ),
        falls_short=sentences(
            short_of(f"the time to {most}% accuracy", sooner(pairs, most), ours / fair - 1),
            ""
            if most == MARK
            else f"{most}% is the most accuracy that this job reached in every run; it stands for the paper's "
            f"{MARK}%.",
            noise(results["busy"]),
        ),
        pictures=(
            Picture(
                name="figure-3",
                alt="Accuracy on held-out rows and loss of one job over time, under fair sharing and slaq.",
                draw=lambda figure: draw_probe(figure, pairs[0], marks),
                height=4.2,
            ),
            Picture(
                name="figure-3-marks",
                alt="Mean seconds of one job to each whole percent of accuracy, under fair sharing and slaq.",
                draw=lambda figure: draw_marks(figure, pairs, most),
                height=3.2,
            ),
        ),
        readme=tuple(
            Comparison(
                what=f"one job's time to {mark}% accuracy, in a real run",
                paper=f"{number(100 * (ours / fair - 1))}%" if mark == most else "–",
                ours=percent(sooner(pairs, mark)),
            )
            for mark in marks
            if mark in (80, most - 1, most)
        ),
    )


def _by_mark(pairs: Sequence[Mapping[str, Any]], marks: Sequence[int]) -> str:
    """Return the table of the times to each accuracy, the change, and in how many runs it came sooner."""
    rows = []
    for mark in marks:
        times = {policy: probe_times(pairs, policy, mark) for policy in POLICIES}
        won = sum(a < b for a, b in zip(times["total-quality"], times["fair"], strict=True))
        means = (shown(estimate(times[policy]), 1) for policy in POLICIES)
        rows.append((f"{mark}%", *means, percent(sooner(pairs, mark)), f"{won} of {len(pairs)}"))
    return table(("accuracy", *(NAMES[policy] for policy in POLICIES), "change", "sooner in"), rows)


def _tail(pairs: Sequence[Mapping[str, Any]], most: int) -> str:
    """Return what the last percent of accuracy takes, beside all before it."""
    last = {
        policy: estimate(
            end - begin
            for begin, end in zip(
                probe_times(pairs, policy, most - 1), probe_times(pairs, policy, most), strict=True
            )
        )["mean"]
        for policy in POLICIES
    }
    before = {policy: estimate(probe_times(pairs, policy, most - 1))["mean"] for policy in POLICIES}
    text = (
        f"The last percent, from {most - 1}% to {most}%, takes {number(last['fair'], 1)} s under fair sharing and "
        f"{number(last['total-quality'], 1)} s under slaq, all before it {number(before['fair'], 1)} s and "
        f"{number(before['total-quality'], 1)} s."
    )
    if last["total-quality"] > last["fair"]:
        text += " By then the job's loss hardly falls any more, so that slaq gives its cores to others."
    return text


def draw_probe(figure: Figure, pair_drawn: Mapping[str, Any], marks: Sequence[int]) -> None:
    """Draw Figure 3's job: accuracy above, loss below."""
    top, bottom = figure.subplots(2, 1, sharex=True)
    for policy in POLICIES:
        course, (color, dash) = pair_drawn[policy]["probe"]["course"], pen(policy)
        accuracy = 100.0 * np.array(course["accuracy"])
        top.plot(course["seconds"], accuracy, color=color, linestyle=dash, label=NAMES[policy])
        bottom.plot(course["seconds"], course["losses"], color=color, linestyle=dash)
        reached = [pair_drawn[policy]["probe"]["percents"][mark] for mark in marks]
        top.plot(reached, marks, linestyle="", marker="o", ms=3.5, color=color)
    top.set_ylabel("test accuracy, %")
    bottom.set_ylabel("loss")
    bottom.set_xlabel("seconds since the job arrived")
    top.set_xlim(left=0.0)
    top.set_ylim(0.0, 100.0)
    for axes in (top, bottom):
        few_ticks(axes)
    top.legend(loc="lower right")


def draw_marks(figure: Figure, pairs: Sequence[Mapping[str, Any]], most: int) -> None:
    """Draw the mean time to each whole percent of accuracy, with intervals over seeds, on a logarithmic scale."""
    axes = figure.add_subplot()
    marks = np.arange(min(MARKS[0], most), most + 1)
    for policy in POLICIES:
        found = [estimate(probe_times(pairs, policy, mark)) for mark in marks.tolist()]
        mean, low, high = (np.array([each[key] for each in found]) for key in ("mean", "low", "high"))
        color, dash = pen(policy)
        axes.plot(marks, mean, color=color, linestyle=dash, marker="o", ms=3.5, label=NAMES[policy])
        # An interval over few seeds may reach below zero, which has no place on this scale.
        axes.fill_between(marks, np.maximum(low, mean / 4), high, color=color, alpha=0.15, lw=0)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set(xlabel="test accuracy, %", ylabel="mean seconds since the job arrived")
    axes.legend(loc="upper left")
