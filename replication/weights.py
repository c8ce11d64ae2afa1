"""Weights: how much sooner a job of weight 2, 4 or 8 gets on, under total-quality and under fair sharing.

Every twentieth job of a seed's workload is given the weight; its times are compared with those of the same job in
the same workload without it. The paper describes weights (§4.3) and does not measure them.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings, in_parallel
from replication.intervals import changes, estimate, percent, sentences, shown, table
from replication.simulated import EPOCH_SECONDS, MEASURE_NAMES, UNITS, Arm, Load, loads, origin
from slaq.core.outcome import JobCurve
from slaq.core.quality import time_to
from slaq.reports.style import pen
from slaq.simulation.workload import Workload

POLICIES = ("fair", "total-quality")
MEASURES = ("time_to_90", "loss_seconds", "completion")
WEIGHTS = (1.0, 2.0, 4.0, 8.0)
QUICK_WEIGHTS = (1.0, 4.0)
#: One job in so many is given the weight.
EVERY = 20


def run(settings: Settings) -> Results:
    """Run every weight under both policies."""
    weights = QUICK_WEIGHTS if settings.quick else WEIGHTS
    cases = [(load, policy, weight) for policy in POLICIES for weight in weights for load in loads(settings)]
    found = in_parallel(one, cases, settings)
    seen: dict[tuple[str, float], list[dict[str, dict[str, float]]]] = {}
    for (_, policy, weight), times in zip(cases, found, strict=True):
        seen.setdefault((policy, weight), []).append(times)
    return {
        "curves": origin(settings),
        "jobs": cases[0][0].jobs,
        "weights": list(weights),
        "policies": {
            policy: [
                {
                    kind: {
                        **{m: estimate(each[kind][m] for each in seen[policy, weight]) for m in MEASURES},
                        "change": {
                            m: changes(
                                [each[kind][m] for each in seen[policy, weight]],
                                [each[kind][m] for each in seen[policy, 1.0]],
                            )
                            for m in MEASURES
                        },
                    }
                    for kind in ("weighted", "others")
                }
                for weight in weights
            ]
            for policy in POLICIES
        },
    }


def one(case: tuple[Load, str, float]) -> dict[str, dict[str, float]]:
    """Return the mean of each measure over the weighted jobs and over the others."""
    load, policy, weight = case
    jobs = load.workload().jobs
    chosen = {job.spec.id for job in jobs[EVERY // 2 :: EVERY]}
    workload = Workload(
        tuple(
            replace(job, spec=replace(job.spec, weight=weight)) if job.spec.id in chosen else job
            for job in jobs
        )
    )
    history = Arm(policy=policy).run(workload, load.seed).history
    found: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    for job in workload:
        curve = JobCurve.of(job.spec, history.events(job.spec.id), job.best_loss)
        assert curve.ended_at is not None
        wait = time_to(curve.times, curve.losses, 0.9, job.best_loss) - job.spec.arrival
        whole = curve.ended_at - job.spec.arrival
        found[job.spec.id in chosen].append((wait, curve.loss_seconds(curve.ended_at), whole))
    return {
        kind: dict(zip(MEASURES, np.mean(found[weighted], axis=0).tolist(), strict=True))
        for kind, weighted in (("weighted", True), ("others", False))
    }


def sections(results: Results) -> list[Section]:
    """Return the section."""
    rows = [
        [
            f"{weight:g}",
            *(
                text
                for policy in POLICIES
                for seen in [results["policies"][policy][k]]
                for text in (
                    shown(seen["weighted"]["time_to_90"], 0, " s"),
                    percent(seen["weighted"]["change"]["time_to_90"]) if k else "",
                    percent(seen["others"]["change"]["time_to_90"]) if k else "",
                )
            ),
        ]
        for k, weight in enumerate(results["weights"])
    ]
    four, fair = (
        results["policies"][each][results["weights"].index(4.0)] for each in ("total-quality", "fair")
    )
    return [
        Section(
            heading="Weights",
            title="Time to 90% of the jobs that carry a weight",
            ours="With weight 4, a job's time to 90% changes by "
            f"{percent(four['weighted']['change']['time_to_90'])} under total-quality.\n\n"
            + table(
                (
                    "weight",
                    *(f"{policy}: {what}" for policy in POLICIES for what in ("to 90%", "change", "others")),
                ),
                rows,
            )
            + f"\n\nChanges of the weighted jobs' loss seconds and completion:\n\n{_beside(results)}",
            made=f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of {EPOCH_SECONDS:g} s, on "
            f"{results['curves']}; one job in {EVERY} carries the weight, and changes are against the same "
            "jobs in the same workload without it.",
            falls_short=sentences(
                "The weighted jobs are few, so the intervals are wide."
                if four["weighted"]["change"]["time_to_90"]["high"] > 0
                else "",
                "A weight moves a job less than under fair sharing: where loss falls fast its job holds most "
                "of what it can use already."
                if four["weighted"]["change"]["time_to_90"]["mean"]
                > fair["weighted"]["change"]["time_to_90"]["mean"]
                else "",
            ),
            pictures=(
                Picture(
                    name="weights",
                    alt="Mean time to 90% of the weighted jobs against their weight, fair and total-quality",
                    draw=lambda figure: _draw(figure, results),
                ),
            ),
        )
    ]


def _beside(results: Results) -> str:
    """Return the table of what the weight does to the weighted jobs' loss seconds and completion."""
    rows = [
        [
            f"{weight:g}",
            *(
                percent(results["policies"][policy][k]["weighted"]["change"][m])
                for policy in POLICIES
                for m in MEASURES[1:]
            ),
        ]
        for k, weight in enumerate(results["weights"])
        if k
    ]
    names = (f"{policy}: {MEASURE_NAMES[m]}" for policy in POLICIES for m in MEASURES[1:])
    return table(("weight", *names), rows)


def _draw(figure: Figure, results: Results) -> None:
    axes = figure.subplots()
    place = np.arange(len(results["weights"]))
    for policy in POLICIES:
        style = pen(policy)
        seen: list[Any] = [each["weighted"]["time_to_90"] for each in results["policies"][policy]]
        mean, low, high = (np.array([each[key] for each in seen]) for key in ("mean", "low", "high"))
        axes.errorbar(
            place,
            mean,
            [mean - low, high - mean],
            label=policy,
            color=style.color,
            ls=style.dash,
            marker="o",
            ms=4,
            capsize=3,
        )
    axes.set_xticks(place, [f"{weight:g}" for weight in results["weights"]])
    axes.set(xlabel="weight of the job", ylabel="mean time to 90% (s)", ylim=(0, None))
    figure.legend(loc="outside upper left", ncols=2)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return how much sooner a job of weight 4 gets on."""
    four = results["policies"]["total-quality"][results["weights"].index(4.0)]
    return [
        KeyFigure(name="change of time to 90% with weight 4", value=four["weighted"]["change"]["time_to_90"])
    ]


EXPERIMENT = Experiment(
    name="weights", headings=("Weights",), run=run, sections=sections, key_figures=key_figures
)
