"""A search beside other jobs: how soon its best is found, and how the others fare, by who divides its cores."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from replication.configurations import CPU_SECONDS_PER_ITERATION, MAX_UNITS, generated
from replication.experiment import Results, Settings, in_parallel
from replication.intervals import estimate, shown, table
from replication.simulated import EPOCH_SECONDS, UNITS, Load
from slaq.bootstrap import Simulation
from slaq.core.demand import Demand
from slaq.core.events import LossObserved
from slaq.core.job import JobSpec
from slaq.core.quality import time_to
from slaq.ports import History
from slaq.simulation.workload import SimulatedJob, Workload

#: Jobs of the search, submitted at once, and other jobs, which arrive as in the paper but more often.
SEARCHING, OTHERS, MEAN_ARRIVAL = 40, 40, 6.0
QUICK = 10
BEGINS = 60.0
NEAR = 0.01
MADE = (
    f"Beside other jobs: {SEARCHING} generated configurations are submitted at once after {BEGINS:g} s, while "
    f"{OTHERS} jobs of the paper's load arrive every {MEAN_ARRIVAL:g} s; times count from submission."
)
#: Whether the jobs are a search, and the weight of its jobs.
ARMS: dict[str, tuple[bool, float]] = {
    "total-quality for all": (False, 1.0),
    "best-first for the search": (True, 1.0),
    "best-first, jobs of the search at weight 0.25": (True, 0.25),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One seed's jobs under one arm."""

    load: Load
    count: int
    arm: str

    def workload(self) -> Workload:
        """Return the jobs of the search and the others."""
        rng = np.random.default_rng([self.load.seed, 2])
        searching, weight = ARMS[self.arm]
        tried = []
        for k in range(self.count):
            losses = generated(rng)
            spec = JobSpec(
                id=f"configuration-{k}",
                arrival=BEGINS,
                weight=weight,
                demand=Demand(most=float(MAX_UNITS)),
                max_iterations=len(losses) - 1,
                group="search",
                best_first=searching,
            )
            tried.append(
                SimulatedJob(spec=spec, losses=losses, cpu_seconds_per_iteration=CPU_SECONDS_PER_ITERATION)
            )
        return Workload(tuple(sorted((*self.load.workload(), *tried), key=lambda job: job.spec.arrival)))


def run(settings: Settings) -> Results:
    """Run every arm on the same jobs."""
    count, others = (QUICK, QUICK) if settings.quick else (SEARCHING, OTHERS)
    cases = [
        Case(
            load=Load(seed=seed, jobs=others, mean_arrival=MEAN_ARRIVAL, curves=settings.curves),
            count=count,
            arm=arm,
        )
        for arm in ARMS
        for seed in settings.seeds
    ]
    found = in_parallel(one, cases, settings)
    results: Results = {}
    for arm in ARMS:
        seen = [each for case, each in zip(cases, found, strict=True) if case.arm == arm]
        results[arm] = {name: estimate(each[name] for each in seen) for name in seen[0]}
    return results


def one(case: Case) -> dict[str, float]:
    """Return how soon the best of the search was found, and how the other jobs fared."""
    workload = case.workload()
    history = (
        Simulation(workload=workload, policy="total-quality", capacity=UNITS, epoch_seconds=EPOCH_SECONDS)
        .run()
        .history
    )
    tried = [job for job in workload if job.spec.group]
    others = [job for job in workload if not job.spec.group]
    best = min(job.best_loss for job in tried)
    wanted = best + NEAR * (float(np.median([job.losses[0] for job in tried])) - best)
    found = min(at for job in tried for at, loss in _losses(history, job) if loss <= wanted)
    return {
        "found": found - BEGINS,
        "to_90": _mean(history, others, 0.9),
        "to_95": _mean(history, others, 0.95),
    }


def _losses(history: History, job: SimulatedJob) -> Iterable[tuple[float, float]]:
    events = history.events(job.spec.id)
    return [(event.at, event.observation.loss) for event in events if isinstance(event, LossObserved)]


def _mean(history: History, jobs: Iterable[SimulatedJob], share: float) -> float:
    """Return the mean seconds from arrival to a share of the reduction."""
    spent = []
    for job in jobs:
        times, losses = np.array(_losses(history, job)).T
        spent.append(time_to(times, losses, share, job.best_loss) - job.spec.arrival)
    return float(np.mean(spent))


def told(results: dict[str, Any]) -> str:
    """Return the table with a sentence."""
    rows = [
        [arm, *(shown(seen[name], 0, " s") for name in ("found", "to_90", "to_95"))]
        for arm, seen in results.items()
    ]
    header = ("", "search within 1%", "others, mean time to 90%", "to 95%")
    return f"A search beside other jobs, which total-quality divides:\n\n{table(header, rows)}"
