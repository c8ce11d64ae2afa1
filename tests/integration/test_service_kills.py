"""A service that is killed, with or without what it runs, loses nothing it acknowledged."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_acknowledged_is_lost_by_kills_at_random_moments() -> None:
    """Jobs, checkpoints and reports survive every kill -9, and none counts twice."""
    command = [sys.executable, "-m", "benchmarks.service_kills", "--kills", "4", "--jobs", "3", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["jobs"], found["jobs_lost"]) == (3, 0)
    assert found["reports_noted"] > 0
