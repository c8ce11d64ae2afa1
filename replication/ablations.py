"""Ablations: what each part of slaq is worth, with the paper's predictor and normaliser in place of its own."""

from replication.drawing import draw_changes
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings
from replication.intervals import percent, sentences, table
from replication.simulated import MEASURE_NAMES, MEASURES, UNITS, Arm, compare, loads, origin

ARMS = {
    "fair": Arm(policy="fair"),
    "slaq": Arm(),
    "the paper's predictor": Arm(forecaster="weighted-fit"),
    "the paper's normaliser": Arm(by_largest_fall=True),
    "the paper's predictor and normaliser, no optimism": Arm(
        forecaster="weighted-fit", by_largest_fall=True, optimism=0.0
    ),
    "the paper's strawman predictor": Arm(forecaster="strawman"),
    "no optimism": Arm(optimism=0.0),
    "full optimism": Arm(optimism=1.0),
    "no floor": Arm(floor=0.0),
    "a floor of a quarter": Arm(floor=0.25),
    "no floor, no optimism": Arm(floor=0.0, optimism=0.0),
    "clairvoyant": Arm(policy="clairvoyant"),
}
QUICK = (
    "fair",
    "slaq",
    "the paper's predictor and normaliser, no optimism",
    "no floor, no optimism",
    "clairvoyant",
)


def run(settings: Settings) -> Results:
    """Run every arm on every seed's jobs."""
    jobs = loads(settings)
    arms = {name: arm for name, arm in ARMS.items() if not settings.quick or name in QUICK}
    return {
        "curves": origin(settings),
        "jobs": jobs[0].jobs,
        "arms": compare(arms, jobs, settings),
    }


def sections(results: Results) -> list[Section]:
    """Return the section."""
    arms = {name: seen for name, seen in results["arms"].items() if name != "fair"}
    rows = [[name, *(percent(seen["change"][m]) for m in MEASURES)] for name, seen in arms.items()]
    ours = arms["slaq"]["change"]["time_to_90"]["mean"]
    better = [
        name
        for name, seen in arms.items()
        if name != "clairvoyant" and seen["change"]["time_to_90"]["mean"] < ours
    ]
    return [
        Section(
            heading="Ablations",
            title="Change against fair sharing with one part of slaq replaced",
            ours=table(("", *(MEASURE_NAMES[m] for m in MEASURES)), rows),
            made=f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of 3 s, on {results['curves']}. "
            "Optimism is the part of the lower half of a forecast's interval that is added to its fall; the floor "
            "is the part of its fair share that a job always keeps. The clairvoyant knows every loss to come. All "
            "rows share the same jobs, so that they differ more surely than their intervals suggest.",
            falls_short=sentences(
                f"At 90%, slaq as it is does not win over: {'; '.join(better)}. Differences within the intervals "
                "say little."
                if better
                else ""
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
    ]


def key_figures(results: Results) -> list[KeyFigure]:
    """Return slaq's own change of every measure."""
    ours = results["arms"]["slaq"]["change"]
    return [KeyFigure(name=f"change of {MEASURE_NAMES[m]}", value=ours[m]) for m in MEASURES]


EXPERIMENT = Experiment(
    name="ablations", headings=("Ablations",), run=run, sections=sections, key_figures=key_figures
)
