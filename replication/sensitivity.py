"""Sensitivity: what is left of slaq's advantage when epochs are long, costs vary, or forecasts are wrong.

Each row changes one thing and keeps the rest at slaq's own settings. Where the change also touches fair sharing
(epochs, costs, noise), the row is compared with fair sharing under the same change.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from replication.drawing import draw_changes
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings
from replication.intervals import sentences
from replication.simulated import UNITS, Arm, changes_row, changes_table, compare, loads, origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing that is changed, and to what."""

    name: str
    #: How each setting is called in the report, and the arm it makes.
    arms: dict[str, Arm]
    #: Whether fair sharing changes with it.
    touches_fair: bool = False
    #: The settings of a quick run; all the others are left out of it.
    quick: tuple[str, ...] = field(default=())


def _wrong_class(forecaster: str, family: str) -> Arm:
    return Arm(forecaster=forecaster, families=(family,))


QUESTIONS = (
    Question(
        name="length of an epoch",
        arms={f"{seconds:g} s": Arm(epoch_seconds=seconds) for seconds in (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)},
        touches_fair=True,
        quick=("3 s", "10 s"),
    ),
    Question(
        name="cost of an iteration varies (sigma of its logarithm)",
        arms={f"{sigma:g}": Arm(cost_noise=sigma) for sigma in (0.25, 0.5, 1.0)},
        touches_fair=True,
        quick=("0.5",),
    ),
    Question(
        name="each job's forecast is wrong by a factor (sigma of its logarithm)",
        arms={f"{sigma:g}": Arm(forecast_error=sigma) for sigma in (0.25, 0.5, 1.0, 2.0)},
        quick=("1",),
    ),
    Question(
        name="every job is taken for one convergence class",
        arms={
            "slaq's forecaster, linear only": _wrong_class("slaq", "exponential"),
            "slaq's forecaster, sublinear only": _wrong_class("slaq", "power"),
            "the paper's fit, linear only": _wrong_class("weighted-fit", "exponential"),
            "the paper's fit, sublinear only": _wrong_class("weighted-fit", "sublinear"),
        },
        quick=("slaq's forecaster, linear only", "the paper's fit, sublinear only"),
    ),
    Question(
        name="noise on every loss, as of mini-batches (in ranges of the curve)",
        arms={f"{100 * sigma:g}%": Arm(loss_noise=sigma) for sigma in (0.005, 0.02, 0.05, 0.1)},
        touches_fair=True,
        quick=("2%",),
    ),
)


def run(settings: Settings) -> Results:
    """Run every arm, and fair sharing wherever it changes too."""
    asked = {question.name: _asked(question, settings) for question in QUESTIONS}
    arms = {"fair": Arm(policy="fair"), "as it is": Arm()}
    baselines = {}
    for question in QUESTIONS:
        for name, arm in asked[question.name].items():
            arms[f"{question.name}: {name}"] = arm
            if question.touches_fair:
                baselines[f"{question.name}: {name}"] = f"fair, {question.name}: {name}"
                arms[f"fair, {question.name}: {name}"] = replace(arm, policy="fair")
                baselines[f"fair, {question.name}: {name}"] = f"fair, {question.name}: {name}"
    jobs = loads(settings)
    found = compare(arms, jobs, settings, baselines)
    return {
        "curves": origin(settings),
        "jobs": jobs[0].jobs,
        "as it is": found["as it is"],
        "questions": [
            {"name": name, "settings": [{"name": each, **found[f"{name}: {each}"]} for each in arms_of]}
            for name, arms_of in asked.items()
        ],
    }


def _asked(question: Question, settings: Settings) -> dict[str, Arm]:
    return {name: arm for name, arm in question.arms.items() if not settings.quick or name in question.quick}


def sections(results: Results) -> list[Section]:
    """Return the section."""
    rows = [changes_row("**as it is**", results["as it is"])]
    for question in results["questions"]:
        rows.append([f"*{question['name']}*", *[""] * (len(rows[0]) - 1)])
        rows += [changes_row(each["name"], each) for each in question["settings"]]
    worse = [
        f"{question['name']}, {each['name']}"
        for question in results["questions"]
        for each in question["settings"]
        if each["change"]["time_to_90"]["mean"] > 0
    ]
    unsure = [
        f"{question['name']}, {each['name']}"
        for question in results["questions"]
        for each in question["settings"]
        if each["change"]["time_to_90"]["mean"] <= 0 < each["change"]["time_to_90"]["high"]
    ]
    return [
        Section(
            heading="Sensitivity",
            title="Change against fair sharing when one thing is not as it should be",
            ours=changes_table(rows),
            made=f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of 3 s unless said, on "
            f"{results['curves']}; rows about epochs, costs and noise are against fair sharing under the same. A "
            "wrong forecast is wrong by the same factor for the whole of a job's run. With noise, a job's best "
            "loss is the best it reports. The paper's fit is a straight line until it has three losses.",
            falls_short=sentences(
                f"Worse than fair sharing at 90%: {'; '.join(worse)}." if worse else "",
                f"Not surely better than fair sharing at 90%: {'; '.join(unsure)}." if unsure else "",
            ),
            pictures=(
                Picture(
                    name="sensitivity",
                    alt="Change of the time to 90% against fair sharing for every setting, with intervals",
                    draw=lambda figure: draw_changes(figure, _flat(results)),
                    height=0.9 + 0.2 * (1 + sum(len(q["settings"]) for q in results["questions"])),
                ),
            ),
        )
    ]


def _flat(results: Results) -> list[tuple[str, Any]]:
    """Return every setting with its change of the time to 90%."""
    short = ("epoch", "cost noise", "forecast error", "one class", "loss noise")
    return [
        ("as it is", results["as it is"]["change"]["time_to_90"]),
        *(
            (f"{label}: {each['name']}", each["change"]["time_to_90"])
            for label, question in zip(short, results["questions"], strict=True)
            for each in question["settings"]
        ),
    ]


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the change of the time to 90% in every row."""
    return [
        KeyFigure(name=f"time to 90%, {question['name']} {each['name']}", value=each["change"]["time_to_90"])
        for question in results["questions"]
        for each in question["settings"]
    ]


EXPERIMENT = Experiment(
    name="sensitivity", headings=("Sensitivity",), run=run, sections=sections, key_figures=key_figures
)
