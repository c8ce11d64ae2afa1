"""Runs one program as a job of the service, in a process of its own: `python -m slaq.solo job.json`.

The service starts it as the job's submitter, keeps it to its share of the cores, and reads its losses as it does
those of any command. It leaves in the job's own directory what `slaq run` leaves: the model, losses, a checkpoint.
"""

import json
import os
import sys
import threading
from pathlib import Path

from slaq import reporting
from slaq.bootstrap import jobs_vocabulary
from slaq.cluster import Cluster
from slaq.config import AlgorithmWork, JobTable, ProgramWork, read_job
from slaq.core.errors import CommandError, SlaqError
from slaq.core.job import JobState
from slaq.engines.files import LOG
from slaq.engines.local import checkpoints
from slaq.handle import Job
from slaq.keeping import keep

#: Where a program that goes on left its state when the service was lost.
LAST_CHECKPOINT = "checkpoint.last"
#: Seconds between two looks at what the program has printed.
TICK = 0.2


def main(definition: str) -> int:
    """Run the job that the file defines; return the exit status."""
    said = json.loads(Path(definition).read_text(encoding="utf-8"))
    state = Path(os.environ.get("SLAQ_JOB_DIR", "."))
    base = Path(said["directory"] or state)
    table = read_job(said["job"], base / "job.toml", jobs_vocabulary())
    if not isinstance(table.work, AlgorithmWork | ProgramWork):
        raise CommandError(
            "the job is no program", "submit a command as one, and run what Spark fits by slaq run"
        )
    with Cluster(cores=said["cores"], policy="fair", directory=state) as cluster:
        job = _submit(cluster, table, state)
        relay = threading.Thread(target=_relay, args=(job,))
        relay.start()
        _report(job, int(os.environ.get("SLAQ_ITERATION", "0")))
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
    return cluster.submit(
        work.program,
        work.data,
        name=table.name,
        partitions=table.partitions,
        task_timeout=table.task_timeout,
        max_restarts=2 if table.max_restarts is None else table.max_restarts,
        max_iterations=table.max_iterations,
        checkpoint=last if last.exists() else None,
    )


def _report(job: Job, known: int) -> None:
    """Pass its losses on; those of iterations that are done over again are known already."""
    for place, observation in enumerate(job):
        if observation.iteration >= known:
            reporting.report(observation.loss, **job.metrics[place])


def _relay(job: Job) -> None:
    """Print what the program prints, until it has ended."""
    place, log = 0, job.directory / LOG
    while True:
        over = job.wait(timeout=TICK)
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
