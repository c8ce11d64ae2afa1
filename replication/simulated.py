"""The paper's cluster as the simulator has it: its load, its 640 units, and runs of it under several policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replication.experiment import Settings, in_parallel, recorded_curves
from replication.intervals import changes, estimate
from slaq.bootstrap import Run, Simulation, make_forecaster
from slaq.core.arrays import Floats
from slaq.core.baselines import WeightedFit
from slaq.core.forecast import CurveForecaster
from slaq.core.forecaster import Forecaster
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

#: What a policy is judged by, and what else is worth knowing of a run.
MEASURES = ("mean_normalised_loss", "time_to_90", "time_to_95")
CONTEXT = ("mean_active", "completion")
MEASURE_NAMES = {
    "mean_normalised_loss": "mean normalised loss",
    "time_to_90": "time to 90%",
    "time_to_95": "time to 95%",
}

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
        forecaster = make_forecaster(self.forecaster)
        if self.families:
            kinds: dict[str, type[CurveForecaster] | type[WeightedFit]]
            kinds = {"slaq": CurveForecaster, "weighted-fit": WeightedFit}
            forecaster = kinds[self.forecaster](0, self.families)
        if self.forecast_error:
            forecaster = DistortedForecaster(forecaster, self.forecast_error, rng)
        return forecaster


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
    outcome = arm.run(load.workload(), load.seed).outcome
    return {measure: float(getattr(outcome, measure)) for measure in (*MEASURES, *CONTEXT)}


def compare(
    arms: Mapping[str, Arm],
    loads: Sequence[Load],
    settings: Settings,
    baselines: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run every arm on all loads; return its estimates, and its change against its baseline, "fair" by default."""
    cases = [(name, each) for name in arms for each in loads]
    found = in_parallel(measured, [(each, arms[name]) for name, each in cases], settings)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for (name, _), one in zip(cases, found, strict=True):
        seen[name].append(one)
    against = baselines or {}
    return {name: summary(each, seen[against.get(name, "fair")]) for name, each in seen.items()}


def summary(seen: Sequence[Mapping[str, float]], fair: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the estimates of what was seen over the seeds, and of its change against the baseline."""
    return {
        **{measure: estimate(each[measure] for each in seen) for measure in (*MEASURES, *CONTEXT)},
        "change": {m: changes([a[m] for a in seen], [b[m] for b in fair]) for m in MEASURES},
    }


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
