"""Laws of jobs that wait for other jobs, or for memory, wherever they are submitted."""

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from click.testing import CliRunner

import slaq
from slaq.bootstrap import jobs_vocabulary
from slaq.cli.main import main
from slaq.config import read_jobs_file
from slaq.core.errors import UnknownJobError
from slaq.core.job import JobState
from slaq.engines.memory import memory_here
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
        until(lambda: second.reason == "waits for job 'first' to complete")
        assert (second.state, first.reason) == (JobState.QUEUED, "")
        (tmp_path / "go").touch()
        assert second.result(PATIENCE) == 0
        assert second.reason == ""
        specs = {spec.id: spec.after for spec in cluster.history.jobs()}
    assert specs == {"first": (), "second": ("first",)}


def test_a_job_starts_after_others_have_ended_well(tmp_path: Path) -> None:
    """With `after` it is cancelled if one of them fails, and what waits for it too; with `after_any` it starts."""
    with slaq.Cluster(cores=2, epoch_seconds=0.1) as cluster:
        cluster.submit_command(["false"], name="ill")
        never = cluster.submit_command(["touch", str(tmp_path / "made")], name="never", after=["ill"])
        nor_this = cluster.submit_command(["true"], after=["never"])
        any_way = cluster.submit_command(["true"], after_any=["ill", "never"])
        assert any_way.result(PATIENCE) == 0
        with pytest.raises(CancelledError):
            nor_this.result(PATIENCE)
    assert (never.state, never.reason) == (
        JobState.CANCELLED,
        "was to start after job 'ill' completed, which has failed",
    )
    assert nor_this.reason == "was to start after job 'never' completed, which has been cancelled"
    assert not (tmp_path / "made").exists()


def test_a_job_waits_for_memory(tmp_path: Path) -> None:
    """Two jobs that each need more than half of the memory run one after the other."""
    need = 2 * memory_here() // 3
    with slaq.Cluster(cores=2) as cluster:
        first = cluster.submit_command(waiting_for(tmp_path / "go"), memory=need)
        until(first.running)
        second = cluster.submit_command(["true"], memory=need)
        until(lambda: second.reason.startswith("waits for memory: it needs "))
        assert second.state is JobState.QUEUED
        (tmp_path / "go").touch()
        assert second.result(PATIENCE) == 0


def test_a_job_waits_for_its_arrival() -> None:
    """It says until when, starts no earlier, and can be cancelled before it starts."""
    with slaq.Cluster(cores=2, epoch_seconds=0.1) as cluster:
        later = cluster.submit_command(["true"], arrival=3600.0)
        soon = cluster.submit_command(["true"], arrival=0.5)
        until(lambda: re.fullmatch(r"is not due before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", later.reason))
        assert soon.result(PATIENCE) == 0
        later.cancel()
        assert later.wait(timeout=PATIENCE)
        assert (later.state, later.reason) == (JobState.CANCELLED, "")
        specs = {spec.id: spec for spec in cluster.history.jobs()}
        began = min(decision.time for decision in cluster.history.decisions() if soon.id in decision.ids)
        assert began >= specs[soon.id].arrival


#: Of the first job, and of one that waits for it.
HELD = """
[cluster]
cores = 1
epoch_seconds = 0.1
[[job]]
name = "first"
command = ["{python}", "-c", "{waits}", "go"]
[[job]]
name = "second"
command = "true"
after = ["first"]
[[job]]
name = "large"
memory = {memory}
command = ["{python}", "-c", "{waits}", "go"]
[[job]]
name = "larger"
memory = {memory}
command = ["{python}", "-c", "import pathlib; pathlib.Path('done').touch()"]
"""


def test_a_batch_shows_why_a_job_waits(tmp_path: Path) -> None:
    """`slaq run` tells each reason on stderr as it comes."""
    words = {"python": sys.executable, "waits": WAITS.replace("\n", "\\n"), "memory": 2 * memory_here() // 3}
    text = HELD
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", str(word))
    (tmp_path / "jobs.toml").write_text(text)
    command = [sys.executable, "-m", "slaq", "run", "jobs.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        told: list[str] = []
        while not (any("second: " in line for line in told) and any("larger: " in line for line in told)):
            told.append(run.stderr.readline())
            assert told[-1], told
        (tmp_path / "go").touch()
        run.stderr.read()
    assert run.returncode == 0
    assert any(line.endswith(" s  second: waits for job 'first' to complete\n") for line in told)
    assert any(" s  larger: waits for memory: it needs " in line for line in told)


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
    until(lambda: service.job(ANN, second).reason == "waits for job 'first' to complete")
    for who, awaited in ((ANN, "nobody"), (BOB, first)):
        with pytest.raises(UnknownJobError):
            service.submit(who, Submission(external=True, options={"after": [awaited]}))
    never = service.submit(ANN, Submission(external=True, options={"after": [second]})).id
    service.end(ANN, first, state=JobState.COMPLETED)
    until(lambda: in_state(service, ANN, second, JobState.RUNNING))
    service.end(ANN, second, state=JobState.DIVERGED)
    until(lambda: in_state(service, ANN, never, JobState.CANCELLED))
    told = f"was to start after job {second!r} completed, which has diverged"
    assert service.job(ANN, never).reason == told
    late = service.submit(ANN, Submission(external=True, options={"after": [second]})).id
    until(lambda: in_state(service, ANN, late, JobState.CANCELLED))
    service = open_service()
    assert service.job(ANN, never).reason == told
