"""The paper's main experiment on Spark: MLlib jobs with Poisson arrivals, fair sharing against total quality.

The paper (§6.2) runs 160 MLlib jobs that arrive 15 s apart on average on 640 cores, and finds, against fair
sharing, mean normalised loss 73% lower, and 45% and 30% less time to 90% and 95% of a job's loss reduction.
Here the same kinds of estimators train for real in one Spark application with four slots to a core: jobs,
arrivals, hyperparameters and data are the same under both policies of a seed. Fair sharing is Spark's own FAIR
pools, all of one share.

    python -m replication.spark_contention [--quick] [--json]
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import stats

from slaq.cli.spark_jobs import ROWS, SLOTS_PER_CORE, PlannedFit, made_up, plan, train
from slaq.core.outcome import JobCurve, Outcome, measure
from slaq.engines.local.engine import cores_here
from slaq.spark import SparkCluster, session

POLICIES = ("fair", "total-quality")
MEASURES = ("mean_normalised_loss", "time_to_90", "time_to_95")
#: What the paper found, as changes against fair sharing.
PAPER = {"mean_normalised_loss": -0.73, "time_to_90": -0.45, "time_to_95": -0.30}
EPOCH_SECONDS = 1.0


class Settings(Protocol):
    """How to run."""

    @property
    def quick(self) -> bool:
        """Whether it is only to be shown that it works."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """One comparison for each."""
        ...

    @property
    def progress(self) -> Callable[[float], None]:
        """Told the share that is done."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much there is to do."""

    jobs: int
    mean_arrival: float
    rows: int
    #: Of each job, relative to the usual.
    iterations: float = 1.0


FULL = Amount(jobs=18, mean_arrival=3.0, rows=ROWS)
QUICK = Amount(jobs=3, mean_arrival=0.5, rows=500, iterations=0.1)


def run(settings: Settings) -> dict[str, Any]:
    """Train the jobs of every seed under both policies."""
    amount = QUICK if settings.quick else FULL
    slots = SLOTS_PER_CORE * cores_here()
    spark = session(f"local[{slots}]", name="spark_contention", settings={"spark.driver.memory": "2g"})
    try:
        frame = made_up(spark, amount.rows, slots)
        parts = len(settings.seeds) * len(POLICIES)
        seeds, done = [], 0
        for seed in settings.seeds:
            seconds = amount.jobs * amount.mean_arrival
            rng = np.random.default_rng(seed)
            planned = plan(amount.jobs, seconds, rng, iterations=amount.iterations)
            clusters = {}
            # In turns, so that a machine that warms up favours neither.
            for policy in POLICIES if seed % 2 else POLICIES[::-1]:
                clusters[policy] = _trained(spark, frame, policy, planned)
                done += 1
                settings.progress(done / parts)
            seeds.append({"seed": seed, **_compared(clusters)})
    finally:
        spark.stop()
    changes = {name: interval([one["change"][name] for one in seeds]) for name in MEASURES}
    return {
        "slots": slots,
        "jobs": amount.jobs,
        "mean_arrival": amount.mean_arrival,
        "rows": amount.rows,
        "epoch_seconds": EPOCH_SECONDS,
        "paper": PAPER,
        "seeds": seeds,
        "change": changes,
    }


def _trained(spark: Any, frame: Any, policy: str, planned: Sequence[PlannedFit]) -> SparkCluster:
    # Nothing is added to Spark's own fair sharing.
    shares = "pools" if policy == "fair" else "tokens"
    with SparkCluster(spark, policy, epoch_seconds=EPOCH_SECONDS, shares=shares) as cluster:
        train(cluster, planned, frame, lambda share: None)
    return cluster


def _compared(clusters: dict[str, SparkCluster]) -> dict[str, Any]:
    """Return the measures of both policies; a job's final best is the best that either found."""
    best: dict[str, float] = {}
    for cluster in clusters.values():
        for job in cluster.jobs():
            best[job.id] = min([best.get(job.id, math.inf), *job.losses])
    outcomes = {policy: _outcome(policy, cluster, best) for policy, cluster in clusters.items()}
    fair, ours = (outcomes[policy] for policy in POLICIES)
    return {
        "policies": {policy: _numbers(outcome) for policy, outcome in outcomes.items()},
        "change": {name: getattr(ours, name) / getattr(fair, name) - 1 for name in MEASURES},
    }


def _outcome(policy: str, cluster: SparkCluster, best: dict[str, float]) -> Outcome:
    history = cluster.history
    curves = [JobCurve.of(spec, history.events(spec.id), best[spec.id]) for spec in history.jobs()]
    return measure(policy, curves, history.decisions(), EPOCH_SECONDS)


def _numbers(outcome: Outcome) -> dict[str, float]:
    names = (*MEASURES, "completion", "mean_active", "makespan")
    return {name: float(getattr(outcome, name)) for name in names}


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the mean and its 95% t-interval; a single value has none."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "low": mean, "high": mean}
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def told(results: dict[str, Any]) -> str:
    """Return the results as text."""
    lines = [
        f"{results['jobs']} MLlib jobs, {results['mean_arrival']:g} s apart on average, on {results['slots']} "
        f"slots; {len(results['seeds'])} seeds; total-quality against fair sharing:"
    ]
    for name in MEASURES:
        found = results["change"][name]
        lines.append(
            f"  {name}: {found['mean']:+.0%} (95% interval {found['low']:+.0%} to {found['high']:+.0%}); "
            f"the paper {results['paper'][name]:+.0%}"
        )
    return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    quick: bool
    seeds: tuple[int, ...]
    progress: Callable[[float], None]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m replication.spark_contention", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few small jobs: shows that it works, no more")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()

    def progress(share: float) -> None:
        if sys.stderr.isatty():
            print(f"\r{share:.0%}", end="", file=sys.stderr)

    seeds = (1,) if options.quick else (1, 2, 3, 4, 5)
    results = run(_Given(quick=options.quick, seeds=seeds, progress=progress))
    print(json.dumps(results, indent=2) if options.json else told(results))


if __name__ == "__main__":
    main()
