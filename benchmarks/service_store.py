"""What the durable store takes: observations a second, bytes, listings while it writes, and a restart."""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The scheduler's arithmetic on one core, as on a busy machine; read when NumPy is loaded.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from slaq.bootstrap import make_forecaster, make_policy
from slaq.core.appraisal import Appraiser
from slaq.core.events import Event, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.roster import Roster
from slaq.ports import Clock
from slaq.scheduler import Scheduler
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.queries import SQL

CAPACITY = 640
#: Epochs between the scheduler's last snapshot and its end, in the restart.
SINCE_SNAPSHOT = 10


class _Idle:
    """Stands still; an engine with a fixed number of cores, and whatever events it is given."""

    def __init__(self) -> None:
        self.time = 0.0
        self.events: list[Event] = []

    def now(self) -> float:
        return self.time

    def sleep_until(self, moment: float, *, earliest: float = 0.0) -> None:
        self.time = max(self.time, moment)

    def wake(self) -> None:
        pass

    def capacity(self) -> float:
        return CAPACITY

    def start(self, spec: JobSpec) -> None:
        pass

    def stop(self, job_id: str) -> None:
        pass

    def grant(self, cores: object) -> None:
        pass

    def poll(self) -> list[Event]:
        events, self.events = self.events, []
        return events


def scheduler(store: SqliteStore, world: _Idle) -> Scheduler:
    """Return a scheduler that keeps all in the store."""
    clock: Clock = world
    return Scheduler(
        engine=world,
        store=store,
        clock=clock,
        policy=make_policy("total-quality"),
        appraiser=Appraiser(epoch_seconds=1.0),
        roster=Roster(make_forecaster("slaq")),
    )


def losses(jobs: int, first: int, count: int, at: float) -> list[Event]:
    """Return `count` losses of every job, the jobs interleaved."""
    return [
        LossObserved(
            job_id=f"job-{job}",
            at=at,
            observation=Observation(
                iteration=iteration,
                loss=1.0 + (job + 1) / (iteration + 1),
                cpu_seconds=0.01,
                wall_seconds=0.02,
            ),
        )
        for iteration in range(first, first + count)
        for job in range(jobs)
    ]


def submit(store: SqliteStore, jobs: int) -> None:
    """Submit jobs with an environment of the usual size."""
    environment = {f"VARIABLE_{number}": "x" * 60 for number in range(40)}
    with store.epoch():
        for job in range(jobs):
            asked = {"command": ["python", "train.py"], "env": environment, "tags": ["bench"]}
            store.submit_job(JobSpec(id=f"job-{job}"), owner=f"user-{job % 20}", submission=asked, at=0.0)


def measure_writing(directory: Path, jobs: int, per_epoch: int, epochs: int) -> dict[str, float]:
    """Return what epochs of that many observations take, stored and scheduled on, while others list jobs."""
    world = _Idle()
    each = per_epoch // jobs
    with SqliteStore(directory / "writing.db") as store:
        submit(store, jobs)
        run = scheduler(store, world)
        run.run_epoch()
        listings: list[float] = []
        stop = threading.Event()
        reader = threading.Thread(target=_list_jobs, args=(store, listings, stop))
        reader.start()
        size = _size(store.path)
        walls, cpu = [], 0.0
        for epoch in range(1, epochs + 1):
            world.time = float(epoch)
            world.events = losses(jobs, (epoch - 1) * each, each, float(epoch))
            began, began_cpu = time.perf_counter(), time.thread_time()
            with store.epoch():
                run.run_epoch()
            walls.append(time.perf_counter() - began)
            cpu += time.thread_time() - began_cpu
        stop.set()
        reader.join()
        observed = each * jobs * epochs
        decisions = sqlite3.connect(store.path)
        (decision_bytes,) = decisions.execute("SELECT avg(length(body)) FROM decisions").fetchone()
        decisions.close()
        grown = _size(store.path) - size - decision_bytes * epochs
    return {
        "jobs": jobs,
        "observations_per_epoch": each * jobs,
        "observations_per_cpu_second": round(observed / cpu),
        "observations_per_second": round(observed / sum(walls)),
        "epoch_ms_median": round(1e3 * float(np.median(walls)), 2),
        "epoch_ms_p99": round(1e3 * float(np.quantile(walls, 0.99)), 2),
        "bytes_per_observation": round(grown / observed, 1),
        "bytes_per_decision": round(decision_bytes),
        "listing_ms_median": round(1e3 * float(np.median(listings)), 2),
        "listing_ms_p99": round(1e3 * float(np.quantile(listings, 0.99)), 2),
    }


def _list_jobs(store: SqliteStore, taken: list[float], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        began = time.perf_counter()
        store.rows([JobState.RUNNING])
        taken.append(time.perf_counter() - began)


def _size(path: Path) -> int:
    with sqlite3.connect(path) as db:
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    return int(pages * size)


def build(path: Path, jobs: int, observations: int) -> None:
    """Make a store with that many observations, a snapshot near their end, and a few epochs after it."""
    world = _Idle()
    each = max(observations // jobs - SINCE_SNAPSHOT, 1)
    with SqliteStore(path) as store:
        submit(store, jobs)
        run = scheduler(store, world)
        run.run_epoch()
        # What the scheduler has seen by the snapshot: the last hundred losses of every job.
        run.roster.absorb(losses(jobs, max(each - 100, 0), min(each, 100), 1.0))
    with sqlite3.connect(path, isolation_level=None) as db:
        # By hand, because this is not what is measured.
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for job in range(1, jobs + 1):
            rows = (
                (job, 0, i, job * each + i, 1.0, 1.0 + 1.0 / (i + 1), 0.01, 0.02, None) for i in range(each)
            )
            db.executemany(SQL["keep_observation"], rows)
        db.execute(
            "UPDATE jobs SET iteration = ?, loss = 1.0, best_loss = 1.0, first_loss = 2.0", (each - 1,)
        )
        db.execute("UPDATE counters SET seq = ?", ((jobs + 1) * each,))
        db.execute("COMMIT")
    db.close()
    with SqliteStore(path) as store:
        run.store = store
        store.save_snapshot(run.roster.dump(), at=1.0)
        for epoch in range(SINCE_SNAPSHOT):
            world.time = 2.0 + epoch
            world.events = losses(jobs, each + epoch, 1, world.time)
            with store.epoch():
                run.run_epoch()


def restart(path: Path) -> dict[str, float]:
    """Return the seconds from opening the store to the first decision, and where they go."""
    marks: dict[str, float] = {}

    def timed(name: str, act: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = act()
        marks[name] = round(time.perf_counter() - began, 4)
        return result

    began = time.perf_counter()
    store = timed("open", lambda: SqliteStore(path))
    world = _Idle()
    run = scheduler(store, world)
    rows = timed("rows", lambda: store.rows([JobState.QUEUED, JobState.RUNNING]))
    blob, seq = timed("snapshot", store.snapshot)
    timed("restore", lambda: run.roster.restore(blob))
    batches = timed("events", lambda: list(store.events_since(seq)))

    def absorb() -> None:
        for batch in batches:
            run.roster.absorb(batch.events)
            if batch.allocation is not None:
                ids = batch.allocation.ids
                places = np.array([run.roster.ids[job_id] for job_id in ids], dtype=np.int64)
                run.roster.hold(places, batch.allocation, batch.decision.time)

    timed("absorb", absorb)
    world.time = store.last_time() + 1.0
    decision = timed("decide", run.run_epoch)
    marks["to_first_decision"] = round(time.perf_counter() - began, 4)
    assert len(decision.ids) == len(rows)
    store.close()
    return marks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--observations", type=int, default=10_000_000, help="in the store that is restarted")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--directory", type=Path, help="where to put the databases; a temporary one by default"
    )
    parser.add_argument("--restart", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.restart:
        print(json.dumps(restart(options.restart)))
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as made:
        directory = Path(made)
        writing = []
        for per_epoch in (5_000, 20_000):
            writing.append(measure_writing(directory, options.jobs, per_epoch, options.epochs))
            for left in directory.iterdir():
                left.unlink()
        build(directory / "restart.db", options.jobs, options.observations)
        # In a process of its own, as after a crash; the machine still has the file in memory.
        command = [
            sys.executable,
            "-m",
            "benchmarks.service_store",
            "--restart",
            str(directory / "restart.db"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        size = (directory / "restart.db").stat().st_size
    restarted = {"jobs": options.jobs, "observations": options.observations, "bytes": size}
    result = {"writing": writing, "restart": restarted | json.loads(done.stdout)}
    if options.json:
        print(json.dumps(result))
        return
    for row in writing:
        print(
            f"{row['observations_per_epoch']:>7,} observations of {row['jobs']:,} jobs an epoch, stored and"
            f" scheduled on: {row['observations_per_cpu_second']:,} per CPU second;"
            f" epoch median {row['epoch_ms_median']} ms, p99 {row['epoch_ms_p99']} ms;"
            f" {row['bytes_per_observation']} bytes each, {row['bytes_per_decision']:,} a decision;"
            f" listing all jobs meanwhile: median {row['listing_ms_median']} ms, p99 {row['listing_ms_p99']} ms"
        )
    taken = result["restart"]
    print(
        f"restart with {taken['observations']:,} observations of {taken['jobs']:,} jobs"
        f" ({taken['bytes'] / 1e6:,.0f} MB): {taken['to_first_decision']} s to the first decision"
    )


if __name__ == "__main__":
    main()
