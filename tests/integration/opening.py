"""Services without sockets for tests: opened on one home, one after another, and jobs to give them."""

import json
import os
import pwd
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from slaq import bootstrap
from slaq.config.service import ServiceSettings
from slaq.core.job import JobState
from slaq.jobs.options import ServiceOptions
from slaq.service.records import Identity, JobView, Submission
from slaq.service.service import Service

ME = Identity(user=pwd.getpwuid(os.getuid()).pw_name, uid=os.getuid(), admin=True)
ANN, BOB = Identity(user="ann"), Identity(user="bob")
#: Reports a loss that falls, until it is told to end.
TRAINS = """
import itertools, slaq, time
for i in itertools.count():
    slaq.report(1 / (1 + i))
    time.sleep(0.01)
"""
#: Goes on from what it kept in its own place.
GOES_ON = """
import os, pathlib, slaq, time
kept = pathlib.Path(os.environ["SLAQ_JOB_DIR"]) / "kept"
start = int(kept.read_text()) if kept.exists() else 0
print("from", start, "attempt", os.environ["SLAQ_ATTEMPT"], flush=True)
for i in range(start, 100000):
    slaq.report(1 / (1 + i))
    kept.with_suffix(".new").write_text(str(i + 1))
    kept.with_suffix(".new").replace(kept)
    time.sleep(0.01)
"""


def python(code: str, **options: Any) -> Submission:
    """Return a job that runs some Python."""
    return Submission(command=(sys.executable, "-c", code), options=cast(ServiceOptions, options))


def reports(*losses: float, start: int = 0) -> bytes:
    """Return lines as slaq.report writes them."""
    return b"".join(
        json.dumps({"iteration": start + k, "loss": loss, "time": 1e9 + k, "cpu": 0.1 * k, "pid": 7}).encode()
        + b"\n"
        for k, loss in enumerate(losses)
    )


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Open services on one home, one after another; the last one is closed at the end."""
    opened: list[Service] = []

    def open_one(**changes: Any) -> Service:
        for service in opened:
            service.close()
        settings = ServiceSettings(home=tmp_path, listen=tmp_path / "slaq.sock", epoch_seconds=0.1, **changes)
        opened.append(bootstrap.open_service(settings))
        return opened[-1]

    yield open_one
    for service in opened:
        service.close()


def in_state(service: Service, who: Identity, job_id: str, state: JobState) -> bool:
    return service.job(who, job_id).state is state


def printed(service: Service, job_id: str, least: int) -> list[str]:
    """Return what a job printed once it is so many lines."""
    lines = service.log(ME, job_id).data.decode().splitlines()
    return lines if len(lines) >= least else []


def iterated(service: Service, job_id: str, least: int) -> Callable[[], JobView | None]:
    """Return a check that a job has come so far."""

    def check() -> JobView | None:
        view = service.job(ME, job_id)
        assert not view.state.ended, view.reason
        return view if view.iteration >= least else None

    return check
