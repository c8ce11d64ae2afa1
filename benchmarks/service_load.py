"""How much a service takes: losses accepted and stored, epochs on time, answers of its API under load.

    python -m benchmarks.service_load [--jobs 1000] [--seconds 20] [--json]

A service in a process of its own, 1-second epochs, a Unix socket. First `slaq.report` is timed in a loop, beside
writing the same line with plain Python as the least that any way of reporting costs. Then so many jobs are
active at once (they run elsewhere and compete for cores) and three things are measured while it works:

- losses: sent in batches as fast as they are taken; counted once they are stored;
- epochs: how long each took, and how many were late;
- answers: one asker lists jobs, shows one and reads the cluster, while a steady stream of losses comes in.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from slaq.client import Client, connect
from slaq.core.errors import SlaqError
from slaq.service.records import Submission

#: Losses of one job that are sent together.
BATCH = 50
PATIENCE = 120.0
REPORT = """
import os, sys, time, slaq
count = 20000
slaq.report(1.0)
began = time.perf_counter()
for i in range(count):
    slaq.report(1 / (1 + i))
mine = time.perf_counter() - began
fd = os.open(os.environ["SLAQ_REPORTS"] + ".plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
began = time.perf_counter()
for i in range(count):
    os.write(fd, f'{{"iteration":{i},"loss":{1 / (1 + i)},"time":{time.time():.6f}}}\\n'.encode())
print(mine / count * 1e6, (time.perf_counter() - began) / count * 1e6)
"""


def main() -> None:
    """Measure, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slaq-load-") as folder:
        home = Path(folder)
        found = _cost_of_a_report(home)
        service = _start(home)
        try:
            with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as client:
                _until_up(client)
                found |= _loaded(client, home, service.pid, options.jobs, options.seconds)
        finally:
            service.terminate()
            service.wait()
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:38} {value:,.2f}" if isinstance(value, float) else f"{name:38} {value:,}")


def _cost_of_a_report(home: Path) -> dict[str, Any]:
    environment = {**os.environ, "SLAQ_REPORTS": str(home / "reports.jsonl")}
    said = subprocess.run(
        [sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True
    )
    mine, plain = map(float, said.stdout.split())
    return {"report_microseconds": mine, "plain_write_microseconds": plain}


def _loaded(client: Client, home: Path, pid: int, jobs: int, seconds: float) -> dict[str, Any]:
    ids = [
        client.send(Submission(external=True, options={"name": "job", "max_cores": 1.0})).id
        for _ in range(jobs)
    ]
    _wait_for(lambda: client.cluster()["running"] == jobs)
    sent = dict.fromkeys(ids, 0)
    offsets = dict.fromkeys(ids, 0)

    def send(job_id: str) -> None:
        lines = b"".join(_line(sent[job_id] + k) for k in range(BATCH))
        offsets[job_id] = client.report(job_id, lines, offset=offsets[job_id])
        sent[job_id] += BATCH

    # As fast as they are taken.
    cpu, began = _cpu_seconds(pid), time.monotonic()
    place = 0
    while time.monotonic() - began < seconds:
        send(ids[place % jobs])
        place += 1
    total = sum(sent.values())
    _wait_for(lambda: _metric(client, "slaq_observations_total") >= total)
    took, used = time.monotonic() - began, _cpu_seconds(pid) - cpu

    # A steady stream, and someone who asks.
    over = threading.Event()

    def stream() -> None:
        with connect(f"unix://{home / 'slaq.sock'}", patience=PATIENCE) as other:
            turn = 0
            while not over.wait(0.05):
                job_id = ids[turn % jobs]
                lines = b"".join(_line(sent[job_id] + k) for k in range(BATCH))
                offsets[job_id] = other.report(job_id, lines, offset=offsets[job_id])
                sent[job_id] += BATCH
                turn += 1

    feeder = threading.Thread(target=stream)
    feeder.start()
    late_before, epochs = _metric(client, "slaq_late_epochs_total"), []
    times: dict[str, list[float]] = {"list_100": [], "list_1000": [], "show": [], "cluster": []}
    asks: dict[str, Any] = {
        "list_100": lambda: client.list_jobs(limit=100),
        "list_1000": lambda: client.list_jobs(limit=1000),
        "show": lambda: client.show_job(ids[0]),
        "cluster": client.cluster,
    }
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for name, ask in asks.items():
            start = time.perf_counter()
            ask()
            times[name].append(time.perf_counter() - start)
        epochs.append(_metric(client, "slaq_epoch_seconds"))
        time.sleep(0.02)
    over.set()
    feeder.join()
    every = [one for name in times for one in times[name]]
    return {
        "jobs": jobs,
        "losses_stored_per_second": total / took,
        "losses_stored_per_cpu_second": total / used,
        "epoch_milliseconds_median": 1e3 * statistics.median(epochs),
        "epoch_milliseconds_worst": 1e3 * max(epochs),
        "late_epochs": int(_metric(client, "slaq_late_epochs_total") - late_before),
        "answers": len(every),
        "answer_milliseconds_p99": 1e3 * _p99(every),
        **{f"answer_milliseconds_p99_{name}": 1e3 * _p99(times[name]) for name in times},
        "service_memory_mb": _memory(pid),
    }


def _line(iteration: int) -> bytes:
    said = {
        "iteration": iteration,
        "loss": 1 / (1 + iteration),
        "time": time.time(),
        "cpu": iteration * 0.01,
        "pid": 1,
    }
    return json.dumps(said).encode() + b"\n"


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _metric(client: Client, name: str) -> float:
    for line in client.metrics().splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"there is no measure {name}")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "slaq", "serve", "--home", str(home), "--requests-per-second", "1000000"]
    with (home / "service.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _until_up(client: Client) -> None:
    def up() -> bool:
        try:
            client.cluster()
        except SlaqError:
            return False
        return True

    _wait_for(up)


def _wait_for(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the service did not get there")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
