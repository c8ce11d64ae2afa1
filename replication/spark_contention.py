"""The paper's main experiment on Spark: MLlib jobs with Poisson arrivals, fair sharing against total quality.

The paper (§6.2) runs 160 MLlib jobs that arrive 15 s apart on average on 640 cores, and finds, against fair
sharing, mean normalised loss 73% lower, and 45% and 30% less time to 90% and 95% of a job's loss reduction.
Here the same kinds of estimators train for real in one Spark application with four slots to a core: jobs,
arrivals, hyperparameters and data are the same under both policies of a seed. Fair sharing is Spark's own FAIR
pools, all of one share.

    python -m replication --only spark_contention [--quick]
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from replication.experiment import Comparison, Experiment, KeyFigure, Results, Section, Settings, SkippedError
from replication.intervals import (
    Estimate,
    changes,
    estimate,
    number,
    percent,
    sentences,
    short_of,
    shown,
    table,
)
from replication.simulated import MEASURE_NAMES, MEASURES, TOLD
from slaq.cli.demo.spark_jobs import ROWS, SLOTS_PER_CORE, PlannedFit, made_up, plan, train, warm_up
from slaq.core.outcome import JobCurve, Outcome, measure
from slaq.engines.processes import cores_here

if TYPE_CHECKING:
    from slaq.spark import SparkCluster

POLICIES = ("fair", "total-quality")
HEADING = "On Spark"
#: What the paper found, as changes against fair sharing.
PAPER = {"mean_normalised_loss": -0.73, "time_to_90": -0.45, "time_to_95": -0.30}
EPOCH_SECONDS = 1.0


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


def run(settings: Settings) -> Results:
    """Train the jobs of every seed under both policies."""
    if find_spec("pyspark") is None:
        raise SkippedError("it needs PySpark: pip install slaq[spark]")
    from slaq.spark import session

    amount = QUICK if settings.quick else FULL
    slots = SLOTS_PER_CORE * cores_here()
    spark = session(f"local[{slots}]", name="spark_contention", settings={"spark.driver.memory": "2g"})
    try:
        frame = made_up(spark, amount.rows, slots)
        parts = len(settings.seeds) * len(POLICIES)
        seeds: list[dict[str, Any]] = []
        done = 0
        for seed in settings.seeds:
            seconds = amount.jobs * amount.mean_arrival
            rng = np.random.default_rng(seed)
            planned = plan(amount.jobs, seconds, rng, iterations=amount.iterations)
            if not seeds:
                with _cluster(spark, "fair") as cluster:
                    warm_up(cluster, planned, frame)
            clusters = {}
            # In turns, so that a machine that warms up favours neither.
            for policy in POLICIES if seed % 2 else POLICIES[::-1]:
                clusters[policy] = _trained(spark, frame, policy, planned)
                done += 1
                settings.progress(done / parts)
            seeds.append({"seed": seed, **_compared(clusters)})
    finally:
        spark.stop()
    return {
        "slots": slots,
        "jobs": amount.jobs,
        "mean_arrival": amount.mean_arrival,
        "rows": amount.rows,
        "epoch_seconds": EPOCH_SECONDS,
        "seeds": seeds,
    }


def _cluster(spark: Any, policy: str) -> "SparkCluster":
    from slaq.spark import SparkCluster

    # Nothing is added to Spark's own fair sharing.
    shares = "pools" if policy == "fair" else "tokens"
    return SparkCluster(spark, policy, epoch_seconds=EPOCH_SECONDS, shares=shares)


def _trained(spark: Any, frame: Any, policy: str, planned: Sequence[PlannedFit]) -> "SparkCluster":
    with _cluster(spark, policy) as cluster:
        train(cluster, planned, frame, lambda share: None)
    return cluster


def _compared(clusters: "dict[str, SparkCluster]") -> dict[str, Any]:
    """Return the measures of both policies; a job's final best is the best that either found."""
    best: dict[str, float] = {}
    for cluster in clusters.values():
        for job in cluster.jobs():
            best[job.id] = min([best.get(job.id, math.inf), *job.losses])
    outcomes = {policy: _outcome(policy, cluster, best) for policy, cluster in clusters.items()}
    return {"policies": {policy: _numbers(outcome) for policy, outcome in outcomes.items()}}


def _outcome(policy: str, cluster: "SparkCluster", best: dict[str, float]) -> Outcome:
    history = cluster.history
    curves = [JobCurve.of(spec, history.events(spec.id), best[spec.id]) for spec in history.jobs()]
    return measure(policy, curves, history.decisions(), EPOCH_SECONDS)


def _numbers(outcome: Outcome) -> dict[str, float]:
    return {name: float(getattr(outcome, name)) for name in (*TOLD, "mean_active")}


def change_of(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Estimate]:
    """Return the change of each measure that every run tells; results of earlier versions lack some."""
    told = [name for name in TOLD if all(name in one["policies"][p] for one in seeds for p in POLICIES)]
    fair, ours = ([one["policies"][policy] for one in seeds] for policy in POLICIES)
    return {name: changes([each[name] for each in ours], [each[name] for each in fair]) for name in told}


def sections(results: Results) -> list[Section]:
    """Say what Spark's jobs gained."""
    seeds = results["seeds"]
    change = change_of(seeds)
    rows = [
        (
            MEASURE_NAMES[name],
            *(
                shown(
                    estimate(one["policies"][policy][name] for one in seeds), 2 if name == MEASURES[0] else 0
                )
                for policy in POLICIES
            ),
            percent(change[name]),
            f"{number(100 * PAPER[name])}%" if name in PAPER else "",
        )
        for name in change
    ]
    return [
        Section(
            heading=HEADING,
            title="the paper's main experiment on Spark, at this machine's scale",
            paper="On 20 nodes with 640 cores, 160 MLlib jobs: mean normalised loss −73%, time to 90% −45%, "
            "time to 95% −30% against fair sharing (§6.2).",
            ours=table(("", *POLICIES, "change", "the paper"), rows),
            made=f"{results['jobs']} MLlib estimators, unmodified, {results['mean_arrival']:g} s apart on average, "
            f"on {results['rows']:,} rows, in one Spark application with {results['slots']} slots; decisions every "
            f"{results['epoch_seconds']:g} s; {len(seeds)} seeds, both policies with the same jobs, in turns, "
            "after a little of each kind was fitted for Java to compile. Fair sharing is Spark's own FAIR pools.",
            falls_short=sentences(
                *(short_of(MEASURE_NAMES[name], change[name], PAPER[name]) for name in MEASURES),
                "Slots outnumber the cores of this machine, and the jobs are small: differences from the paper's "
                "cluster.",
            ),
            readme=(
                Comparison(
                    what="time to 90%, MLlib on Spark, real",
                    paper=f"{number(100 * PAPER['time_to_90'])}%",
                    ours=percent(change["time_to_90"]),
                ),
                *(
                    Comparison(
                        what=f"{MEASURE_NAMES[name]}, MLlib on Spark, real", paper="–", ours=percent(each)
                    )
                    for name, each in change.items()
                    if name not in MEASURES
                ),
            ),
        )
    ]


def key_figures(results: Results) -> list[KeyFigure]:
    """Return what must not get worse."""
    return [
        KeyFigure(name=f"change of {MEASURE_NAMES[name]} on Spark", value=change)
        for name, change in change_of(results["seeds"]).items()
    ]


EXPERIMENT = Experiment(
    name="spark_contention", headings=(HEADING,), run=run, sections=sections, key_figures=key_figures
)
