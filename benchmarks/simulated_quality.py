"""How much of the clairvoyant's advantage over fair sharing slaq reaches, on recorded or generated curves."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slaq.bootstrap import simulate
from slaq.core.outcome import Outcome
from slaq.simulation.generator import WorkloadShape, generate
from slaq.simulation.recorded import Selection, read_archive, sample
from slaq.simulation.workload import Workload

#: What slaq is made to cut, of which the clairvoyant cuts most, and what is told beside it.
MEASURES = ("mean_normalised_loss", "time_to_90", "time_to_95", "loss_seconds")
BESIDE = ("completion", "makespan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A demand on 640 units: how many jobs arrive how fast."""

    name: str
    mean_arrival: float
    jobs: int


LOADS = (
    Load(name="light", mean_arrival=45.0, jobs=100),
    Load(name="loaded", mean_arrival=15.0, jobs=160),
    Load(name="heavy", mean_arrival=10.0, jobs=160),
)


def workload(load: Load, seed: int, data: Path | None) -> Workload:
    rng = np.random.default_rng(seed)
    demand = WorkloadShape(mean_arrival=load.mean_arrival)
    if data is None:
        return generate(load.jobs, rng, demand)
    return sample(read_archive(data, Selection(min_length=30)), load.jobs, rng, demand)


def compare(load: Load, seeds: range, data: Path | None, policies: tuple[str, ...]) -> dict[str, object]:
    """Return the means over the seeds, the change against fair, and the share of the clairvoyant's change."""
    seen: dict[str, list[Outcome]] = {policy: [] for policy in policies}
    for seed in seeds:
        jobs = workload(load, seed, data)
        for policy in policies:
            seen[policy].append(simulate(jobs, policy=policy, capacity=640, epoch_seconds=3.0).outcome)
    told = (*MEASURES, *BESIDE)
    means = {
        policy: {name: float(np.mean([getattr(o, name) for o in seen[policy]])) for name in told}
        for policy in policies
    }
    cuts = {
        policy: {name: means[policy][name] / means["fair"][name] - 1 for name in told}
        for policy in policies
        if policy != "fair"
    }
    return {
        "active_under_fair": float(np.mean([o.mean_active for o in seen["fair"]])),
        "fair": means["fair"],
        "change": cuts,
        "share_of_clairvoyant": {
            measure: cuts["total-quality"][measure] / cuts["clairvoyant"][measure] for measure in MEASURES
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="recorded curves: index.csv.gz and <source>.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.data is None:
        print("no --data: generated curves instead of recorded ones")
    results = {}
    for load in LOADS:
        result = compare(load, range(options.seeds), options.data, ("fair", "total-quality", "clairvoyant"))
        results[load.name] = result
        if not options.json:
            print(f"{load.name}: {result['active_under_fair']:.1f} active jobs under fair")
            for key in ("change", "share_of_clairvoyant"):
                print("  ", key, json.dumps(result[key], default=float))
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
