"""A service that may open few files runs all its jobs, a few at a time."""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slaq.client import Client, connect
from slaq.core.job import JobState
from slaq.engines.node.commands import descriptors
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ME, in_state
from tests.integration.serving import until

#: Limits the files that a process and its children may open, for good, and becomes the service.
LIMITED = (
    "import os, resource, sys; most = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_NOFILE, (most, most));"
    "os.execv(sys.executable, [sys.executable, '-m', 'slaq', *sys.argv[2:]])"
)


def test_a_running_command_takes_no_descriptor_of_the_service(open_service: Callable[..., Service]) -> None:
    """A service holds as many descriptors with ten commands as with one."""
    service = open_service()

    def run_more(count: int) -> int:
        ids = [service.submit(ME, Submission(command=("sleep", "600"))).id for _ in range(count)]
        for job in ids:
            until(partial(in_state, service, ME, job, JobState.RUNNING))
        until(lambda: service.cluster(ME).throttle is not None)
        return len(list(Path("/proc/self/fd").iterdir()))

    before = run_more(1)
    # A reader of the store may have been opened meanwhile.
    assert run_more(9) <= before + 2


@pytest.mark.slow
@pytest.mark.parametrize(("most", "throttle"), [(256, "stop-continue"), (1024, None)])
def test_four_hundred_jobs_complete_within_few_descriptors(
    tmp_path: Path, most: int, throttle: str | None
) -> None:
    """None of 400 jobs fails for want of descriptors, and those that wait say why."""
    home = tmp_path / "home"
    command = [
        sys.executable,
        "-c",
        LIMITED,
        str(most),
        "serve",
        "--home",
        str(home),
        "--epoch-seconds",
        "0.2",
    ]
    if throttle is not None:
        command += ["--throttle", throttle]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
        try:
            until((home / "slaq.sock").exists)
            with connect(f"unix://{home}/slaq.sock") as client:
                run(client, most, tmp_path / "gate")
        finally:
            service.terminate()


def run(client: Client, most: int, gate: Path) -> None:
    waits = f"until [ -e {gate} ]; do sleep 0.5; done"
    ids = {client.send(Submission(command=("sh", "-c", waits))).id for _ in range(400)}
    fit = (most - descriptors.RESERVED) // descriptors.EACH
    reason = f"waits for file descriptors: {most - descriptors.RESERVED} are enough for {fit} jobs"

    def views() -> list[dict[str, Any]]:
        return [view for view in client.list_jobs(limit=1000) if view["id"] in ids]

    waiting = until(lambda: [view["id"] for view in views() if view["reason"] == reason])[-1]
    assert reason in str(client.why(waiting))
    gate.touch()
    ended = 0
    while ended < len(ids):
        ended = until(lambda: more_than(ended, views()))  # noqa: B023
    assert {(view["state"], view["reason"]) for view in views()} == {("completed", "")}


def more_than(before: int, views: list[dict[str, Any]]) -> int:
    """Return how many jobs have ended, once those are more than before."""
    ended = sum(JobState(view["state"]).ended for view in views)
    return ended if ended > before else 0
