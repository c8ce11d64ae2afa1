"""Rivals on an exploratory search: best model found by time t under best-first, ASHA, Optuna's pruners and others.

A hundred configurations of one model are trained for the same task, so that their losses can be compared. With
--data the losses are those of TaskSet's recurrent nets (Metz et al., 2020), one task per seed, configurations that
never improve included; without it they are generated. They arrive one after the other, or all at once as a grid
does. Who only wants the best of them may stop the others early, which is what successive halving and Optuna's
pruners do; best-first lets them wait, and stops those that have lost where that is asked. A second part puts a
search beside other jobs, which total-quality divides.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.recorded_curves import read_curves
from replication import search_beside as beside
from replication.configurations import CPU_SECONDS_PER_ITERATION, MAX_UNITS, generated
from replication.experiment import Experiment, KeyFigure, Picture, Results, Section, Settings, in_parallel
from replication.intervals import changes, estimate, listed, number, percent, sentences, shown, table
from replication.optuna_pruners import PRUNERS, OptunaPruner
from replication.simulated import EPOCH_SECONDS, UNITS
from replication.successive_halving import SuccessiveHalving
from slaq.bootstrap import Referee, Simulation
from slaq.core.arrays import Floats
from slaq.core.demand import Demand
from slaq.core.events import LossObserved
from slaq.core.job import JobSpec
from slaq.reports.style import Pen, pen
from slaq.simulation.workload import SimulatedJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to search."""

    policy: str = "fair"
    #: The first rung and eta of the successive halving that stops jobs.
    halving: tuple[int, int] | None = None
    #: The name of the pruner of Optuna that stops jobs.
    pruner: str | None = None
    stop_losers: bool = False

    def referee(self, search: "Search", iterations: int) -> Referee | None:
        """Return what stops jobs, if anything does."""
        if self.pruner is not None:
            return OptunaPruner.of(self.pruner, iterations, search.seed)
        if self.halving is None:
            return None
        return SuccessiveHalving(first_rung=self.halving[0], eta=self.halving[1])


#: Optuna runs as many trials at a time as fit, each to its end, in their order.
ARMS: dict[str, Arm] = {
    "best-first": Arm(policy="best-first"),
    "best-first, losers stopped": Arm(policy="best-first", stop_losers=True),
    "total-quality": Arm(policy="total-quality"),
    "fair": Arm(),
    "fifo": Arm(policy="fifo"),
    "shortest-first": Arm(policy="shortest-first"),
    "least-attained": Arm(policy="least-attained"),
    "ASHA": Arm(halving=(1, 3)),
    "gentle ASHA": Arm(halving=(6, 2)),
    **{f"Optuna {name}": Arm(policy="fifo", pruner=name) for name in PRUNERS},
}
#: The arms that are drawn.
DRAWN = ("best-first", "total-quality", "fair", "ASHA", "gentle ASHA", "Optuna HyperbandPruner")
PENS = {
    "best-first": Pen("#c1272d", "-"),
    "ASHA": Pen("#1c2126", "-"),
    "gentle ASHA": Pen("#1c2126", ":"),
    "Optuna HyperbandPruner": Pen("#6b7280", "--"),
}
OURS, RIVAL = "best-first", "gentle ASHA"
CONFIGURATIONS = 100
QUICK_CONFIGURATIONS = 30
MEAN_ARRIVAL = 3.0
#: A model counts as found when its loss is within this share of the whole range above the best there is.
NEAR = (0.05, 0.01)
POINTS = 120

MADE = (
    f"Simulated: configurations arrive every {MEAN_ARRIVAL:g} s, or all at once, on {UNITS} units, {MAX_UNITS} of "
    f"which one can use at most; each runs for 50 iterations of {CPU_SECONDS_PER_ITERATION:g} CPU seconds, as it "
    "tells. ASHA: rungs at 1, 3, 9 and 27 iterations, one in three goes on; gentle ASHA: at 6, 12, 24 and 48, "
    "one in two goes on; fair sharing among those left. Optuna's pruners as they come, "
    f"{UNITS // MAX_UNITS} trials at a time. The gap is from the best loss so far to the best of all curves, in "
    "parts of the range from the median first loss. Times are means over the seeds that got there. Recorded: one "
    "task of TaskSet per seed. The constants of best-first were chosen on other seeds. "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One seed's configurations."""

    seed: int
    count: int
    #: The folder of recorded curves; None to generate them.
    recorded: Path | None
    #: Whether all are submitted at once, as a grid is.
    at_once: bool = False

    def workload(self, *, best_first: bool = False, stop_losers: bool = False) -> Workload:
        """Return the configurations as jobs, in random order."""
        rng = np.random.default_rng(self.seed)
        losses = self._recorded(rng) if self.recorded else [generated(rng) for _ in range(self.count)]
        arrivals = np.cumsum(rng.exponential(MEAN_ARRIVAL, len(losses))) * (not self.at_once)
        return Workload(
            tuple(
                SimulatedJob(
                    spec=JobSpec(
                        id=f"configuration-{k}",
                        arrival=float(arrival),
                        demand=Demand(most=float(MAX_UNITS)),
                        # A training program tells its number of iterations.
                        max_iterations=len(curve) - 1,
                        group="search",
                        best_first=best_first,
                        stop_losers=stop_losers,
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


def run(settings: Settings) -> Results:
    """Run every arm on generated configurations, and on recorded ones where there is data."""
    sources: dict[str, Path | None] = {"generated": None}
    if settings.data is not None:
        sources["recorded"] = settings.outside("curves_public")
    count = QUICK_CONFIGURATIONS if settings.quick else CONFIGURATIONS
    results: Results = {"sources": {}}
    cases = list(product(sources.items(), (False, True)))
    for k, ((name, folder), at_once) in enumerate(cases):
        searches = [
            Search(seed=seed, count=count, recorded=folder, at_once=at_once) for seed in settings.seeds
        ]
        told = f"{name}, {'at once' if at_once else 'one after the other'}"
        results["sources"][told] = _run(searches, settings.part(k, len(cases) + 1))
    results["beside"] = beside.run(settings.part(len(cases), len(cases) + 1))
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
    return {
        "configurations": len(searches[0].workload()),
        "times": grid,
        "arms": arms,
        "soonest": estimate(soonest(search.workload()) for search in searches),
        "against_rival": changes(
            [found[search, OURS]["found"][NEAR[-1]] for search in searches],
            [found[search, RIVAL]["found"][NEAR[-1]] for search in searches],
        ),
    }


def soonest(workload: Workload) -> float:
    """Return when the first configuration near the best is there if each is trained alone from its arrival."""
    best, start = _range(workload)
    times = [
        job.spec.arrival + np.argmax(near) * CPU_SECONDS_PER_ITERATION / MAX_UNITS
        for job in workload
        if (near := (job.losses - best) / (start - best) <= NEAR[-1]).any()
    ]
    return float(min(times))


def _range(workload: Workload) -> tuple[float, float]:
    """Return the best loss of all curves, and the median of their first losses."""
    return min(job.best_loss for job in workload), float(np.median([job.losses[0] for job in workload]))


def one(case: tuple[Search, str]) -> dict[str, Any]:
    """Return the gap to the best model and the CPU spent, at every loss reported under one arm."""
    search, arm = case
    way = ARMS[arm]
    workload = search.workload(best_first=way.policy == OURS, stop_losers=way.stop_losers)
    iterations = max(len(job.losses) for job in workload) - 1
    history = (
        Simulation(
            workload=workload,
            policy=way.policy,
            capacity=UNITS,
            epoch_seconds=EPOCH_SECONDS,
            referee=way.referee(search, iterations),
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
    best, start = _range(workload)
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
        told = f"{seen['configurations']} configurations: {source}"
        bound = f"Nothing can be within 1% before {shown(seen['soonest'], 0, ' s')}."
        parts.append(f"{told}. {bound}\n\n{table(header, rows)}")
    return [
        Section(
            heading="Rivals on an exploratory search",
            title="Best model found by time t, and CPU spent",
            ours="\n\n".join((*parts, beside.told(results["beside"]))),
            made=MADE + beside.MADE,
            falls_short=sentences(
                *(_verdict(source, seen) for source, seen in results["sources"].items()),
                _cheaper(results["sources"]),
                "Gentle ASHA was added once the usual rungs had been seen to miss good recorded configurations.",
            ),
            pictures=tuple(
                Picture(
                    name=f"search-{_slug(source)}",
                    alt=f"Gap to the best model against time by policy: {source}",
                    draw=lambda figure, seen=seen: _draw(figure, seen),  # type: ignore[misc]
                )
                for source, seen in results["sources"].items()
            ),
        )
    ]


def _slug(source: str) -> str:
    return source.replace(",", "").replace(" ", "-")


def _found(seen: dict[str, Any], near: float) -> str:
    time, cpu = seen["found"][str(near)], seen["cpu_when_found"][str(near)]
    if not time["n"]:
        return "never"
    missed = "" if time["n"] >= seen["end"]["n"] else f", {time['n']} of {seen['end']['n']} seeds"
    return f"{shown(time, 0, ' s')} [{number(cpu['mean'] / 3600)}]{missed}"


def _verdict(source: str, seen: dict[str, Any]) -> str:
    """Return how much sooner best-first found a model within 1%, who was sooner still, and who did not find one."""
    near, arms = str(NEAR[-1]), seen["arms"]
    ours = arms[OURS]["found"][near]
    sooner = [
        arm
        for arm, each in arms.items()
        if arm != OURS
        and each["found"][near]["n"] == ours["n"]
        and each["found"][near]["mean"] < ours["mean"]
    ]
    missed = [arm for arm, each in arms.items() if each["found"][near]["n"] < each["end"]["n"]]
    return sentences(
        f"{source[0].upper()}{source[1:]}: against {RIVAL} the time of {OURS} to within 1% changes by "
        f"{percent(seen['against_rival'])}.",
        f"Sooner were {listed(sooner)}." if sooner else "",
        f"Not in every seed did {listed(missed)} find one." if missed else "",
    )


def _cheaper(sources: dict[str, Any]) -> str:
    """Return who spends less CPU than best-first on all configurations."""
    cheaper = [
        arm
        for arm in ARMS
        if all(s["arms"][arm]["cpu"]["mean"] < 0.9 * s["arms"][OURS]["cpu"]["mean"] for s in sources.values())
    ]
    if not cheaper:
        return ""
    return f"To the end {listed(cheaper)} spent less CPU: few configurations are trained to their end."


def _draw(figure: Figure, seen: dict[str, Any]) -> None:
    axes = figure.subplots()
    for arm in DRAWN:
        style = PENS.get(arm) or pen(arm)
        gap = 100 * np.array(seen["arms"][arm]["gap"])
        axes.plot(seen["times"], gap, label=arm, color=style.color, ls=style.dash)
    axes.set(xlabel="time (s)", ylabel="gap to the best model (%)", yscale="symlog", ylim=(0, 100))
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_yticks([0, 1, 3, 10, 30, 100], ["0", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    figure.legend(loc="outside upper left", ncols=4)


def key_figures(results: Results) -> list[KeyFigure]:
    """Return how soon best-first finds a model within 1% of the best."""
    return [
        KeyFigure(name=f"seconds to within 1%, {source}", value=seen["arms"][OURS]["found"][str(NEAR[-1])])
        for source, seen in results["sources"].items()
    ]


EXPERIMENT = Experiment(
    name="search",
    headings=("Rivals on an exploratory search",),
    run=run,
    sections=sections,
    key_figures=key_figures,
)
