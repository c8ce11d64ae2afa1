"""Elastic jobs on 64 simulated cores: jobs of a fixed number of workers against jobs that take any."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from replication.experiment import (
    Comparison,
    Experiment,
    KeyFigure,
    Picture,
    Results,
    Section,
    Settings,
    in_parallel,
)
from replication.intervals import Estimate, number, percent, sentences, shown, table
from replication.simulated import EPOCH_SECONDS, MEASURE_NAMES, Load, summary, told
from slaq.bootstrap import Simulation
from slaq.core.demand import Demand
from slaq.reports.style import BLUE, MUTED
from slaq.simulation.workload import Workload

HEADING = "Elastic jobs"
CORES, JOBS, QUICK_JOBS = 64, 40, 6
#: The seeds of a full run: fewer than elsewhere, because jobs of one worker take long.
SEEDS = 3
MEDIAN_CPU_SECONDS = 600.0
#: Mean seconds between two arrivals: about half as much work as there are cores, and nearly as much.
ARRIVALS, QUICK_ARRIVALS = (20.0, 10.0), (10.0,)
FIXED = (1, 2, 4, 8, 16)
#: The most that the workers of a job are worth, by job, evenly in the logarithm.
WORTH = (4.0, 32.0)
OWNERS, ELASTIC = "fixed, chosen by each owner", "elastic"
ARMS = (*(f"fixed, {workers} each" for workers in FIXED), OWNERS, ELASTIC)
TOLD = ("time_to_90", "time_to_95", "completion", "makespan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One seed's jobs under one arm."""

    load: Load
    arm: str

    def workload(self) -> Workload:
        """Return the jobs, which are the same in all arms but for what they can hold."""
        rng = np.random.default_rng([self.load.seed, 3])
        jobs = []
        for job in self.load.workload():
            chosen, worth = int(rng.choice(FIXED)), float(np.exp(rng.uniform(*np.log(WORTH))))
            demand = demand_of(self.arm, chosen, worth)
            jobs.append(replace(job, spec=replace(job.spec, demand=demand)))
        return Workload(tuple(jobs))


def demand_of(arm: str, chosen: int, worth: float) -> Demand:
    """Return what a job can hold under an arm; `chosen` is what its owner would fix."""
    if arm == ELASTIC:
        return Demand(most=float(FIXED[-1]), sizes="whole", worth=worth)
    workers = float(chosen if arm == OWNERS else FIXED[ARMS.index(arm)])
    return Demand(most=workers, sizes=(workers,), worth=worth)


def simulated(case: Case) -> dict[str, float]:
    """Return what an arm achieves for one seed's jobs, under total quality."""
    run = Simulation(
        workload=case.workload(), policy="total-quality", capacity=CORES, epoch_seconds=EPOCH_SECONDS
    ).run()
    return told(run.outcome)


def run(settings: Settings) -> Results:
    """Simulate all arms at all loads."""
    arrivals, jobs = (QUICK_ARRIVALS, QUICK_JOBS) if settings.quick else (ARRIVALS, JOBS)
    seeds = settings.seeds[: 1 if settings.quick else SEEDS]
    cases = [
        Case(load=_load(seed, arrival, jobs, settings.curves), arm=arm)
        for arrival in arrivals
        for arm in ARMS
        for seed in seeds
    ]
    found = dict(zip(cases, in_parallel(simulated, cases, settings), strict=True))
    points = []
    for arrival in arrivals:
        seen = {
            arm: [found[one] for one in cases if one.arm == arm and one.load.mean_arrival == arrival]
            for arm in ARMS
        }
        best = min(ARMS[: len(FIXED)], key=lambda arm, seen=seen: _mean_time(seen[arm]))  # type: ignore[misc]
        points.append(
            {
                "mean_arrival": arrival,
                "best_fixed": best,
                "arms": {arm: summary(runs, seen[best]) for arm, runs in seen.items()},
                "against_owners": summary(seen[ELASTIC], seen[OWNERS])["change"],
            }
        )
    return {"jobs": jobs, "seeds": len(seeds), "median_cpu_seconds": MEDIAN_CPU_SECONDS, "points": points}


def _load(seed: int, arrival: float, jobs: int, curves: Path) -> Load:
    return Load(
        seed=seed, jobs=jobs, mean_arrival=arrival, median_cpu_seconds=MEDIAN_CPU_SECONDS, curves=curves
    )


def _mean_time(runs: list[dict[str, float]]) -> float:
    return float(np.mean([one["time_to_90"] for one in runs]))


def sections(results: Results) -> list[Section]:
    """Say what elastic jobs gain against every number of workers to fix."""
    points = results["points"]
    owners = "; ".join(
        f"a job every {point['mean_arrival']:g} s {percent(point['against_owners']['time_to_90'])}, "
        f"completion {percent(point['against_owners']['completion'])}"
        for point in points
    )
    return [
        Section(
            heading=HEADING,
            title=f"jobs of whole workers on {CORES} simulated cores",
            ours=f"{_tables(points)}\n\nTime to 90% of elastic jobs against those whose owners each chose a number "
            f"of workers: {owners}.",
            made=f"Simulated: {results['jobs']} jobs on recorded curves with a median of "
            f"{number(results['median_cpu_seconds'])} CPU seconds, all under total quality; mean of "
            f"{results['seeds']} seeds. The batch grows with the workers: n of them advance a job like "
            "w n / (w − 1 + n) single ones, "
            f"with w from {WORTH[0]:g} to {WORTH[1]:g} by job. A fixed job holds its number of workers or none; an "
            "owner who chooses takes 1, 2, 4, 8 or 16 by chance; an elastic job holds any whole number up to 16. "
            "Jobs take turns and change their size at no cost in all arms. Changes in the tables are against the "
            "best number to fix at that load, which nobody knows beforehand.",
            falls_short=sentences(
                *(
                    missed(
                        f"elastic jobs, one every {point['mean_arrival']:g} s, against {whom}",
                        change,
                        -0.30,
                        -0.15,
                    )
                    for point in points
                    for whom, change in (
                        ("the best fixed number", point["arms"][ELASTIC]["change"]["time_to_90"]),
                        ("owners' choices", point["against_owners"]["time_to_90"]),
                    )
                )
            ),
            pictures=(
                Picture(
                    name="elastic-simulated",
                    alt="Mean time to 90% by number of workers, fixed and elastic, at each load.",
                    draw=lambda figure: draw(figure, points),
                ),
            ),
            readme=tuple(
                Comparison(
                    what=f"time to 90% of elastic jobs on {CORES} cores (simulated, a job every "
                    f"{point['mean_arrival']:g} s), against numbers of workers chosen by owners / the best for all",
                    paper="–",
                    ours=f"{percent(point['against_owners']['time_to_90'])} / "
                    f"{percent(point['arms'][ELASTIC]['change']['time_to_90'])}",
                )
                for point in points
            ),
        )
    ]


def missed(what: str, change: Estimate, aim: float, least: float) -> str:
    """Return the sentence to write where a change misses what was aimed at or wanted at least; else ""."""
    if not change["mean"] > aim:
        return ""
    least_wanted = f"{number(100 * least)}% was the least wanted" if least else "it was to grow in no case"
    wanted = least_wanted if change["mean"] > least else f"{number(100 * aim)}% was aimed at"
    return f"The time to 90% of {what} changes by {percent(change)}, where {wanted}."


def _tables(points: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for each load, with changes against the best number of workers to fix."""
    parts = []
    for point in points:
        rows = [
            (
                arm,
                *(shown(seen[name]) for name in TOLD),
                percent(seen["change"]["time_to_90"]) if arm != point["best_fixed"] else "–",
            )
            for arm, seen in point["arms"].items()
        ]
        header = ("", *(f"{MEASURE_NAMES[name]} [s]" for name in TOLD), "time to 90%, change")
        parts.append(f"A job every {point['mean_arrival']:g} s:\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def draw(figure: Figure, points: Sequence[Mapping[str, Any]]) -> None:
    """Draw the time to 90% of each arm, at each load."""
    for axes, point in zip(
        figure.subplots(1, len(points), sharey=True, squeeze=False)[0], points, strict=True
    ):
        place = np.arange(len(ARMS))[::-1]
        seen = [point["arms"][arm]["time_to_90"] for arm in ARMS]
        mean, low, high = (np.array([each[key] for each in seen]) for key in ("mean", "low", "high"))
        colors = [BLUE if arm == ELASTIC else MUTED for arm in ARMS]
        axes.barh(place, mean, 0.7, xerr=[mean - low.clip(min=0), high - mean], color=colors)
        axes.set_yticks(place, ARMS)
        axes.set(
            title=f"a job every {point['mean_arrival']:g} s", xlabel="mean time to 90% (s)", xlim=(0, None)
        )


def key_figures(results: Results) -> list[KeyFigure]:
    """Return the changes of elastic jobs against both ways to fix workers."""
    return [
        KeyFigure(name=f"time to 90%, elastic jobs against {whom}, a job every {arrival:g} s", value=change)
        for point in results["points"]
        for arrival in [point["mean_arrival"]]
        for whom, change in (
            ("the best fixed number", point["arms"][ELASTIC]["change"]["time_to_90"]),
            ("owners' choices", point["against_owners"]["time_to_90"]),
        )
    ]


EXPERIMENT = Experiment(
    name="elastic_simulation", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
