"""Train the same jobs on this machine under one policy after another, and measure the outcomes."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.bootstrap import Run
from slaq.cli.demo.jobs import PlannedJob
from slaq.cluster import Cluster
from slaq.core.outcome import JobCurve, measure
from slaq.handle import Job
from slaq.ports import History
from slaq.running import RunningCluster

#: Finds the loss in the output of the plain script.
LOSS_PATTERN = r"loss ([-+.\deE]+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSite:
    """The cores and the epoch length of the demo's cluster."""

    cores: int
    epoch_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The history and losses of the jobs under one policy."""

    history: History
    #: By job: its losses, and the metrics reported with each loss.
    losses: Mapping[str, Sequence[float]]
    metrics: Mapping[str, Sequence[Mapping[str, float]]]
    #: CPU seconds of all jobs together.
    cpu_seconds: float

    @classmethod
    def of(cls, cluster: RunningCluster) -> "Trained":
        """Return the results of a cluster whose jobs have all ended."""
        jobs = cluster.jobs()
        return cls(
            history=cluster.history,
            losses={job.id: job.losses for job in jobs},
            metrics={job.id: job.metrics for job in jobs},
            cpu_seconds=sum(seen.cpu_seconds for job in jobs for seen in job.observations),
        )


def train(
    policy: str, planned: Sequence[PlannedJob], site: TrainingSite, told: Callable[[float], None]
) -> Trained:
    """Submit each job at its arrival to a cluster under the policy, and wait for all jobs.

    Raises the exception of a job that fails.
    """
    with Cluster(site.cores, policy, epoch_seconds=site.epoch_seconds) as cluster:
        began = time.monotonic()
        coming = list(planned)
        while coming or not cluster.wait(timeout=0.2):
            while coming and coming[0].arrival <= time.monotonic() - began:
                _submit(cluster, coming.pop(0))
            if coming:
                time.sleep(min(0.2, max(coming[0].arrival - (time.monotonic() - began), 0.0)))
            told(sum(job.done() for job in cluster.jobs()) / len(planned))
        for job in cluster.jobs():
            job.result()
        return Trained.of(cluster)


def _submit(cluster: Cluster, job: PlannedJob) -> Job:
    if job.program is not None:
        return cluster.submit(job.program, job.data, name=job.name)
    script = Path(__file__).with_name("script.py")
    return cluster.submit_command(
        [sys.executable, str(script), str(job.rows)], name=job.name, loss_pattern=LOSS_PATTERN
    )


def measured(runs: Mapping[str, Trained], epoch_seconds: float) -> dict[str, Run]:
    """Return the outcomes by policy; the final best loss of a job is the best of all runs."""
    best: dict[str, float] = {}
    for run in runs.values():
        for job_id, losses in run.losses.items():
            best[job_id] = min([best.get(job_id, float("inf")), *losses])
    found = {}
    for policy, run in runs.items():
        curves = [
            JobCurve.of(spec, run.history.events(spec.id), best[spec.id]) for spec in run.history.jobs()
        ]
        outcome = measure(policy, curves, run.history.decisions(), epoch_seconds)
        found[policy] = Run(outcome=outcome, history=run.history)
    return found
