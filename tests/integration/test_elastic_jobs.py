"""Laws of elastic trainings that are jobs: they follow their share, say what they can use, and report losses."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slaq import Cluster, Context
from slaq.engines.node.programs.cpu_used import seconds_used
from slaq.jobs import variables
from tests.integration.elastic_nets import digest, momentum, network, training

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("elastic_script.py")
PATIENCE = 60.0


def result_of(**options: Any) -> str:
    """Return the digest of an undisturbed training in this process."""
    model = network()
    optimizer = momentum(model)
    for _ in training(model, optimizer, **options):
        pass
    return digest(model, optimizer, [])


@pytest.mark.slow
def test_a_script_follows_its_share(tmp_path: Path) -> None:
    """Alone on two cores it computes with two workers, beside another job with fewer; its losses are heard."""
    told = json.dumps({"passes": 60, "prints_workers": True})
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])}
    with Cluster(cores=2) as cluster:
        job = cluster.submit_command([sys.executable, str(SCRIPT), told], name="elastic", env=env)
        log = cluster.directory_of(job.id) / "log.txt"
        _eventually(lambda: "workers 2" in log.read_text() if log.exists() else False)
        other = cluster.submit_command(
            [sys.executable, "-c", "while True: sum(range(1000))"], name="other", loss="none"
        )
        seen = len(log.read_text())
        _eventually(lambda: "workers 1" in log.read_text()[seen:])
        other.cancel()
        job.result(timeout=PATIENCE)
        text = log.read_text()
    assert text.rpartition("digest ")[2].strip() == result_of(passes=60)
    assert len(job.losses) > 100


def test_a_program_follows_its_context() -> None:
    """On the embedded cluster its workers are those of the context, which is told losses and demand."""

    def train(ctx: Context) -> tuple[str, int]:
        model = network()
        optimizer = momentum(model)
        most = max(update.workers for update in training(model, optimizer, context=ctx, passes=8))
        return digest(model, optimizer, []), most

    with Cluster(cores=2) as cluster:
        job = cluster.submit(train, name="elastic", max_cores=2)
        found, most = job.result(timeout=PATIENCE)
    assert found == result_of(passes=8)
    assert most == 2
    assert len(job.losses) == 80


def test_forked_processes_count_as_their_driver() -> None:
    """The CPU time that a program's own children use is the program's, while they live and after."""
    before = seconds_used()
    pid = os.fork()
    if pid == 0:
        while time.process_time() < 0.3:
            pass
        signal.pause()
    _eventually(lambda: seconds_used() - before >= 0.25)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert seconds_used() - before >= 0.25


def test_a_training_tells_what_it_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole workers, at most as many as there are micro-batches; then its losses, numbered, and the total."""
    reports = tmp_path / "reports"
    monkeypatch.setenv(variables.REPORTS, str(reports))
    monkeypatch.setattr("slaq.reporting._pen", None)
    model = network()
    updates = list(training(model, momentum(model), passes=1))
    lines = [json.loads(line) for line in reports.read_text().splitlines()]
    assert lines[0]["can_use"] == {"max_cores": 4.0, "sizes": "whole"}
    assert lines[1]["total"] == 10
    told = [(line["step"], line["loss"], line["metrics"]["workers"]) for line in lines[2:]]
    assert told == [(update.number - 1, update.loss, 1.0) for update in updates]


def test_a_deadline_to_leave_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the share says that the machine goes away, the training saves and ends as after SIGTERM."""
    share = tmp_path / "share.json"
    monkeypatch.setenv(variables.SHARE, str(share))
    held = {"cores": 1.0, "gpus": 0.0, "workers": 1.0, "leave_by": None}
    share.write_text(json.dumps(held))
    model = network()
    under_way = training(model, momentum(model), checkpoint=tmp_path / "checkpoint")
    assert [next(under_way).number for _ in range(5)] == [1, 2, 3, 4, 5]
    share.write_text(json.dumps(held | {"leave_by": time.time() + 30.0}))
    with pytest.raises(SystemExit) as left:
        next(under_way)
    assert left.value.code == 143
    share.write_text(json.dumps(held))
    again = training(model, momentum(model), checkpoint=tmp_path / "checkpoint")
    assert next(again).number == 6
    again.close()


def _eventually(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.05)
