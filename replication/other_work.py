"""A mix with other work: jobs without a loss hold their fair share, or their reservation, while ML jobs compete.

One job in four is other work, half of it with a reservation. The paper promises this (§4.3) and does not
measure it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings, in_parallel
from replication.intervals import estimate, number, percent, sentences, shown, table
from replication.simulated import (
    EPOCH_SECONDS,
    UNITS,
    Arm,
    Load,
    beside_table,
    binned,
    loads,
    origin,
    summary,
    told,
)
from slaq.core.arrays import Floats
from slaq.core.job import JobSpec
from slaq.ports import History
from slaq.reports.style import few_ticks, pen
from slaq.simulation.workload import SimulatedJob, Workload

POLICIES = ("fair", "total-quality")
#: One job in so many is other work, and one in twice as many has a reservation.
EVERY = 4
RESERVED_UNITS = 24
#: What "a few percent" is.
NEAR = 0.03


def run(settings: Settings) -> Results:
    """Run both policies on every seed's mix."""
    cases = [(load, policy) for policy in POLICIES for load in loads(settings)]
    found = in_parallel(one, cases, settings)
    seen = {
        policy: found[k * len(settings.seeds) :][: len(settings.seeds)] for k, policy in enumerate(POLICIES)
    }
    kinds = ("fair share", "reservation")
    return {
        "curves": origin(settings),
        "jobs": cases[0][0].jobs,
        "policies": {
            policy: {
                **summary(runs, seen["fair"]),
                "held": {
                    kind: {
                        "mean": estimate(np.mean(each[kind]) for each in runs if each[kind]),
                        "worst": estimate(np.abs(each[kind]).max() for each in runs if each[kind]),
                        "near": estimate(np.mean(np.abs(each[kind]) <= NEAR) for each in runs if each[kind]),
                    }
                    for kind in kinds
                },
                "over_time": {what: runs[0][what] for what in ("units_held", "units_due")},
            }
            for policy, runs in seen.items()
        },
    }


def one(case: tuple[Load, str]) -> dict[str, Any]:
    """Return how far what each other job held, over its whole run, was from what it was due."""
    load, policy = case
    workload = mixed(load.workload())
    run = Arm(policy=policy).run(workload, load.seed)
    seen = tally(workload, run.history)
    deviation = {job_id: seen.held[job_id] / seen.due[job_id] - 1.0 for job_id in seen.held}
    reserved = {job.spec.id for job in workload if job.spec.reserved is not None}
    return {
        **told(run.outcome),
        "fair share": [value for job_id, value in deviation.items() if job_id not in reserved],
        "reservation": [value for job_id, value in deviation.items() if job_id in reserved],
        "units_held": binned(np.array(seen.times), np.array(seen.units_held)),
        "units_due": binned(np.array(seen.times), np.array(seen.units_due)),
    }


def mixed(workload: Workload) -> Workload:
    """Return the workload with every so many-th job replaced by other work of the same cost."""
    jobs = []
    for number_, job in enumerate(workload):
        if number_ % EVERY:
            jobs.append(job)
            continue
        spec = JobSpec(
            id=f"other-{number_}",
            arrival=job.spec.arrival,
            trains=False,
            demand=job.spec.demand,
            reserved=None if number_ % (2 * EVERY) else float(RESERVED_UNITS),
        )
        jobs.append(SimulatedJob(spec=spec, cpu_seconds=job.total_cpu_seconds))
    return Workload(tuple(jobs))


@dataclass(slots=True)
class Tally:
    """What other work held and was due: unit-epochs by job where that can be judged, and units by epoch."""

    held: dict[str, float] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    units_held: list[float] = field(default_factory=list)
    units_due: list[float] = field(default_factory=list)


def tally(workload: Workload, history: History) -> Tally:
    """Return what other work held under the decisions, and what it was due: its reservation or fair share."""
    specs = {job.spec.id: job.spec for job in workload}
    result = Tally()
    for decision in history.decisions():
        here = [specs[job_id] for job_id in decision.ids]
        shares = _fair(here, decision.capacity)
        if not _contended(here, shares, decision.capacity):
            continue
        other = [k for k, spec in enumerate(here) if not spec.trains]
        for k in other:
            job_id = here[k].id
            result.held[job_id] = result.held.get(job_id, 0.0) + float(decision.cores[k])
            result.due[job_id] = result.due.get(job_id, 0.0) + float(shares[k])
        result.times.append(decision.time)
        result.units_held.append(float(decision.cores[other].sum()))
        result.units_due.append(float(shares[other].sum()))
    return result


def _contended(specs: list[JobSpec], shares: Floats, capacity: float) -> bool:
    """Return whether ML jobs can use all that other work leaves: else that takes more than it is due."""
    usable = sum(
        share if not spec.trains else min(spec.demand.most or capacity, capacity)
        for spec, share in zip(specs, shares.tolist(), strict=True)
    )
    return usable >= capacity


def _fair(specs: list[JobSpec], capacity: float) -> Floats:
    """Return the max-min fair shares of all jobs, where a reservation counts as what its job is due."""
    limit = np.array(
        [spec.demand.most or capacity if spec.reserved is None else spec.reserved for spec in specs]
    )
    least = np.array([spec.reserved or 0.0 for spec in specs])
    # One level for all, between each job's least and limit; halved until the shares fill the capacity.
    low, high = 0.0, float(capacity)
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if np.clip(level, least, limit).sum() < capacity else (low, level)
    shares: Floats = np.clip(high, least, limit).astype(np.float64)
    return shares


def sections(results: Results) -> list[Section]:
    """Return the section."""
    policies = results["policies"]
    rows = [
        [
            policy,
            kind,
            percent(held["mean"], 1),
            percent(held["worst"], 1),
            percent(held["near"]),
        ]
        for policy, seen in policies.items()
        for kind, held in seen["held"].items()
    ]
    ours = policies["total-quality"]
    far = [kind for kind, held in ours["held"].items() if (held["near"]["mean"] or 0.0) < 0.95]
    return [
        Section(
            heading="A mix with other work",
            title="What jobs without a loss held, against what they were due",
            ours=f"ML jobs' time to 90% changes by {percent(ours['change']['time_to_90'])} against fair sharing, "
            f"from {shown(policies['fair']['time_to_90'], 0, ' s')}, while other work holds what it is due:\n\n"
            + table(
                ("policy", "due", "mean off by", "worst job off by", f"jobs within {number(100 * NEAR)}%"),
                rows,
            )
            + f"\n\nLoss seconds of the ML jobs; completion and makespan of all jobs:\n\n{beside_table(policies)}",
            made=f"Simulated: {results['jobs']} jobs on {UNITS} units, epochs of {EPOCH_SECONDS:g} s, on "
            f"{results['curves']}; one job in {EVERY} is other work, half of it with {RESERVED_UNITS} units "
            "reserved. Due is the max-min fair share among all active jobs, computed anew for every epoch, or the "
            "reservation; a job's deviation is over its whole run, without the epochs in which the ML jobs could "
            "not use all that it leaves; the picture shows one seed.",
            falls_short=sentences(
                f"Fewer than 95% of the jobs with a {' or a '.join(far)} are within {number(100 * NEAR)}%."
                if far
                else ""
            ),
            pictures=(
                Picture(
                    name="other-work",
                    alt="Units that other work held under total-quality, and those it was due, over time",
                    draw=lambda figure: _draw(figure, ours["over_time"]),
                ),
            ),
        )
    ]


def _draw(figure: Figure, series: dict[str, Any]) -> None:
    axes = figure.subplots()
    due, held = series["units_due"], series["units_held"]
    # What was due lies broad and pale below what was held, as the two hardly differ.
    wide: dict[str, Any] = {"color": pen("fair").color, "lw": 6.0, "alpha": 0.4}
    axes.plot(np.array(due["times"]) / 60, due["values"], label="due to other work", **wide)
    label = "held by other work under total-quality"
    axes.plot(
        np.array(held["times"]) / 60, held["values"], label=label, color=pen("total-quality").color, lw=1.2
    )
    axes.set(xlabel="time (minutes)", ylabel="units", ylim=(0, None))
    few_ticks(axes)
    figure.legend(loc="outside upper left", ncols=2)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return how far off the worst job is."""
    held = results["policies"]["total-quality"]["held"]
    return [KeyFigure(name=f"worst job off its {kind}", value=each["worst"]) for kind, each in held.items()]


EXPERIMENT = Experiment(
    name="other_work",
    headings=("A mix with other work",),
    run=run,
    sections=sections,
    key_figures=key_figures,
)
