"""Runs one program as a job of the service, in a process of its own: `python -m slaq.run_program job.json`.

The service starts it as the job's submitter, keeps it to its share of the cores, and reads its losses as it does
those of any command. The cluster in here hands out what the job holds, so that `ctx.workers` is what the service
granted. The job's own directory gets what `slaq run` leaves: the model, losses, a checkpoint.
"""

import json
import os
import sys
import threading
from pathlib import Path

from slaq import reporting
from slaq.artifacts import keep
from slaq.bootstrap import jobs_vocabulary
from slaq.cluster import Cluster
from slaq.config import AlgorithmWork, JobTable, ProgramWork, read_job
from slaq.core.errors import CommandError, SlaqError
from slaq.core.job import JobState
from slaq.engines import checkpoints
from slaq.engines.files import LOG
from slaq.handle import Job
from slaq.jobs import variables
from slaq.jobs.demands import written_demand
from slaq.jobs.share import share

#: Where a program that goes on left its state when the service was lost.
LAST_CHECKPOINT = "checkpoint.last"
#: Seconds between two looks at what the program has printed, and at what the job holds.
TICK = 0.2
#: Units to a core: fine enough to hand on any share that the service grants.
UNITS_PER_CORE = 256


def main(definition: str) -> int:
    """Run the job that the file defines; return the exit status."""
    said = json.loads(Path(definition).read_text(encoding="utf-8"))
    state = Path(os.environ.get(variables.FOLDER, "."))
    base = Path(said["directory"] or state)
    table = read_job(said["job"], base / "job.toml", jobs_vocabulary())
    if not isinstance(table.work, AlgorithmWork | ProgramWork):
        raise CommandError(
            "the job is not a program", "submit a command as a command, and run Spark fits with `slaq run`"
        )
    with Cluster(
        cores=said["cores"], policy="fair", directory=state, units_per_core=UNITS_PER_CORE
    ) as cluster:
        job = _submit(cluster, table, state)
        relay = threading.Thread(target=_relay, args=(cluster, job))
        relay.start()
        _report(job, int(os.environ.get(variables.ITERATION, "0")))
        relay.join()
    kept = keep(job, table, lambda: {"state": str(job.state), "reason": job.reason})
    if kept.problem:
        sys.stderr.write(f"slaq: {kept.problem}\n")
    if job.state is JobState.COMPLETED:
        return 0
    sys.stderr.write(f"slaq: {job.reason}\n")
    return 1


def _submit(cluster: Cluster, table: JobTable, state: Path) -> Job:
    """Start the program, from its last checkpoint if it left one."""
    work = table.work
    assert isinstance(work, AlgorithmWork | ProgramWork)
    left = state / table.name / checkpoints.FILE
    last = state / LAST_CHECKPOINT
    if left.exists():
        left.replace(last)  # the cluster begins with an empty directory
    options = {**table.options, "name": table.name}
    if last.exists():
        options["checkpoint"] = last
    return cluster.submit(work.program, work.data, **options)


def _report(job: Job, known: int) -> None:
    """Report losses to the service, except those of repeated iterations."""
    for place, observation in enumerate(job):
        if observation.iteration >= known:
            reporting.report(observation.loss, **job.metrics[place])


def _relay(cluster: Cluster, job: Job) -> None:
    """Print what the program prints, and hand on what it holds and what it can use, until it has ended."""
    place, log, held, said = 0, job.directory / LOG, share(), job.demand
    while True:
        over = job.wait(timeout=TICK)
        if held != (held := share()):
            cluster.wake()
        if said != (said := job.demand) and said is not None:
            reporting.can_use(**written_demand(said))
        try:
            with log.open("rb") as file:
                file.seek(place)
                text = file.read()
        except FileNotFoundError:
            text = b""
        place += len(text)
        os.write(1, text)
        if over and not text:
            return


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except (SlaqError, OSError) as error:
        sys.exit(f"slaq: {error}")
