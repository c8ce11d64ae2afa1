"""Runs one program as a job of the service, in a process of its own: `python -m slaq.run_program job.json`.

The service starts it as the job's submitter, keeps it to its share of the cores, and reads its losses as it does
those of any command. The cluster in here hands out what the job holds, so that `ctx.workers` is what the service
granted. The job's own directory gets what `slaq run` leaves: the model, losses, a checkpoint.
"""

import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from slaq import reporting
from slaq.artifacts import keep
from slaq.bootstrap import jobs_vocabulary
from slaq.cluster import Cluster
from slaq.config import AlgorithmWork, JobTable, ProgramWork, read_job
from slaq.core.errors import CommandError, SlaqError
from slaq.core.job import JobState
from slaq.durable import rename_durably
from slaq.engines import checkpoints
from slaq.engines.files import LOG
from slaq.engines.regular_file import open_regular
from slaq.handle import Job
from slaq.jobs import variables
from slaq.jobs.demands import written_demand
from slaq.jobs.share import share

#: Where a program that goes on left its state when the service was lost.
LAST_CHECKPOINT = "checkpoint.last"
#: Seconds between two looks at what the program has printed, and at what the job holds.
TICK = 0.2
#: Seconds in which the machine has to have a process for the cluster.
PATIENCE = 60.0
#: Units to a core: fine enough to hand on any share that the service grants.
UNITS_PER_CORE = 256
#: Bytes of output that are passed on between two looks at the share.
CHUNK = 1 << 22

_log = logging.getLogger(__name__)


def main(definition: str) -> int:
    """Run the job that the file defines; return the exit status."""
    said = _definition(Path(definition))
    state = Path(os.environ.get(variables.FOLDER, "."))
    base = Path(said["directory"] or state)
    table = read_job(said["job"], base / "job.toml", jobs_vocabulary())
    if not isinstance(table.work, AlgorithmWork | ProgramWork):
        raise CommandError(
            "the job is not a program", "submit a command as a command, and run Spark fits with `slaq run`"
        )
    with _cluster(said["cores"], state) as cluster:
        job = _submit(cluster, table, state)
        relay = threading.Thread(target=_relay, args=(cluster, job))
        relay.start()
        _report(job, int(os.environ.get(variables.ITERATION, "0")))
        relay.join()
    kept = keep(job, table, lambda: {"state": str(job.state), "reason": job.reason})
    if kept.problem:
        sys.stderr.write(f"slaq: {kept.problem}\n")
    if job.state in (JobState.COMPLETED, JobState.DIVERGED):
        # The service has seen the last loss, and judges by it.
        return 0
    sys.stderr.write(f"slaq: {job.reason}\n")
    return 1


def _definition(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not said.keys() >= {"job", "directory", "cores"}:
        raise CommandError(f"{path} does not say what the job runs", "submit the job again")
    return said


def _cluster(cores: int, directory: Path) -> Cluster:
    """Start the cluster; try again for a minute while the machine has no process to spare."""
    patient_until = time.monotonic() + PATIENCE
    while True:
        try:
            return Cluster(cores=cores, policy="fair", directory=directory, units_per_core=UNITS_PER_CORE)
        except BlockingIOError:
            if time.monotonic() > patient_until:
                raise
            time.sleep(TICK)


def _submit(cluster: Cluster, table: JobTable, state: Path) -> Job:
    """Start the program, from its last checkpoint if it left one."""
    work = table.work
    assert isinstance(work, AlgorithmWork | ProgramWork)
    left = state / table.name / checkpoints.FILE
    last = state / LAST_CHECKPOINT
    if left.exists():
        rename_durably(left, last)  # the cluster begins with an empty directory
    options = {**table.options, "name": table.name}
    if last.exists():
        options["checkpoint"] = last
    return cluster.submit(work.program, work.data, **options)


def _report(job: Job, known: int) -> None:
    """Report losses to the service, except those of iterations before `known`, which the service knows.

    A program that was killed may have kept itself after losses that had not been passed on: their numbers are
    left out.
    """
    for place, observation in enumerate(job):
        if observation.iteration >= known:
            reporting.report(
                observation.loss, step=observation.iteration, total=job.total, **job.metrics[place]
            )


def _relay(cluster: Cluster, job: Job) -> None:
    """Print what the program prints, and hand on what it holds and what it can use, until it has ended."""
    place, log, held, said = 0, job.directory / LOG, share(), job.demand
    text = b""
    while True:
        # Where there is more to print, it is printed at once.
        over = job.wait(timeout=0.0 if len(text) == CHUNK else TICK)
        if held != (held := share()):
            cluster.wake()
        if said != (said := job.demand) and said is not None:
            reporting.can_use(**written_demand(said))
        text = _printed(log, place)
        place += _pass_on(text)
        if over and not text:
            return


def _printed(log: Path, place: int) -> bytes:
    """Return what stands in a log from that byte on; nothing where it cannot be read now."""
    with suppress(OSError), open(open_regular(log), "rb") as file:
        file.seek(place)
        return file.read(CHUNK)
    return b""


def _pass_on(text: bytes) -> int:
    """Print bytes and return how many are dealt with: all of them if nothing can be printed."""
    try:
        return os.write(1, text)
    except OSError as error:
        # A full disk costs the output, never the training.
        _log.warning("output lost", extra={"bytes": len(text), "reason": str(error)})
        return len(text)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except (SlaqError, OSError) as error:
        sys.exit(f"slaq: {error}")
