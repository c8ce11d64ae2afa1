"""Laws of commands as jobs of an embedded cluster, with real processes."""

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slaq
from slaq.algorithms import KMeans
from slaq.core.errors import CommandError, JobFailedError, JobOptionError
from slaq.core.job import JobState

PRINTS = """
import time
for k in range(30):
    print("step", k, "loss", 1 / (1 + k), flush=True)
    time.sleep(0.02)
"""
REPORTS = """
import slaq
for k in range(12):
    slaq.report(2.0 / (1 + k))
"""
WRITES = """
print("k,loss", file=f, flush=True)
for k in range(9):
    print(f"{k},{1 / (1 + k)}", file=f, flush=True)
"""
FOREVER = """
import itertools, time
for k in itertools.count(1):
    print("loss", 1 / k, flush=True)
    time.sleep(0.02)
"""
PATTERN = r"loss ([\d.e+-]+)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_losses_come_from_a_pattern_a_report_and_a_file(tmp_path: Path) -> None:
    """Whatever way a command tells its losses, all of them arrive, in order; its exit status is the result."""
    written = f"f = open({str(tmp_path / 'log.csv')!r}, 'w')\n{WRITES}"
    with slaq.Cluster() as cluster:
        prints = cluster.submit_command(python(PRINTS), name="prints", loss_pattern=PATTERN)
        reports = cluster.submit_command(python(REPORTS), name="reports")
        writes = cluster.submit_command(python(written), name="writes", loss_file=tmp_path / "log.csv")
        assert [job.result() for job in (prints, reports, writes)] == [0, 0, 0]
    assert prints.losses == pytest.approx([1 / (1 + k) for k in range(30)])
    assert reports.losses == pytest.approx([2 / (1 + k) for k in range(12)])
    assert writes.losses == pytest.approx([1 / (1 + k) for k in range(9)])
    assert "step 29" in prints.log()


def test_a_command_that_fails_says_so_with_the_end_of_its_log() -> None:
    """An exit status other than 0 is a failure that quotes what was printed last."""
    with slaq.Cluster() as cluster:
        job = cluster.submit_command(python("print('no such luck'); raise SystemExit(3)"), name="bad")
        with pytest.raises(JobFailedError, match=r"exit status 3.*no such luck"):
            job.result()
    assert job.state is JobState.FAILED


def test_a_command_is_run_again(tmp_path: Path) -> None:
    """A command that fails at first is restarted as often as was allowed, and counted on from there."""
    flag = tmp_path / "been-here"
    code = (
        f"import pathlib, slaq\nflag = pathlib.Path({str(flag)!r})\nslaq.report(3.0)\n"
        "if not flag.exists():\n    flag.touch()\n    raise SystemExit(1)\nslaq.report(1.0)\n"
    )
    with slaq.Cluster() as cluster:
        job = cluster.submit_command(python(code), name="again", retry=1)
        assert job.result() == 0
    assert job.losses[-1] == 1.0


@pytest.mark.parametrize(
    "limits", [{"max_iterations": 10}, {"target_loss": 0.1, "stop_at": 0.9}, {"time_budget": 1.0}]
)
def test_limits_end_a_command_as_completed(limits: dict[str, float]) -> None:
    """Iterations, a target or a time budget end a command that would go on for ever."""
    with slaq.Cluster() as cluster:
        job = cluster.submit_command(python(FOREVER), name="forever", loss_pattern=PATTERN, **limits)  # type: ignore[arg-type]
        assert job.result(timeout=60) == 0
    assert job.state is JobState.COMPLETED
    assert job.reason


def test_cancelling_ends_the_command() -> None:
    """A cancelled command ends although it would not of itself."""
    with slaq.Cluster() as cluster:
        job = cluster.submit_command(python(FOREVER), name="forever", loss_pattern=PATTERN)
        next(iter(job))
        assert job.cancel()
        assert job.wait(timeout=60)
    assert job.cancelled()


def test_other_work_runs_beside_training() -> None:
    """A command that trains nothing is held at its fair share and ends like any other."""
    with slaq.Cluster() as cluster:
        job = cluster.submit_command(python("sum(range(10**6))"), name="etl", trains=False)
        assert job.result() == 0


def test_bad_commands_are_refused() -> None:
    """No command, a pattern without a group, a program that is not there: each is refused at once."""
    with slaq.Cluster() as cluster:
        with pytest.raises(CommandError):
            cluster.submit_command([])
        with pytest.raises(CommandError):
            cluster.submit_command(["/no/such/program"])
        with pytest.raises(JobOptionError):
            cluster.submit_command(python("pass"), loss_pattern="loss")
        assert cluster.submit_command(python("pass"), name="good").result() == 0
        assert len(cluster.jobs()) == 1


def test_an_algorithm_that_is_stopped_early_returns_its_model() -> None:
    """A limit ends an algorithm with the model it had by then; bare features are data enough."""
    x = np.random.default_rng(0).normal(size=(300, 4))
    with slaq.Cluster() as cluster:
        model = cluster.submit(KMeans(k=9, init="sample", iterations=500), x, max_iterations=3).result()
    assert model.centres.shape == (9, 4)
    assert len(model.losses) == 4


def test_programs_and_commands_take_turns_on_the_same_cores() -> None:
    """Under fair sharing neither a program's tasks nor a command's threads keep the other from its part."""

    def busy(part: Any) -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    def program(ctx: slaq.Context) -> None:
        for step in itertools.count(1):
            ctx.map(busy)
            ctx.report(1.0 / step)

    with slaq.Cluster(cores=2, policy="fair", epoch_seconds=0.2) as cluster:
        jobs = [
            cluster.submit(program, np.zeros((64, 2))),
            *(cluster.submit_command(python("while True: pass"), trains=False) for _ in range(2)),
        ]
        deadline = time.monotonic() + 120
        while sum(job.cpu_seconds for job in jobs) < 6.0:
            assert time.monotonic() < deadline, [job.cpu_seconds for job in jobs]
            time.sleep(0.1)
        used = [job.cpu_seconds for job in jobs]
        cluster.shutdown(cancel=True)
    assert min(used) > 0.1 * sum(used), used
