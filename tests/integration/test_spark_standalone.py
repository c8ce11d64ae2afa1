"""Jobs on a Spark cluster of several JVMs: a worker is killed, the session is stopped."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "standalone_spark.py"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_jobs_survive_a_lost_worker_and_end_with_the_session() -> None:
    """A worker and its executor killed mid-fit change no result; a stopped session fails its jobs and says so."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["slots"] == 4
    for ends in told["fits"]:
        assert ends == pytest.approx([told["plain"]] * len(ends), rel=1e-9)
    assert told["sums"] == [64]
    assert told["slots_left"] == 2
    assert told["stopped"] == ["failed", "the Spark session was stopped"]
    assert "make a new session" in told["refused"]
