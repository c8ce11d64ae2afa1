"""What a decision costs from 1,000 to 100,000 jobs, how that grows, and what a paper-sized experiment takes."""

import argparse
import json
import math
import subprocess
import sys
import time

import numpy as np

from slaq.bootstrap import simulate
from slaq.simulation.generator import WorkloadShape, generate

SIZES = ((1_000, 10_000), (4_000, 16_000), (100_000, 1_000_000))


def decide(
    jobs: int, units: int, *, reference: bool, seed: int = 0, repeat: int | None = None
) -> dict[str, float]:
    """Run `slaq bench decide` in a process of its own, so that its peak memory is its own.

    `repeat` is how many decisions are timed; by default as many as 5 s hold.
    """
    command = [sys.executable, "-c", "from slaq.cli.main import main; main()", "bench", "decide", "--json"]
    command += ["--jobs", str(jobs), "--units", str(units), "--reference" if reference else "--no-reference"]
    command += ["--seed", str(seed)] + ([] if repeat is None else ["--repeat", str(repeat)])
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def experiment() -> dict[str, float]:
    """Return the CPU seconds of the paper-sized experiment (160 jobs, 640 units) under each of two policies."""
    workload = generate(160, np.random.default_rng(0), WorkloadShape())
    taken = {}
    for policy in ("fair", "total-quality"):
        began = time.process_time()
        simulate(workload, policy=policy, capacity=640, epoch_seconds=3.0)
        taken[policy] = round(time.process_time() - began, 2)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [decide(jobs, units, reference=jobs == 4_000) for jobs, units in SIZES]
    small, large = rows[0], rows[-1]
    n_log_n = (large["jobs"] * math.log(large["jobs"])) / (small["jobs"] * math.log(small["jobs"]))
    growth = {"time": large["median_ms"] / small["median_ms"], "n_log_n": n_log_n}
    result = {"decide": rows, "growth_1000_to_100000": growth, "experiment_cpu_seconds": experiment()}
    if options.json:
        print(json.dumps(result))
        return
    for row in rows:
        line = f"{row['jobs']:>7,} jobs on {row['units']:>9,} units: median {row['median_ms']:8.1f} ms"
        line += f", p99 {row['p99_ms']:8.1f} ms, peak {row['peak_memory_mb']:6.0f} MB"
        print(line + (f"; the paper's way {row['reference_ms']:,.0f} ms" if "reference_ms" in row else ""))
    print(f"growth from 1,000 to 100,000 jobs: {growth['time']:.0f}x (n log n: {n_log_n:.0f}x)")
    print(f"160 jobs on 640 units, CPU seconds per policy: {result['experiment_cpu_seconds']}")


if __name__ == "__main__":
    main()
