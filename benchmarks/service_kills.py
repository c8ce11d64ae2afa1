"""Kills a service and everything it runs at random moments, and looks for anything that was lost.

    python -m benchmarks.service_kills [--kills 100] [--jobs 30] [--seed 0] [--json]

Every job reports losses, each with a token of its own, and notes the token once `slaq.report` has returned; it
keeps a checkpoint in its directory. Jobs are submitted over the socket all along. After each kill -9 of the
service, every other time with all its descendants, it is started again. In the end every job that was
acknowledged must be known, every token that was noted stored once, every run must have begun where the one
before had kept itself, and the database be sound.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from slaq.client import Client, connect
from slaq.core.errors import SlaqError
from slaq.service.records import Submission
from slaq.stores.sqlite import SqliteStore

JOB = """
import os, pathlib, random, slaq, time
place = pathlib.Path(os.environ["SLAQ_JOB_DIR"])
kept = place / "kept"
start = int(kept.read_text()) if kept.exists() else 0
with (place / "begun").open("a") as begun:
    begun.write(f"{start}\\n")
noted = (place / "noted").open("a", buffering=1)
for i in range(start, 10**9):
    token = random.getrandbits(52)
    slaq.report(1 / (1 + i), token=token)
    noted.write(f"{token}\\n")
    draft = kept.with_suffix(".new")
    draft.write_text(str(i + 1))
    draft.replace(kept)
    time.sleep(0.01)
"""
#: Seconds that the service has to answer after a start.
PATIENCE = 120.0


def main() -> None:
    """Kill, look, tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = kill_often(options.kills, options.jobs, options.seed)
    if options.json:
        print(json.dumps(found))
    else:
        print(", ".join(f"{name} {value}" for name, value in found.items()))
    sys.exit(any(found[name] for name in ("jobs_lost", "reports_lost", "reports_doubled", "false_starts")))


def kill_often(kills: int, jobs: int, seed: int) -> dict[str, Any]:
    """Return what was counted."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="slaq-kills-") as folder:
        home = Path(folder)
        acknowledged: list[str] = []
        for round_number in range(kills + 1):
            service = _start(home)
            try:
                with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
                    _until_up(client)
                    wanted = jobs * (round_number + 1) // max(kills, 1)
                    deadline = time.monotonic() + chance.uniform(0.2, 2.0)
                    if round_number == kills:
                        deadline += 3.0
                    while time.monotonic() < deadline:
                        if len(acknowledged) < min(wanted + 1, jobs):
                            acknowledged.append(client.send(_job()).id)
                        time.sleep(0.02)
            finally:
                # Not a stop: nothing gets to write a last word. Every other time the service dies alone.
                everything = _descendants(service.pid) if round_number % 2 else []
                for pid in (service.pid, *everything):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                service.wait()
        return _counted(home, acknowledged, kills)


def _job() -> Submission:
    return Submission(command=(sys.executable, "-c", JOB), options={"name": "job"})


def _start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "slaq", "serve", "--home", str(home), "--epoch-seconds", "0.2"]
    with (home / "service.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _until_up(client: Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            client.cluster()
        except SlaqError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _counted(home: Path, acknowledged: list[str], kills: int) -> dict[str, Any]:
    # What the last run reported is read when the next one starts.
    service = _start(home)
    with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
        _until_up(client)
    service.send_signal(signal.SIGTERM)
    service.wait(PATIENCE)
    lost = doubled = false_starts = noted_in_all = 0
    with SqliteStore(home / "slaq.db") as store:
        known = {row.id: row for row in store.rows()}
        for job_id in known:
            place = home / "jobs" / job_id / "state"
            stored = Counter(int(one["token"]) for one in store.observations(job_id).metrics)
            noted = _numbers(place / "noted")
            noted_in_all += len(noted)
            lost += sum(token not in stored for token in noted)
            doubled += sum(count > 1 for count in stored.values())
            begun = _numbers(place / "begun")
            false_starts += sum(later < earlier for earlier, later in pairwise(begun))
    return {
        "kills": kills,
        "jobs": len(acknowledged),
        "jobs_lost": len(set(acknowledged) - set(known)),
        "reports_noted": noted_in_all,
        "reports_lost": lost,
        "reports_doubled": doubled,
        "false_starts": false_starts,
    }


def _numbers(path: Path) -> list[int]:
    """Return the whole lines of a file as numbers; the last may be cut short by a kill."""
    if not path.exists():
        return []
    return [int(line) for line in path.read_text().split("\n")[:-1] if line]


if __name__ == "__main__":
    main()
