"""Max-min quality: how the worst job stands over time under min-quality, against fair sharing and total-quality.

The paper describes the policy (§4.3) and does not measure it.
"""

from typing import Any

import numpy as np

from replication.drawing import draw_over_time
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings, in_parallel
from replication.intervals import changes, estimate, percent, sentences, shown, table
from replication.simulated import (
    BESIDE,
    EPOCH_SECONDS,
    MEASURE_NAMES,
    UNITS,
    Arm,
    Load,
    binned,
    loads,
    origin,
    told,
)

POLICIES = ("fair", "total-quality", "min-quality")
#: The mean over epochs of the worst job's loss, the share of epochs in which it is above a half, and what the mean
#: of all jobs, the time to 90% and whole jobs pay for it.
MEASURES = ("worst", "above_half", "mean_normalised_loss", "time_to_90", *BESIDE)


def run(settings: Settings) -> Results:
    """Run the three policies on every seed's jobs."""
    cases = [(load, policy) for policy in POLICIES for load in loads(settings)]
    found = in_parallel(one, cases, settings)
    seen = {
        policy: [each for each, case in zip(found, cases, strict=True) if case[1] == policy]
        for policy in POLICIES
    }
    return {
        "curves": origin(settings),
        "jobs": cases[0][0].jobs,
        "policies": {
            policy: {
                **{m: estimate(run[m] for run in runs) for m in MEASURES},
                "change": {m: changes([a[m] for a in runs], [b[m] for b in seen["fair"]]) for m in MEASURES},
                "over_time": runs[0]["over_time"],
            }
            for policy, runs in seen.items()
        },
    }


def one(case: tuple[Load, str]) -> dict[str, Any]:
    """Run one seed's jobs under one policy."""
    load, policy = case
    outcome = Arm(policy=policy).run(load.workload(), load.seed).outcome
    worst = outcome.worst_loss
    known = np.isfinite(worst)
    return {
        "worst": worst[known].mean(),
        "above_half": (worst[known] > 0.5).mean(),
        **told(outcome),
        "over_time": binned(outcome.times, worst),
    }


def sections(results: Results) -> list[Section]:
    """Return the section."""
    policies = results["policies"]
    rows = [
        [
            policy,
            shown(seen["worst"], 2),
            percent(seen["above_half"]),
            shown(seen["mean_normalised_loss"], 3),
            *(shown(seen[m], 0, " s") for m in ("time_to_90", *BESIDE)),
        ]
        for policy, seen in policies.items()
    ]
    ours = policies["min-quality"]["change"]["worst"]
    no_better = policies["min-quality"]["worst"]["mean"] >= policies["total-quality"]["worst"]["mean"]
    return [
        Section(
            heading="Max-min quality",
            title="The worst job's normalised loss",
            ours=f"Under min-quality the worst job's loss is {percent(ours)} against fair sharing.\n\n"
            + table(
                (
                    "policy",
                    "worst job, mean over time",
                    "time it is above 0.5",
                    "mean of all jobs",
                    *(MEASURE_NAMES[m] for m in ("time_to_90", *BESIDE)),
                ),
                rows,
            ),
            made=f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of {EPOCH_SECONDS:g} s, on "
            f"{results['curves']}. In every epoch the largest normalised loss of the active jobs; the picture "
            "shows one seed.",
            falls_short=sentences(
                "A job that has just arrived stands at 1 under any policy, which bounds how low the worst can be.",
                "min-quality does not lower the worst job's loss below total-quality's here."
                if no_better
                else "",
            ),
            pictures=(
                Picture(
                    name="max-min",
                    alt="Normalised loss of the worst active job over time under three policies",
                    draw=lambda figure: draw_over_time(
                        figure,
                        {policy: seen["over_time"] for policy, seen in policies.items()},
                        "normalised loss of the worst job",
                        top=1.02,
                    ),
                ),
            ),
        )
    ]


def key_figures(results: Results) -> list[KeyFigure]:
    """Return how the worst job stands."""
    return [
        KeyFigure(
            name="worst job's loss under min-quality", value=results["policies"]["min-quality"]["worst"]
        )
    ]


EXPERIMENT = Experiment(
    name="worst_job", headings=("Max-min quality",), run=run, sections=sections, key_figures=key_figures
)
