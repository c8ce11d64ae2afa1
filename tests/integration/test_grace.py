"""Laws of the time that a job has to end: long enough to save, chosen by its owner, and cut short on request."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from slaq import Cluster
from slaq.cli.main import main
from slaq.client import Client, connect
from slaq.core.job import JobState
from slaq.engines.node.commands.supervisor_client import GRACE
from tests.integration.serving import serving, until

#: Takes longer to save than commands were once given, and tells when it is ready to be told to end.
SAVES = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(3.5)
    pathlib.Path("saved").write_text("all of it")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
while True:
    time.sleep(0.05)
"""
#: Does not end when it is told to.
STUBBORN = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("ready").touch()
while True:
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("home"), cores=1) as served, connect(served.unix) as found:
        yield found


def test_the_usual_grace_is_the_documented_one() -> None:
    """A supervisor gives commands 30 seconds."""
    assert GRACE == 30.0


@pytest.mark.slow
def test_a_job_has_the_time_to_save(tmp_path: Path) -> None:
    """A cancelled command that takes seconds to write a checkpoint has written it when it has ended."""
    with Cluster(1, epoch_seconds=0.1) as cluster:
        job = cluster.submit_command([sys.executable, "-c", SAVES], cwd=tmp_path)
        until((tmp_path / "ready").exists)
        job.cancel()
        until(
            lambda: (
                "was told to end (stopped on request); what is left of it 30 s later is killed" in job.reason
            )
        )
    assert job.state is JobState.CANCELLED
    assert (tmp_path / "saved").read_text() == "all of it"


def test_a_job_may_ask_for_less(tmp_path: Path) -> None:
    """With a grace of 0 a command that does not end is killed, while others would still wait for it."""
    with Cluster(1, epoch_seconds=0.1) as cluster:
        job = cluster.submit_command([sys.executable, "-c", STUBBORN], cwd=tmp_path, grace=0)
        until((tmp_path / "ready").exists)
        job.cancel()
    assert job.state is JobState.CANCELLED


def test_now_is_now(tmp_path: Path) -> None:
    """A job that is cancelled `now` is killed, before its grace began or within it."""
    with Cluster(1, epoch_seconds=0.1) as cluster:
        for first in ([], [False]):
            (tmp_path / "ready").unlink(missing_ok=True)
            job = cluster.submit_command([sys.executable, "-c", STUBBORN], cwd=tmp_path, grace=600)
            until((tmp_path / "ready").exists)
            for _ in first:
                job.cancel()
                until(lambda: "was told to end" in job.reason)  # noqa: B023
            job.cancel(now=True)
            assert job.wait(timeout=60)
            assert job.state is JobState.CANCELLED


def test_a_cluster_that_ends_waits_for_no_grace(tmp_path: Path) -> None:
    """Whatever grace a job asked for, its cluster ends soon."""
    with Cluster(1, epoch_seconds=0.1) as cluster:
        job = cluster.submit_command([sys.executable, "-c", STUBBORN], cwd=tmp_path, grace=600)
        until((tmp_path / "ready").exists)
        cluster._live.engine.close()
        assert job.wait(timeout=60)


def test_a_service_tells_of_the_grace(client: Client, tmp_path: Path) -> None:
    """While a job is in its grace `ls`, `show` and `why` say so, and `slaq cancel --now` ends it."""
    job = client.submit_command(
        [sys.executable, "-c", STUBBORN], cwd=str(tmp_path), grace=600, name="stubborn"
    )
    until((tmp_path / "ready").exists)

    def slaq(*words: str) -> str:
        done = CliRunner().invoke(main, [*words, "--url", client.address], prog_name="slaq")
        assert done.exit_code == 0, done.output
        return " ".join(done.stdout.split())

    slaq("cancel", job.id)
    told = "was told to end (stopped on request); what is left of it 600 s later is killed"
    until(lambda: told in slaq("show", job.id))
    assert told in slaq("why", job.id)
    assert job.running()
    slaq("cancel", "--now", job.id)
    assert job.wait(timeout=60)
    assert job.state is JobState.CANCELLED


def test_a_service_has_a_usual_grace(tmp_path: Path) -> None:
    """The setting holds for jobs that say nothing; what a job says wins."""
    with serving(tmp_path / "home", cores=1, grace=0.0) as served, connect(served.unix) as client:
        job = client.submit_command([sys.executable, "-c", STUBBORN], cwd=str(tmp_path))
        until((tmp_path / "ready").exists)
        job.cancel()
        assert job.wait(timeout=60)
        assert job.state is JobState.CANCELLED
