"""What a crowded cluster does to jobs: their ends, spikes in their losses, and weights, against fair sharing.

Jobs with recorded curves arrive on 640 units faster than these can serve them. `ends` runs them as they are,
`spikes` gives one job in twelve a spike far above its first loss, `weights` gives one job in twenty a weight.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from replication.experiment import recorded_curves
from slaq.bootstrap import Run, Simulation
from slaq.core.arrays import Floats
from slaq.core.outcome import JobCurve
from slaq.core.quality import best_so_far, first_and_best, normalised, time_to
from slaq.simulation.generator import CurveShape, WorkloadShape
from slaq.simulation.recorded import Selection, read_archive, sample
from slaq.simulation.workload import SimulatedJob, Workload

UNITS, JOBS, MEDIAN_CPU_SECONDS = 640, 160, 4000.0
#: One job in so many gets a spike, or a weight.
SPIKED, WEIGHTED = 12, 20
#: How many losses a spike has, and the part of a curve in which it begins.
SPIKES = {"one": (1, 0.02, 0.25), "three": (3, 0.02, 0.25), "late": (1, 0.3, 0.5)}
POLICIES = ("fair", "total-quality", "clairvoyant")
_OWN = Path(__file__).parents[1] / "replication" / "curves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Jobs that arrive faster than the units can serve them, drawn anew for every seed."""

    curves: Sequence[CurveShape]
    mean_arrival: float
    seeds: Sequence[int]

    def workload(self, seed: int) -> Workload:
        """Return the jobs of a seed."""
        shape = WorkloadShape(
            mean_arrival=self.mean_arrival, median_cpu_seconds=MEDIAN_CPU_SECONDS, max_cores=UNITS
        )
        return sample(self.curves, JOBS, np.random.default_rng(seed), shape)


def simulated(workload: Workload, policy: str) -> Run:
    return Simulation(workload=workload, policy=policy, capacity=UNITS, epoch_seconds=3.0).run()


def curve_of(job: SimulatedJob, run: Run) -> JobCurve:
    return JobCurve.of(job.spec, run.history.events(job.spec.id), job.best_loss)


def loss_seconds(job: SimulatedJob, run: Run) -> float:
    """Return the integral of a job's normalised best loss over its life."""
    curve = curve_of(job, run)
    first, best = first_and_best(curve.falling)
    held = np.append(1.0, normalised(best_so_far(curve.falling), first, min(best, curve.end or best)))
    return float((np.diff([job.spec.arrival, *curve.times, curve.ended_at or curve.times[-1]]) * held).sum())


def time_to_90(jobs: Sequence[SimulatedJob], run: Run) -> float:
    """Return the mean seconds from arrival to 90%."""
    curves = [curve_of(job, run) for job in jobs]
    ends = [job.best_loss for job in jobs]
    return float(
        np.mean(
            [
                time_to(c.times, c.losses, 0.9, end) - c.spec.arrival
                for c, end in zip(curves, ends, strict=True)
            ]
        )
    )


def ends(crowd: Crowd) -> None:
    """Print what becomes of all jobs under each policy."""
    names = ("t90", "t95", "completion", "makespan", "ls", "mean loss")
    seen: dict[str, list[Floats]] = {policy: [] for policy in POLICIES}
    for seed in crowd.seeds:
        workload = crowd.workload(seed)
        for policy in POLICIES:
            run = simulated(workload, policy)
            found = run.outcome
            ls = float(np.mean([loss_seconds(job, run) for job in workload]))
            row = (found.time_to_90, found.time_to_95, found.completion, found.makespan, ls)
            seen[policy].append(np.array([*row, found.mean_normalised_loss]))
    means = {policy: np.mean(rows, axis=0) for policy, rows in seen.items()}
    print("  ends: fair", ", ".join(f"{n} {v:.4g}" for n, v in zip(names, means["fair"], strict=True)))
    for policy in POLICIES[1:]:
        changes = 100 * (means[policy] / means["fair"] - 1)
        print(f"  {policy:14}", ", ".join(f"{n} {v:+.1f}%" for n, v in zip(names, changes, strict=True)))


def with_spikes(workload: Workload, seed: int, kind: str) -> tuple[Workload, set[str]]:
    """Return the jobs with a spike of 10 to 1000 ranges above the first loss in some of them, and their ids."""
    rng = np.random.default_rng([seed, 7])
    width, earliest, latest = SPIKES[kind]

    def spiked(job: SimulatedJob) -> SimulatedJob:
        losses = job.losses.copy()
        begin = int(len(losses) * earliest) + 1
        place = rng.integers(begin, max(int(len(losses) * latest), begin + 4))
        losses[place : place + width] = losses[0] + np.ptp(losses) * 10 ** rng.uniform(1, 3)
        return replace(job, losses=losses)

    return _changed(workload, SPIKED, spiked)


def spikes(crowd: Crowd) -> None:
    """Print how soon jobs with spikes are good enough."""
    for kind in SPIKES:
        times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for seed in crowd.seeds:
            workload, chosen = with_spikes(crowd.workload(seed), seed, kind)
            jobs = [job for job in workload if job.spec.id in chosen]
            for policy in POLICIES:
                times[policy].append(time_to_90(jobs, simulated(workload, policy)))
        fair, *others = (float(np.mean(times[policy])) for policy in POLICIES)
        told = (f"{p} {100 * (t / fair - 1):+.0f}%" for p, t in zip(POLICIES[1:], others, strict=True))
        print(f"  spike {kind:5}: t90 fair {fair:.1f} s,", ", ".join(told))


def weighted(job: SimulatedJob, weight: float) -> SimulatedJob:
    """Return the job with this weight."""
    return replace(job, spec=replace(job.spec, weight=weight))


def weights(crowd: Crowd) -> None:
    """Print how much sooner jobs with a weight are good enough than the same jobs without."""
    for policy in POLICIES[:2]:
        times: dict[float, list[float]] = {1.0: [], 4.0: [], 1000.0: []}
        for seed in crowd.seeds:
            for weight, found in times.items():
                workload, chosen = _changed(crowd.workload(seed), WEIGHTED, partial(weighted, weight=weight))
                jobs = [job for job in workload if job.spec.id in chosen]
                found.append(time_to_90(jobs, simulated(workload, policy)))
        plain, *heavier = (float(np.mean(found)) for found in times.values())
        told = (
            f"weight {w:g} {100 * (t / plain - 1):+.0f}%" for w, t in zip((4, 1000), heavier, strict=True)
        )
        print(f"  {policy:14} t90 with weight 1 {plain:.1f} s,", ", ".join(told))


def _changed(
    workload: Workload, every: int, change: Callable[[SimulatedJob], SimulatedJob]
) -> tuple[Workload, set[str]]:
    chosen = {job.spec.id for job in workload.jobs[every // 2 :: every]}
    return Workload(tuple(change(job) if job.spec.id in chosen else job for job in workload)), chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=("ends", "spikes", "weights"), default=["ends"])
    parser.add_argument("--data", type=Path, help="recorded curves instead of those of `replication`")
    parser.add_argument("--sources", nargs="+", default=["*"], help="only these sources of --data")
    parser.add_argument("--arrivals", type=float, nargs="+", default=[6.0, 4.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 201, 202, 203, 204])
    options = parser.parse_args()
    if options.data is None:
        curves = recorded_curves(_OWN)
    else:
        curves = read_archive(options.data, Selection(min_length=30, sources=tuple(options.sources)))
    for arrival in options.arrivals:
        crowd = Crowd(curves=curves, mean_arrival=arrival, seeds=options.seeds)
        print(f"a job every {arrival:g} s, {len(options.seeds)} seeds")
        for name in options.what:
            {"ends": ends, "spikes": spikes, "weights": weights}[name](crowd)


if __name__ == "__main__":
    main()
