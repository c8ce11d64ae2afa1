"""The summary of a workload for `slaq workload inspect` and for reports."""

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

from slaq.simulation.workload import Workload

BLOCKS = "▁▂▃▄▅▆▇█"
BINS = 40

#: The most algorithms that are listed by name.
NAMED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The minimum, median and maximum of some numbers."""

    least: float
    median: float
    most: float

    def as_json(self) -> dict[str, float]:
        """Return the three numbers by name."""
        return {"min": self.least, "median": self.median, "max": self.most}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSummary:
    """The number of jobs, arrivals, iterations and CPU seconds of a workload."""

    jobs: int
    #: Jobs that report no loss.
    other: int
    #: Seconds of the first and of the last arrival.
    first_arrival: float
    last_arrival: float
    #: Jobs that arrive in each of `BINS` equal parts of that time.
    arrivals: tuple[int, ...]
    #: Over the jobs with losses; None if there are none.
    iterations: Spread | None
    cpu_seconds_per_iteration: Spread | None
    #: All jobs together, from start to end.
    cpu_seconds: float
    #: Jobs by algorithm, the most frequent first; jobs without an algorithm are left out.
    algorithms: dict[str, int]

    def load(self, capacity: int) -> float | None:
        """Return the CPU seconds that arrive per second and core; None if all jobs arrive at once."""
        span = self.last_arrival - self.first_arrival
        return self.cpu_seconds / (span * capacity) if span > 0.0 else None

    def as_json(self, capacity: int) -> dict[str, Any]:
        """Return the documented fields."""
        return {
            "jobs": self.jobs,
            "other": self.other,
            "first_arrival": self.first_arrival,
            "last_arrival": self.last_arrival,
            "arrivals": list(self.arrivals),
            "iterations": self.iterations and self.iterations.as_json(),
            "cpu_seconds_per_iteration": (
                self.cpu_seconds_per_iteration and self.cpu_seconds_per_iteration.as_json()
            ),
            "cpu_seconds": self.cpu_seconds,
            "capacity": capacity,
            "load": self.load(capacity),
            "algorithms": self.algorithms,
        }

    def facts(self, capacity: int) -> dict[str, str]:
        """Return the facts as texts by name."""
        facts = {
            "jobs": f"{self.jobs:,}" + (f", {self.other:,} of them without a loss" if self.other else "")
        }
        facts["arrivals"] = f"{self.first_arrival:,.0f} s to {self.last_arrival:,.0f} s"
        if self.iterations is not None:
            facts["iterations per job"] = _range(self.iterations, "")
        if self.cpu_seconds_per_iteration is not None:
            facts["CPU per iteration"] = _range(self.cpu_seconds_per_iteration, " s")
        facts["CPU in all"] = f"{self.cpu_seconds / 3600:,.1f} hours"
        load = self.load(capacity)
        if load is not None:
            facts["offered load"] = f"{100 * load:,.0f}% of {capacity:,} cores while jobs arrive"
        if self.algorithms:
            named = [f"{name} {count:,}" for name, count in self.algorithms.items()]
            more = [f"{len(named) - NAMED:,} more"] if len(named) > NAMED else []
            facts["algorithms"] = ", ".join(named[:NAMED] + more)
        return facts

    def sparkline(self) -> str:
        """Return the arrivals over time as a row of blocks."""
        top = max(self.arrivals)
        return "".join(" " if not n else BLOCKS[(n * (len(BLOCKS) - 1)) // top] for n in self.arrivals)


def describe(workload: Workload) -> WorkloadSummary:
    """Return the summary of a workload of at least one job."""
    arrivals = [job.spec.arrival for job in workload]
    first, last = min(arrivals), max(arrivals)
    bins = Counter(min(int(BINS * (t - first) / (last - first or 1.0)), BINS - 1) for t in arrivals)
    learning = [job for job in workload if job.spec.trains]
    return WorkloadSummary(
        jobs=len(workload),
        other=len(workload) - len(learning),
        first_arrival=first,
        last_arrival=last,
        arrivals=tuple(bins[place] for place in range(BINS)),
        iterations=_spread([job.iterations for job in learning]),
        cpu_seconds_per_iteration=_spread([job.cpu_seconds_per_iteration for job in learning]),
        cpu_seconds=sum(job.total_cpu_seconds for job in workload),
        algorithms=dict(Counter(job.algorithm for job in workload if job.algorithm).most_common()),
    )


def _spread(values: "list[int] | list[float]") -> Spread | None:
    if not values:
        return None
    return Spread(least=min(values), median=median(values), most=max(values))


def _range(spread: Spread, unit: str) -> str:
    return f"{spread.median:,.4g}{unit} at the median, {spread.least:,.4g} to {spread.most:,.4g}"
