"""A job that maximizes, as its user meets it: everything shown is in the job's own sign."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import slaq
from slaq import Cluster
from slaq.cli.main import main
from slaq.core.job import JobState
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ME, reports
from tests.integration.serving import serving, until

PATIENCE = 60.0
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
#: An accuracy that rises, falls back a little and ends higher.
RISES = [0.5, 0.7, 0.8, 0.78, 0.85, 0.84]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(1, policy="total-quality", epoch_seconds=0.1, directory=tmp_path / "cluster") as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def climbs(ctx: slaq.Context) -> None:
    k = 0
    while True:
        ctx.report(1.0 - 0.5 / (1 + k), step=k)
        k += 1


def test_a_program_ends_at_its_target(cluster: Cluster) -> None:
    """A target is reached from below, and the handle shows the numbers as the job reported them."""
    job = cluster.submit(climbs, maximize=True, target_loss=0.99, stop_at=1)
    assert job.wait(timeout=PATIENCE)
    assert job.state is JobState.COMPLETED
    assert "its loss 0.99" in job.reason
    assert job.losses[:2] == [0.5, 0.75]
    assert max(job.losses) >= 0.99
    assert job.reduction == 1.0
    assert (job.forecast(10).mean >= job.losses[-1] - 1e-3).all()


def test_a_share_of_the_rise_is_enough(cluster: Cluster) -> None:
    """Without a target, the job ends once it has made its share of the rise that is forecast."""
    code = """
import itertools, slaq, time
for k in itertools.count():
    slaq.report(1 - 0.5 * 0.7**k)
    time.sleep(0.02)
"""
    job = cluster.submit_command([sys.executable, "-c", code], env=ENV, maximize=True, stop_at=0.9)
    assert job.wait(timeout=PATIENCE)
    assert (job.state, "of its forecast reduction" in job.reason) == (JobState.COMPLETED, True)
    assert job.reduction > 0.85


def test_the_service_keeps_the_highest(open_service: Callable[..., Service]) -> None:
    """First, last and best are in the own sign, live, after the end and after a restart."""
    service = open_service(cores=1)
    job = service.submit(ME, Submission(external=True, options={"maximize": True, "max_cores": 1.0}))
    until(lambda: service.job(ME, job.id).state is JobState.RUNNING)
    service.report(ME, job.id, reports(*RISES), offset=0)

    def shown() -> Any:
        view = service.job(ME, job.id)
        return (view.maximize, view.first_loss, view.loss, view.best_loss)

    until(lambda: len(service.observations(ME, job.id)) == len(RISES))
    assert shown() == (True, 0.5, 0.84, 0.85)
    until(lambda: service.job(ME, job.id).reduction > 0.5)
    assert min(service.forecast(ME, job.id, [5])["mean"]) >= 0.83
    why = until(lambda: (found := service.why(ME, job.id)).get("maximize") and found)
    assert "The number that it maximizes stands at 0.8" in why["text"]
    service = open_service(cores=1)
    assert shown() == (True, 0.5, 0.84, 0.85)
    service.end(ME, job.id, state=JobState.COMPLETED, reason="")
    until(lambda: service.job(ME, job.id).state.ended)
    assert shown() == (True, 0.5, 0.84, 0.85)
    assert service.job(ME, job.id).reduction > 0.5


def test_the_command_line_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`slaq submit --maximize` reaches `ls --json`, `show` and `report --json`."""
    monkeypatch.chdir(tmp_path)
    script = f"import slaq\nfor one in {RISES}: slaq.report(one)"

    def typed(*words: str) -> str:
        done = CliRunner().invoke(main, list(words), prog_name="slaq")
        assert done.exit_code == 0, done.output
        return done.stdout

    with serving(tmp_path, cores=1) as served:
        monkeypatch.setenv("SLAQ_HOME", str(served.settings.home))
        job = typed("submit", "--maximize", "--env", f"PYTHONPATH={ENV['PYTHONPATH']}", "--",
                    sys.executable, "-c", script).strip()  # fmt: skip
        typed("wait", job)
        (found,) = json.loads(typed("ls", "--all", "--json"))
        assert (found["maximize"], found["best_loss"], found["loss"]) == (True, 0.85, 0.84)
        assert "best 0.85; higher is better" in typed("show", job)
        typed("report", "--json")


def test_a_batch_reports_the_best(tmp_path: Path) -> None:
    """`slaq run --json` names the highest number of a job that maximizes as its best."""
    (tmp_path / "train.py").write_text(f"import slaq\nfor one in {RISES}: slaq.report(one)\n")
    (tmp_path / "jobs.toml").write_text(
        f"[[job]]\nname = 'up'\ncommand = [{sys.executable!r}, 'train.py']\nmaximize = true\n"
        f"env = {{PYTHONPATH = {ENV['PYTHONPATH']!r}}}\n"
    )
    done = CliRunner().invoke(
        main,
        ["run", str(tmp_path / "jobs.toml"), "--cores", "1", "--results", str(tmp_path / "out"), "--json"],
    )
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["jobs"]
    assert (found["first_loss"], found["best_loss"], found["last_loss"]) == (0.5, 0.85, 0.84)


def test_a_forecast_of_what_rises() -> None:
    """`slaq forecast --maximize` predicts a further rise, and an interval with its lower end below."""
    text = " ".join(str(1.0 - 0.5 / (1 + k)) for k in range(20))
    done = CliRunner().invoke(
        main, ["forecast", "--maximize", "--json"], input=text, prog_name="slaq", catch_exceptions=False
    )
    found = json.loads(done.stdout)
    assert found["low"][0] <= found["mean"][0] <= found["high"][0]
    assert found["last"] < found["mean"][0] < 1.02
