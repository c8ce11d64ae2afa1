"""How a service fares as it grows old: what users wait for beside many jobs that have ended.

    python -m benchmarks.service_age [--jobs 50000] [--losses 30] [--epochs 10000] [--json]

A store is filled with so many ended jobs, all of the last day, and with the decisions about them. Then a service is
started on it, and each verb is timed as a user sees it: a process of its own, from start to end.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from slaq.client import connect
from slaq.core.decision import Decision
from slaq.core.errors import SlaqError
from slaq.core.job import JobSpec
from slaq.service.records import Submission
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.packing import pack_decision, spec_text, submission_text
from slaq.stores.sqlite.queries import SQL

SLAQ = Path(sysconfig.get_path("scripts")) / "slaq"
#: Jobs in each decision, and users.
ACTIVE, USERS = 8, 5
PATIENCE = 120.0
VERBS = {
    "ls": ["ls"],
    "ls --active": ["ls", "--active"],
    "ls --json": ["ls", "--json"],
    "ls --all": ["ls", "--all"],
    "report": ["report", "page.html"],
    "report --json": ["report", "--json"],
    "show": ["show", "job-7"],
    "wait": ["wait", "job-7"],
    "users": ["users", "ls"],
    "cluster": ["cluster"],
    "prune --dry-run": ["prune", "--older-than", "2d", "--dry-run"],
}


def build(path: Path, jobs: int, losses: int, epochs: int) -> None:
    """Fill a store with ended jobs and the decisions about them."""
    SqliteStore(path).close()
    end = time.time() - 60.0
    start = end - 80_000.0
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        for job in range(1, jobs + 1):
            _add_job(
                db, job, "job" if job == 1 else f"job-{job}", start + (end - start) * job / (jobs + 1), losses
            )
        for epoch in range(epochs):
            decision = _decision(epoch, end - epochs + epoch, epoch * jobs // max(epochs, 1), jobs)
            row = (10**9 + epoch, epoch, decision.time, decision.capacity, pack_decision(decision), None)
            db.execute(SQL["record"], row)
        db.execute("UPDATE counters SET seq = ?, time = ?", (10**9 + epochs, end))
        db.execute("COMMIT")
    db.close()


def _add_job(db: sqlite3.Connection, number: int, job_id: str, at: float, losses: int) -> None:
    owner = f"user{number % USERS}"
    asked = Submission(command=("python", "train.py", "--seed", str(number))).completed()
    spec = JobSpec(id=job_id, arrival=at, owner=owner)
    cursor = db.execute(SQL["submit"], (job_id, owner, at, '["sweep"]', at))
    db.execute(
        "INSERT INTO requests (job, spec, submission) VALUES (?, ?, ?)",
        (cursor.lastrowid, spec_text(spec), submission_text(asked.as_json())),
    )
    place = number * losses
    rows = ((number, 0, i, place + i, at + i, 1.0 / (1 + i), 0.1, 0.1, None) for i in range(losses))
    db.executemany(SQL["keep_observation"], rows)
    last = 1.0 / max(losses, 1)
    db.execute(
        "UPDATE jobs SET state = ?, started_at = ?, ended_at = ?, iteration = ?, first_loss = 1.0, loss = ?, "
        "best_loss = ?, reduction = 0.97, attempts = 1 WHERE number = ?",
        ("failed" if number % 50 == 0 else "completed", at, at + losses, losses - 1, last, last, number),
    )


def _decision(epoch: int, at: float, first: int, jobs: int) -> Decision:
    ids = tuple(f"job-{2 + (first + place) % max(jobs - 1, 1)}" for place in range(ACTIVE))
    ones = np.ones(ACTIVE)
    return Decision(
        epoch=epoch, time=at, capacity=4.0, unit=0.1, ids=ids, cores=0.5 * ones, loss=0.5 * ones, gain=0.1 * ones,
        marginal=0.1 * ones, expected=0.4 * ones, expected_low=0.3 * ones, expected_high=0.5 * ones,
        diverged=np.zeros(ACTIVE, dtype=np.bool_), seconds=0.001, level=ones, last=ones, weight=ones,
        fair_share=ones, sure=ones, most=ones, competes=np.ones(ACTIVE, dtype=np.bool_),
    )  # fmt: skip


def measure(home: Path, verbs: list[str]) -> dict[str, float]:
    """Return the seconds of each verb, of the start until the first answer, and of a few requests."""
    environment = {**os.environ, "SLAQ_HOME": str(home), "SLAQ_CORES": "2"}
    environment.pop("SLAQ_URL", None)
    found: dict[str, float] = {}
    began = time.perf_counter()
    with (home / "serve.log").open("wb") as log:
        service = subprocess.Popen([SLAQ, "serve"], env=environment, stderr=log)
    try:
        with connect(f"unix://{home}/slaq.sock") as client:
            while not _there(client):
                assert service.poll() is None, (home / "serve.log").read_text()
                assert time.perf_counter() - began < PATIENCE
                time.sleep(0.05)
            found["start"] = time.perf_counter() - began
            for name in verbs:
                began = time.perf_counter()
                done = subprocess.run(
                    [SLAQ, *VERBS[name]], env=environment, cwd=home, capture_output=True, check=False
                )
                found[name] = time.perf_counter() - began
                assert done.returncode == 0, done.stderr.decode()
            for name, ask in _requests(client).items():
                began = time.perf_counter()
                ask()
                found[name] = time.perf_counter() - began
    finally:
        service.terminate()
        service.wait(PATIENCE)
    return {name: round(seconds, 3) for name, seconds in found.items()}


def _there(client: Any) -> bool:
    try:
        client.cluster()
    except SlaqError:
        return False
    return True


def _requests(client: Any) -> dict[str, Any]:
    return {
        "metrics": client.metrics,
        "submit under a taken name": lambda: client.submit_command(["true"], name="job"),
        "submit under it again": lambda: client.submit_command(["true"], name="job"),
        "prune, nothing to remove": lambda: client.prune(before=1.0, keep_decisions=10**9),
    }


def main() -> None:
    """Build, measure, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--losses", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=10_000)
    parser.add_argument("--verbs", nargs="*", choices=list(VERBS), default=list(VERBS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slaq-age-") as folder:
        home = Path(folder)
        began = time.perf_counter()
        build(home / "slaq.db", options.jobs, options.losses, options.epochs)
        print(f"built in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        found = measure(home, options.verbs)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{options.jobs:,} ended jobs with {options.losses} losses each, {options.epochs:,} decisions")
    for name, seconds in found.items():
        print(f"{seconds:>9.3f} s  {name}")


if __name__ == "__main__":
    main()
