"""A service that is killed, or any process that it runs, loses nothing it acknowledged and fails no job."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "kinds",
    [["service", "everything", "fork server", "worker", "driver"], ["keeper", "supervisor", "reader"]],
    ids=["programs", "commands"],
)
def test_nothing_acknowledged_is_lost_by_kills_at_random_moments(kinds: list[str]) -> None:
    """Jobs, checkpoints and reports survive every kill -9, none counts twice, and no job ends by one."""
    kills = max(len(kinds), 2)
    command = [sys.executable, "-m", "benchmarks.service_kills", "--kills", str(kills), "--jobs", "3"]
    done = subprocess.run(
        [*command, "--json", "--only", *kinds],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert sum(found["kills"].values()) == kills
    assert (found["jobs"], found["jobs_lost"], found["jobs_ended"]) == (3, 0, 0)
    assert found["reports_noted"] > 0
