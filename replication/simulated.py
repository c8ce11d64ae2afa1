"""The paper's cluster as the simulator has it: its load, its 640 units, and runs of it under several policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replication.experiment import Settings, in_parallel, recorded_curves
from replication.intervals import changes, estimate, listed, percent, shown, table
from slaq.bootstrap import Run, Simulation, make_forecaster
from slaq.core.arrays import Floats
from slaq.core.baselines import WeightedFit
from slaq.core.forecast import CurveForecaster
from slaq.core.forecaster import Forecaster
from slaq.core.outcome import Outcome
from slaq.core.policies import TotalQuality
from slaq.simulation.distortion import DistortedForecaster
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.recorded import sample
from slaq.simulation.workload import Workload

#: The paper's testbed: 20 machines of 32 cores (§6.1), and its scheduling epoch.
UNITS = 640
EPOCH_SECONDS = 3.0
#: The paper's workload (§6.2.1).
JOBS = 160
MEAN_ARRIVAL = 15.0
QUICK_JOBS = 30

#: What the paper judges a policy by, and what is told beside it: how jobs stood over their whole lives, and when
#: they ended.
MEASURES = ("mean_normalised_loss", "time_to_90", "time_to_95")
BESIDE = ("loss_seconds", "completion", "makespan")
TOLD = MEASURES + BESIDE
MEASURE_NAMES = {
    "mean_normalised_loss": "mean normalised loss",
    "time_to_90": "time to 90%",
    "time_to_95": "time to 95%",
    "loss_seconds": "loss seconds",
    "completion": "completion",
    "makespan": "makespan",
}
#: Policies that look at no forecast: they decide the same whoever makes it, and the cheapest saves time.
UNASKING = ("fair", "fifo", "least-attained", "clairvoyant")

#: Median CPU seconds of a job from start to end. The paper does not tell its jobs' costs; with these, jobs under
#: fair sharing take about as long to 90% of their reduction as it reports for its own (71 s).
MEDIAN_CPU_SECONDS = 8500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Jobs that arrive on the paper's cluster, drawn anew for every seed."""

    seed: int
    jobs: int = JOBS
    mean_arrival: float = MEAN_ARRIVAL
    median_cpu_seconds: float = MEDIAN_CPU_SECONDS
    #: Where recorded curves lie; generated ones where it holds none.
    curves: Path

    def workload(self) -> Workload:
        """Return the jobs: every algorithm equally often, Poisson arrivals, log-normal costs."""
        rng = np.random.default_rng(self.seed)
        demand = WorkloadShape(
            mean_arrival=self.mean_arrival, median_cpu_seconds=self.median_cpu_seconds, max_cores=UNITS
        )
        recorded = recorded_curves(self.curves)
        if recorded:
            return sample(recorded, self.jobs, rng, demand)
        return generate(self.jobs, rng, demand)


def loads(settings: Settings) -> list[Load]:
    """Return the paper's load for every seed; a smaller one in a quick run."""
    jobs = QUICK_JOBS if settings.quick else JOBS
    return [Load(seed=seed, jobs=jobs, curves=settings.curves) for seed in settings.seeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to schedule the same jobs; the defaults are what slaq does."""

    policy: str = "total-quality"
    epoch_seconds: float = EPOCH_SECONDS
    forecaster: str = "slaq"
    #: The only families of curves the forecaster may use; empty for all.
    families: tuple[str, ...] = ()
    #: Sigma of the factor by which each job's forecast falls are wrong.
    forecast_error: float = 0.0
    optimism: float | None = None
    floor: float | None = None
    by_largest_fall: bool = False
    #: Sigma of the log-normal cost of each iteration around its job's mean.
    cost_noise: float = 0.0
    #: Standard deviation of the noise on each reported loss, in ranges of the job's curve.
    loss_noise: float = 0.0

    def run(self, workload: Workload, seed: int) -> Run:
        """Simulate the jobs on the paper's cluster; the seed decides what noise there is."""
        rng = np.random.default_rng([seed, 1])
        if self.loss_noise:
            workload = _noisy(workload, self.loss_noise, rng)
        return Simulation(
            workload=workload,
            policy=self.policy if self.floor is None else TotalQuality(floor=self.floor),
            capacity=UNITS,
            epoch_seconds=self.epoch_seconds,
            forecaster=self._forecaster(rng),
            optimism=self.optimism,
            by_largest_fall=self.by_largest_fall,
            cost_noise=self.cost_noise,
            rng=rng,
        ).run()

    def _forecaster(self, rng: np.random.Generator) -> Forecaster:
        forecaster = make_forecaster(forecaster_for(self.policy, self.forecaster))
        if self.families:
            kinds: dict[str, type[CurveForecaster] | type[WeightedFit]]
            kinds = {"slaq": CurveForecaster, "weighted-fit": WeightedFit}
            forecaster = kinds[self.forecaster](0, self.families)
        if self.forecast_error:
            forecaster = DistortedForecaster(forecaster, self.forecast_error, rng)
        return forecaster


def forecaster_for(policy: str, wanted: str = "slaq") -> str:
    """Return the forecaster that is wanted, or the cheapest one where the policy does not ask it."""
    return "last" if policy in UNASKING else wanted


def _noisy(workload: Workload, sigma: float, rng: np.random.Generator) -> Workload:
    """Return the jobs with noise on every loss but the first, as of mini-batches."""
    return Workload(
        tuple(
            replace(
                job,
                losses=job.losses
                + np.append(0.0, rng.normal(0.0, sigma * np.ptp(job.losses), len(job.losses) - 1)),
            )
            for job in workload
        )
    )


def measured(case: tuple[Load, Arm]) -> dict[str, float]:
    """Return what one arm achieves for one seed's jobs."""
    load, arm = case
    return told(arm.run(load.workload(), load.seed).outcome)


def told(outcome: Outcome) -> dict[str, float]:
    """Return the measures of a run, and how many jobs were active."""
    return {measure: float(getattr(outcome, measure)) for measure in (*TOLD, "mean_active")}


def run_all(
    cases: Sequence[tuple[Load, Arm]], settings: Settings
) -> dict[tuple[Load, Arm], dict[str, float]]:
    """Return what each arm achieves for each load, on all cores; cases that are alike are run once."""
    unique = list(dict.fromkeys(cases))
    return dict(zip(unique, in_parallel(measured, unique, settings), strict=True))


def compare(
    arms: Mapping[str, Arm],
    loads: Sequence[Load],
    settings: Settings,
    baselines: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run every arm on all loads; return its estimates, and its change against its baseline, "fair" by default."""
    found = run_all([(load, arm) for arm in arms.values() for load in loads], settings)
    seen = {name: [found[load, arm] for load in loads] for name, arm in arms.items()}
    against = baselines or {}
    return {name: summary(each, seen[against.get(name, "fair")]) for name, each in seen.items()}


def summary(seen: Sequence[Mapping[str, float]], fair: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the estimates of what was seen over the seeds, and of its change against the baseline."""
    return {
        **{measure: estimate(each[measure] for each in seen) for measure in (*TOLD, "mean_active")},
        "change": {m: changes([a[m] for a in seen], [b[m] for b in fair]) for m in TOLD},
    }


def changes_row(name: str, seen: Mapping[str, Any]) -> list[str]:
    """Return the row of a table of changes: a name, and the change of each measure."""
    return [name, *(percent(seen["change"][m]) for m in TOLD)]


def changes_table(rows: Sequence[Sequence[str]], first: str = "") -> str:
    """Return the table of such rows."""
    return table((first, *(MEASURE_NAMES[m] for m in TOLD)), rows)


def beside_table(policies: Mapping[str, Mapping[str, Any]], baseline: str = "fair") -> str:
    """Return loss seconds, completion and makespan of each policy, with changes against the baseline."""
    rows = [
        [
            MEASURE_NAMES[m],
            *(
                shown(seen[m], 1 if m == "loss_seconds" else 0, " s")
                + ("" if policy == baseline else f"; {percent(seen['change'][m])}")
                for policy, seen in policies.items()
            ),
        ]
        for m in BESIDE
    ]
    return table(("", *policies), rows)


def longer(seen: Mapping[str, Any]) -> str:
    """Return the sentence on which of these grow under a policy; "" where none does."""
    grown = [
        f"{MEASURE_NAMES[m]} {percent(seen['change'][m])}" for m in BESIDE if seen["change"][m]["mean"] > 0
    ]
    return f"More than under fair sharing: {listed(grown)}." if grown else ""


def origin(settings: Settings) -> str:
    """Return where the curves come from, in words."""
    recorded = recorded_curves(settings.curves)
    if not recorded:
        return "curves generated in the shapes of the nine algorithms"
    labels = len({curve.label for curve in recorded})
    return (
        f"{len(recorded)} loss curves recorded from real runs of {labels} algorithms (`replication/curves`)"
    )


def binned(times: Floats, values: Floats, points: int = 120) -> dict[str, list[float]]:
    """Return the means of `values` over equal spans of time: a series small enough to keep and to draw."""
    if not times.size:
        return {"times": [], "values": []}
    edges = np.linspace(times[0], times[-1] + 1e-9, points + 1)
    place = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, points - 1)
    known = np.isfinite(values)
    count = np.bincount(place[known], minlength=points)
    total = np.bincount(place[known], weights=values[known], minlength=points)
    filled = count > 0
    middle = (edges[:-1] + edges[1:]) / 2
    return {"times": middle[filled].tolist(), "values": (total[filled] / count[filled]).tolist()}
