"""slaq.report from a process that no service started, over the service's socket."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from slaq.client import connect
from slaq.service.records import Submission
from tests.integration.serving import PATIENCE, external, serving

REPORTS = """
import slaq, sys, time
for line in sys.stdin:
    slaq.report(float(line))
    print("said", flush=True)
"""


def until(holds: Callable[[], Any]) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


class Trainer:
    """A process that reports what it is told to."""

    def __init__(self, url: str, job: str, state: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", REPORTS],
            env={**os.environ, "SLAQ_URL": url, "SLAQ_JOB": job, "XDG_STATE_HOME": str(state)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def report(self, *losses: float) -> None:
        """Have it report, and wait until slaq.report has returned."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        for loss in losses:
            self.process.stdin.write(f"{loss}\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "said\n"

    def finish(self) -> None:
        """Let it end by itself."""
        with self.process as process:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0

    def kill(self) -> None:
        """End it without a last word."""
        with self.process as process:
            process.send_signal(signal.SIGKILL)


def losses(address: str, job: str) -> list[float]:
    """Return what the service has stored."""
    with connect(address) as client:
        return [one["loss"] for one in client.observations(job)]


def test_reports_survive_a_restart_of_the_service_and_the_death_of_the_process(tmp_path: Path) -> None:
    """What was reported while the service was away, or just before a kill -9, arrives, once and in order."""
    home, state = tmp_path / "home", tmp_path / "state"
    with serving(home) as served:
        address = served.unix
        with connect(address) as client:
            job = external(client)
        first = Trainer(address, job, state)
        first.report(5.0, 4.0)
        until(lambda: losses(address, job) == [5.0, 4.0])
    first.report(3.0)
    first.kill()
    with serving(home):
        second = Trainer(address, job, state)
        second.report(2.0)
        second.finish()
        until(lambda: losses(address, job) == [5.0, 4.0, 3.0, 2.0])


def test_reports_that_nobody_takes_cost_the_training_nothing(tmp_path: Path) -> None:
    """Without a service, or for a job that it does not know, the process goes on and ends well."""
    nowhere = Trainer(f"unix://{tmp_path / 'nothing.sock'}", "job", tmp_path)
    nowhere.report(1.0)
    with serving(tmp_path / "home") as served:
        unknown = Trainer(served.unix, "unknown", tmp_path)
        unknown.report(1.0)
        unknown.finish()
    nowhere.finish()


#: Reports without end, and writes what the process and its fork hold to the file that it is given.
SHARES = """
import json, os, pathlib, slaq, sys, time
while True:
    slaq.report(1.0)
    held = slaq.share()
    draft = pathlib.Path(sys.argv[1] + ".new")
    draft.write_text(json.dumps(None if held is None else [held.cores, held.workers]))
    draft.rename(sys.argv[1])
    time.sleep(0.05)
"""


def test_every_process_of_a_job_elsewhere_learns_its_share(tmp_path: Path) -> None:
    """Processes that report to one job all learn what it holds while they run; None where it is given nothing."""
    with serving(tmp_path / "home", cores=4, policy="fair") as served, connect(served.unix) as client:
        limited = client.send(Submission(external=True, options={"name": "limited", "max_cores": 3.0})).id
        watched = external(client)
        files = [tmp_path / name for name in ("one", "two", "watched")]
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", SHARES, str(file)],
                env={**os.environ, "SLAQ_URL": served.unix, "SLAQ_JOB": job, "XDG_STATE_HOME": str(tmp_path)},
            )
            for file, job in zip(files, (limited, limited, watched), strict=True)
        ]

        def told(file: Path) -> Any:
            return json.loads(file.read_text()) if file.exists() else ""

        def all_told(held: list[float]) -> bool:
            return [told(file) for file in files] == [held, held, None]

        try:
            for cores in (3.0, 1.5):
                client.change(limited, max_cores=cores)
                until(partial(all_told, [cores, cores]))
        finally:
            for process in processes:
                process.kill()
                process.wait()
        # What a process that was killed has left is not believed for long.
        (share,) = (tmp_path / "slaq" / "spool").glob("limited.*.share")
        client.end(limited, state="completed")
        after = Trainer(served.unix, limited, tmp_path)
        after.report(1.0)
        until(lambda: not share.exists())
        after.finish()
