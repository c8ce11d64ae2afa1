"""Records the loss curves of our own real runs: every algorithm, setting and data set of the catalogue.

The runs train on a slaq cluster, and what is kept is what its engine reported: the losses, and CPU seconds
(not wall time) per iteration, so that the recording does not depend on how busy the machine is. The file is a
workload, whose jobs all arrive at 0: `Workload.read` reads it.

    python -m replication.record_curves --data DIR --write replication/curves/recorded.jsonl
"""

import argparse
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from replication.catalogue import Training, trainings
from slaq import Cluster, Job
from slaq.cli.display.terminal import progress
from slaq.core.job import JobSpec
from slaq.simulation.workload import SimulatedJob, Workload

#: Thousands of rows of the data that is made up.
SIZES = (2.0, 12.0)
#: Runs that train at a time: their data is in memory at once.
AT_A_TIME = 6
#: Losses keep this many digits, far below what any forecast or figure can tell.
DIGITS = 8


def record(runs: Sequence[Training], told: Callable[[float], None]) -> Workload:
    """Train every run on this machine; return the curves of those that improved."""
    waiting, recorded = deque(runs), list[SimulatedJob]()
    active: list[tuple[Training, Job]] = []
    with Cluster(policy="fair") as cluster:
        while waiting or active:
            while waiting and len(active) < AT_A_TIME:
                run = waiting.popleft()
                active.append((run, cluster.submit(run.program, run.draw(), name=run.name)))
            ended = [job.done() for _, job in active]
            recorded += [recording(*one) for one, done in zip(active, ended, strict=True) if done]
            active = [one for one, done in zip(active, ended, strict=True) if not done]
            told(len(recorded) / len(runs))
            time.sleep(0.02)
    return Workload(tuple(job for job in recorded if job.best_loss < job.losses[0]))


def recording(run: Training, job: Job) -> SimulatedJob:
    """Return what an ended job's engine reported of it; raises what its program raised."""
    job.result()
    observations = job.observations
    # What came before the first loss, such as drawing centres, is no iteration.
    cpu = float(np.mean([seen.cpu_seconds for seen in observations[1:]]))
    return SimulatedJob(
        spec=JobSpec(id=run.name),
        losses=np.array([float(f"{seen.loss:.{DIGITS}g}") for seen in observations]),
        cpu_seconds_per_iteration=float(f"{cpu:.4g}"),
        algorithm=run.acronym,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m replication.record_curves", description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with mnist, libsvm_a9a, ap_corpus, ...")
    parser.add_argument("--write", type=Path, required=True, metavar="FILE", help="where the curves go")
    options = parser.parse_args()
    runs = list(trainings(options.data, SIZES))
    with progress(stages=1) as begin:
        workload = record(runs, begin("recording"))
    workload.write(options.write)
    print(f"{len(workload)} curves of {len(runs)} runs: {options.write}")


if __name__ == "__main__":
    main()
