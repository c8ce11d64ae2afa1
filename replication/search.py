"""Rivals on an exploratory search: best model found by time t, and CPU spent, under slaq, ASHA and four others.

A hundred configurations of one model are trained for the same task, so that their losses can be compared. With
--data the losses are those of TaskSet's recurrent nets (Metz et al., 2020), one task per seed, configurations that
never improve included; without it they are generated. Who only wants the best of them may stop the others early,
which is what successive halving does; slaq stops nobody and improves them all.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.recorded_curves import read_curves
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings, in_parallel
from replication.intervals import estimate, number, percent, sentences, shown, table
from replication.simulated import EPOCH_SECONDS, UNITS
from replication.successive_halving import SuccessiveHalving
from slaq.bootstrap import Simulation
from slaq.core.arrays import Floats
from slaq.core.demand import Demand
from slaq.core.events import LossObserved
from slaq.core.job import JobSpec
from slaq.reports.style import Pen, pen
from slaq.simulation.workload import SimulatedJob, Workload

#: The policy that divides the units, and the first rung and eta of the successive halving that stops jobs, if any.
ARMS: dict[str, tuple[str, tuple[int, int] | None]] = {
    "fair": ("fair", None),
    "total-quality": ("total-quality", None),
    "fifo": ("fifo", None),
    "shortest-first": ("shortest-first", None),
    "least-attained": ("least-attained", None),
    "ASHA": ("fair", (1, 3)),
    "gentle ASHA": ("fair", (6, 2)),
}
PENS = {"ASHA": Pen("#1c2126", "-"), "gentle ASHA": Pen("#1c2126", ":")}
CONFIGURATIONS = 100
QUICK_CONFIGURATIONS = 30
MEAN_ARRIVAL = 3.0
#: Of every configuration alike: they are one model on one data set.
CPU_SECONDS_PER_ITERATION = 80.0
MAX_UNITS = 64
#: A model counts as found when its loss is within this share of the whole range above the best there is.
NEAR = (0.05, 0.01)
POINTS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One seed's configurations."""

    seed: int
    count: int
    #: The folder of recorded curves; None to generate them.
    recorded: Path | None

    def workload(self) -> Workload:
        """Return the configurations as jobs, in random order."""
        rng = np.random.default_rng(self.seed)
        losses = self._recorded(rng) if self.recorded else [generated(rng) for _ in range(self.count)]
        arrivals = np.cumsum(rng.exponential(MEAN_ARRIVAL, len(losses)))
        return Workload(
            tuple(
                SimulatedJob(
                    spec=JobSpec(
                        id=f"configuration-{k}", arrival=float(arrival), demand=Demand(most=float(MAX_UNITS))
                    ),
                    losses=curve,
                    cpu_seconds_per_iteration=CPU_SECONDS_PER_ITERATION,
                )
                for k, (curve, arrival) in enumerate(zip(losses, arrivals, strict=True))
            )
        )

    def _recorded(self, rng: np.random.Generator) -> list[Floats]:
        assert self.recorded is not None
        curves = [each for each in read_curves(self.recorded, improving=False) if each.source == "taskset"]
        tasks = sorted({each.task for each in curves})
        task = tasks[self.seed % len(tasks)]
        chosen = [each.losses for each in curves if each.task == task]
        return [chosen[k] for k in rng.permutation(len(chosen))[: self.count]]


def generated(rng: np.random.Generator, iterations: int = 50) -> Floats:
    """Return the losses of one made-up configuration: how low it gets and how fast are drawn apart."""
    asymptote = 0.1 + 0.8 * rng.beta(2.0, 3.0)
    rate, power = np.exp(rng.normal(-0.7, 1.0)), rng.uniform(0.4, 1.6)
    k = np.arange(iterations + 1.0)
    curve = asymptote + (1.0 - asymptote) * (1.0 + rate * k) ** -power
    noise = rng.normal(0.0, 0.005, iterations + 1)
    noise[0] = 0.0
    losses: Floats = curve + noise
    return losses


def run(settings: Settings) -> Results:
    """Run every arm on generated configurations, and on recorded ones where there is data."""
    sources: dict[str, Path | None] = {"generated": None}
    if settings.data is not None:
        sources["recorded"] = settings.outside("curves_public")
    count = QUICK_CONFIGURATIONS if settings.quick else CONFIGURATIONS
    results: Results = {"sources": {}}
    for k, (name, folder) in enumerate(sources.items()):
        searches = [Search(seed=seed, count=count, recorded=folder) for seed in settings.seeds]
        results["sources"][name] = _run(searches, settings.part(k, len(sources)))
    return results


def _run(searches: list[Search], settings: Settings) -> dict[str, Any]:
    cases = [(search, arm) for arm in ARMS for search in searches]
    found = dict(zip(cases, in_parallel(one, cases, settings), strict=True))
    end = max(each["times"][-1] for each in found.values())
    grid = np.linspace(0.0, end, POINTS)
    arms = {}
    for arm in ARMS:
        seen = [found[search, arm] for search in searches]
        gaps = np.array([_at(grid, each["times"], each["gap"], 1.0) for each in seen])
        arms[arm] = {
            "found": {str(near): estimate(each["found"][near] for each in seen) for near in NEAR},
            "cpu_when_found": {
                str(near): estimate(each["cpu_when_found"][near] for each in seen) for near in NEAR
            },
            "cpu": estimate(each["cpu"][-1] for each in seen),
            "end": estimate(each["times"][-1] for each in seen),
            "final_gap": estimate(each["gap"][-1] for each in seen),
            "gap": gaps.mean(axis=0),
        }
    return {"configurations": len(searches[0].workload()), "times": grid, "arms": arms}


def one(case: tuple[Search, str]) -> dict[str, Any]:
    """Return the gap to the best model and the CPU spent, at every loss reported under one arm."""
    search, arm = case
    policy, halving = ARMS[arm]
    workload = search.workload()
    history = (
        Simulation(
            workload=workload,
            policy=policy,
            capacity=UNITS,
            epoch_seconds=EPOCH_SECONDS,
            referee=SuccessiveHalving(first_rung=halving[0], eta=halving[1]) if halving else None,
        )
        .run()
        .history
    )
    reported = sorted(
        (event.at, event.observation.loss, event.observation.cpu_seconds)
        for job in workload
        for event in history.events(job.spec.id)
        if isinstance(event, LossObserved)
    )
    times, losses, cpu = (np.array(column) for column in zip(*reported, strict=True))
    best = min(job.best_loss for job in workload)
    start = float(np.median([job.losses[0] for job in workload]))
    gap = (np.minimum.accumulate(losses) - best) / (start - best)
    spent = np.cumsum(cpu)
    reached = {near: int(np.argmax(gap <= near)) if gap[-1] <= near else None for near in NEAR}
    return {
        "times": times,
        "gap": gap,
        "cpu": spent,
        "found": {near: np.nan if k is None else times[k] for near, k in reached.items()},
        "cpu_when_found": {near: np.nan if k is None else spent[k] for near, k in reached.items()},
    }


def _at(grid: Floats, times: Floats, values: Floats, before: float) -> Floats:
    """Return a step function at the points of a grid."""
    return np.append(before, values)[np.searchsorted(times, grid, side="right")]


def sections(results: Results) -> list[Section]:
    """Return the section."""
    parts = []
    for source, seen in results["sources"].items():
        rows = [
            [
                arm,
                *(_found(each, near) for near in NEAR),
                shown(each["end"], 0, " s"),
                number(each["cpu"]["mean"] / 3600),
                percent(each["final_gap"], 1),
            ]
            for arm, each in seen["arms"].items()
        ]
        header = (
            *("", "within 5% of the best (CPU h)", "within 1% (CPU h)"),
            *("all ended or stopped", "CPU h in all", "gap at the end"),
        )
        parts.append(f"{seen['configurations']} {source} configurations:\n\n{table(header, rows)}")
    return [
        Section(
            heading="Rivals on an exploratory search",
            title="Best model found by time t, and CPU spent",
            ours="\n\n".join(parts),
            made=f"Simulated: configurations arrive every {MEAN_ARRIVAL:g} s on {UNITS} units, {MAX_UNITS} of "
            f"which one can use at most; each runs for 50 iterations of {CPU_SECONDS_PER_ITERATION:g} CPU seconds. "
            "ASHA: rungs at 1, 3, 9 and 27 iterations, one in three goes on; gentle ASHA: rungs at 6, 12, 24 and "
            "48, one in two goes on; fair sharing among those left. The gap is from the best loss so far to the "
            "best of all curves, in parts of the range from the median first loss. Times are means over the seeds "
            "that got there. Recorded: one task of TaskSet per seed.",
            falls_short=sentences(
                *(_verdict(source, seen["arms"]) for source, seen in results["sources"].items()),
                _cheaper(results["sources"]),
                "Gentle ASHA was added once the usual rungs had been seen to miss good recorded configurations.",
            ),
            pictures=tuple(
                Picture(
                    name=f"search-{source}",
                    alt=f"Gap to the best model against time by policy, {source} configurations",
                    draw=lambda figure, seen=seen: _draw(figure, seen),  # type: ignore[misc]
                )
                for source, seen in results["sources"].items()
            ),
        )
    ]


def _found(seen: dict[str, Any], near: float) -> str:
    time, cpu = seen["found"][str(near)], seen["cpu_when_found"][str(near)]
    if not time["n"]:
        return "never"
    missed = "" if time["n"] >= seen["end"]["n"] else f", {time['n']} of {seen['end']['n']} seeds"
    return f"{shown(time, 0, ' s')} [{number(cpu['mean'] / 3600)}]{missed}"


def _verdict(source: str, arms: dict[str, Any]) -> str:
    """Return who found a model within 1% sooner than total-quality did, and who did not always find one."""
    near = str(NEAR[-1])
    ours = arms["total-quality"]["found"][near]
    sooner = [
        arm
        for arm, seen in arms.items()
        if seen["found"][near]["n"] == ours["n"] and seen["found"][near]["mean"] < ours["mean"]
    ]
    missed = [arm for arm, seen in arms.items() if seen["found"][near]["n"] < ours["n"]]
    return sentences(
        f"On {source} configurations these found a model within 1% sooner than total-quality: {', '.join(sooner)}."
        if sooner
        else f"On {source} configurations nobody found a model within 1% sooner than total-quality in every seed.",
        f"Not in every seed did {' and '.join(missed)} find one." if missed else "",
    )


def _cheaper(sources: dict[str, Any]) -> str:
    """Return who spends less CPU than total-quality on all configurations."""
    cheaper = [
        arm
        for arm in ARMS
        if all(
            s["arms"][arm]["cpu"]["mean"] < 0.9 * s["arms"]["total-quality"]["cpu"]["mean"]
            for s in sources.values()
        )
    ]
    if not cheaper:
        return ""
    return (
        f"To the end of the search {' and '.join(cheaper)} spent less CPU: few configurations are trained to their "
        "end. Who wants one model, not all of them, should stop the others, under slaq too."
    )


def _draw(figure: Figure, seen: dict[str, Any]) -> None:
    axes = figure.subplots()
    for arm, each in seen["arms"].items():
        style = PENS.get(arm) or pen(arm)
        axes.plot(seen["times"], 100 * np.array(each["gap"]), label=arm, color=style.color, ls=style.dash)
    axes.set(xlabel="time (s)", ylabel="gap to the best model (%)", yscale="symlog", ylim=(0, 100))
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    figure.legend(loc="outside upper left", ncols=4)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return how soon total-quality finds a model within 5% of the best."""
    return [
        KeyFigure(
            name=f"seconds to within 5%, {source}", value=seen["arms"]["total-quality"]["found"][str(NEAR[0])]
        )
        for source, seen in results["sources"].items()
    ]


EXPERIMENT = Experiment(
    name="search",
    headings=("Rivals on an exploratory search",),
    run=run,
    sections=sections,
    key_figures=key_figures,
)
