"""The paper's cluster as the simulator has it: its load, its 640 units, and runs of it under several policies."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from replication.experiment import Settings, recorded_curves
from slaq.bootstrap import Simulation
from slaq.core.arrays import Floats
from slaq.core.outcome import Outcome
from slaq.simulation.generator import Demand, generate
from slaq.simulation.recorded import sample
from slaq.simulation.workload import Workload

#: The paper's testbed: 20 machines of 32 cores (§6.1), and its scheduling epoch.
UNITS = 640
EPOCH_SECONDS = 3.0
#: The paper's workload (§6.2.1).
JOBS = 160
MEAN_ARRIVAL = 15.0
QUICK_JOBS = 30

#: Median CPU seconds of a job from start to end. The paper does not tell its jobs' costs; with these, jobs under
#: fair sharing take about as long to 90% of their reduction as it reports for its own (71 s).
MEDIAN_CPU_SECONDS = 8500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Jobs that arrive on the paper's cluster, drawn anew for every seed."""

    seed: int
    jobs: int = JOBS
    mean_arrival: float = MEAN_ARRIVAL
    #: Where recorded curves lie; generated ones where it holds none.
    curves: Path

    def workload(self) -> Workload:
        """Return the jobs: every algorithm equally often, Poisson arrivals, log-normal costs."""
        rng = np.random.default_rng(self.seed)
        demand = Demand(
            mean_arrival=self.mean_arrival, median_cpu_seconds=MEDIAN_CPU_SECONDS, max_units=UNITS
        )
        recorded = recorded_curves(self.curves)
        if recorded:
            return sample(recorded, self.jobs, rng, demand)
        return generate(self.jobs, rng, demand)


def load(settings: Settings, seed: int, mean_arrival: float = MEAN_ARRIVAL) -> Load:
    """Return the paper's load for one seed; a smaller one in a quick run."""
    jobs = QUICK_JOBS if settings.quick else JOBS
    return Load(seed=seed, jobs=jobs, mean_arrival=mean_arrival, curves=settings.curves)


def under(policy: str, workload: Workload) -> Outcome:
    """Return what a policy achieves for the jobs on the paper's cluster."""
    run = Simulation(workload=workload, policy=policy, capacity=UNITS, epoch_seconds=EPOCH_SECONDS).run()
    return run.outcome


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
