"""Laws of jobs that wait for other jobs, or for memory, wherever they are submitted."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import slaq
from slaq.bootstrap import jobs_vocabulary
from slaq.cli.main import main
from slaq.config import read_jobs_file
from slaq.core.errors import UnknownJobError
from slaq.core.job import JobState
from slaq.kinds.machine import memory_here
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ANN, BOB, in_state
from tests.integration.serving import serving, until

PATIENCE = 60.0
#: Ends once the file that it is given is there.
WAITS = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"


def waiting_for(file: Path) -> list[str]:
    return [sys.executable, "-c", WAITS, str(file)]


def test_a_job_waits_for_those_it_comes_after(tmp_path: Path) -> None:
    """It is queued while one of them runs, and starts when all have ended; a job that is not there is refused."""
    with slaq.Cluster(cores=2) as cluster:
        with pytest.raises(UnknownJobError, match="first"):
            cluster.submit_command(["true"], after=["first"])
        first = cluster.submit_command(waiting_for(tmp_path / "go"), name="first")
        second = cluster.submit_command(["true"], name="second", after=["first"])
        until(first.running)
        assert not second.wait(timeout=1.0)
        assert second.state is JobState.QUEUED
        (tmp_path / "go").touch()
        assert second.result(PATIENCE) == 0
        specs = {spec.id: spec.after for spec in cluster.history.jobs()}
    assert specs == {"first": (), "second": ("first",)}


def test_a_job_waits_for_memory(tmp_path: Path) -> None:
    """Two jobs that each need more than half of the memory run one after the other."""
    need = 2 * memory_here() // 3
    with slaq.Cluster(cores=2) as cluster:
        first = cluster.submit_command(waiting_for(tmp_path / "go"), memory=need)
        until(first.running)
        second = cluster.submit_command(["true"], memory=need)
        assert not second.wait(timeout=1.0)
        assert second.state is JobState.QUEUED
        (tmp_path / "go").touch()
        assert second.result(PATIENCE) == 0


JOBS = """
[[job]]
name = "prepare"
arrival = "0.5s"
command = ["{python}", "-c", "import pathlib, time; time.sleep(0.5); pathlib.Path('data').touch()"]
trains = false
[[job]]
name = "train"
command = ["{python}", "-c", "import pathlib; assert pathlib.Path('data').exists()"]
after = ["prepare"]
"""


def test_jobs_of_a_file_wait_for_others_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run here or submitted to a service, also where a job of that name is there already."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.toml").write_text(JOBS.replace("{python}", sys.executable))
    assert [
        job.options.get("after") for job in read_jobs_file(Path("jobs.toml"), jobs_vocabulary()).jobs
    ] == [
        None,
        ("prepare",),
    ]
    done = CliRunner().invoke(main, ["run", "jobs.toml", "--quiet"])
    assert done.exit_code == 0, done.output
    Path("data").unlink()
    with serving(tmp_path / "home", cores=2) as served:
        words = ["--url", served.unix]
        CliRunner().invoke(main, ["submit", "--name", "prepare", *words, "--", "true"])
        sent = CliRunner().invoke(main, ["submit", "jobs.toml", *words])
        assert sent.stdout.split() == ["prepare-2", "train"], sent.output
        waited = CliRunner().invoke(main, ["wait", "train", "--timeout", "60s", *words])
        assert waited.exit_code == 0, waited.output
        assert served.running.service.store.job("train").spec.after == ("prepare-2",)


def test_a_service_lets_a_job_wait_for_jobs_that_its_owner_sees(open_service: Callable[..., Service]) -> None:
    """The reason says for which; another user's job is as unknown as one that is not there."""
    service = open_service()
    first = service.submit(ANN, Submission(external=True, options={"name": "first"})).id
    second = service.submit(ANN, Submission(external=True, options={"after": [first]})).id
    until(lambda: service.job(ANN, second).reason == "waits for job 'first' to end")
    for who, awaited in ((ANN, "nobody"), (BOB, first)):
        with pytest.raises(UnknownJobError):
            service.submit(who, Submission(external=True, options={"after": [awaited]}))
    service.end(ANN, first, state=JobState.COMPLETED)
    until(lambda: in_state(service, ANN, second, JobState.RUNNING))
