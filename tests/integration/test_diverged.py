"""Laws of jobs whose loss stops being a number: how they end, and what everyone is told of it."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import slaq
from slaq.cli.main import main
from slaq.client import Client, connect
from slaq.core.errors import JobDivergedError
from slaq.core.job import JobState
from slaq.engines.goals import Goal
from slaq.jobs.context import Context
from slaq.jobs.options import COMMAND
from slaq.service.records import Submission
from tests.integration.opening import reports
from tests.integration.serving import external, serving, until

NAN = float("nan")
#: Reports losses, and ends by itself.
REPORTS = "import slaq\nfor loss in {}:\n    slaq.report(float(loss))\n"
#: The same, and never ends.
ENDLESS = REPORTS + "import time\nwhile True:\n    time.sleep(0.1)\n"
#: A program of a service.
PROGRAM = "def train(ctx):\n    for loss in (3.0, 2.0, float('nan')):\n        ctx.report(loss)\n"


def script(code: str, *losses: object) -> list[str]:
    return [sys.executable, "-c", code.format([str(loss) for loss in losses])]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("home"), cores=1) as served, connect(served.unix) as found:
        yield found


def ended(client: Client, job: str) -> dict[str, object]:
    def look() -> dict[str, object] | None:
        view = client.show_job(job)
        return view if JobState(view["state"]).ended else None

    found = until(look)
    assert isinstance(found, dict)
    return found


def test_the_choice_has_a_default_by_group() -> None:
    """A job of a group stops at a loss that is no number unless told otherwise; any other goes on."""
    usual = COMMAND.complete({})
    assert Goal.asked(usual).astray(NAN) == ""
    assert "nan" in Goal.asked({**usual, "group": "search"}).astray(NAN)
    assert "nan" in Goal.asked({**usual, "on_nan": "stop"}).astray(NAN)
    assert Goal.asked({**usual, "on_nan": "go-on", "group": "search"}).astray(NAN) == ""
    assert Goal.asked({**usual, "on_nan": "stop"}).astray(1.0) == ""


def test_a_job_that_ends_without_a_number_has_diverged() -> None:
    """On an embedded cluster its handle says so, and its result raises; one that recovers has completed."""

    def program(ctx: Context) -> None:
        for loss in (2.0, 1.0, NAN):
            ctx.report(loss)

    with slaq.Cluster(cores=1, epoch_seconds=0.1) as cluster:
        jobs = [cluster.submit_command(script(REPORTS, 3, 2, NAN, 1e300)), cluster.submit(program)]
        well = cluster.submit_command(script(REPORTS, 3, NAN, 2))
        cluster.wait()
    for job, best in zip(jobs, (2.0, 1.0), strict=True):
        assert job.state is JobState.DIVERGED
        assert job.done()
        assert not job.cancelled()
        assert job.best_loss == best
        assert f"the last number before it was {best:g}" in job.reason
        with pytest.raises(JobDivergedError, match=f"job {job.id!r} diverged: its last loss is"):
            job.result()
    assert (well.state, well.reason, well.result()) == (JobState.COMPLETED, "", 0)


def test_a_job_may_stop_at_such_a_loss() -> None:
    """With `on_nan="stop"` a job is ended as diverged, whatever runs it; it never comes to its own end."""

    def program(ctx: Context) -> None:
        ctx.report(1.0)
        while True:
            ctx.report(NAN)
            time.sleep(0.01)

    with slaq.Cluster(cores=1, epoch_seconds=0.1) as cluster:
        jobs = [
            cluster.submit_command(script(ENDLESS, 3, NAN), on_nan="stop"),
            cluster.submit(program, on_nan="stop"),
        ]
        cluster.wait()
    assert [job.state for job in jobs] == [JobState.DIVERGED] * 2
    assert jobs[0].reason == "its loss is nan, and the job was to stop at such a loss"


def test_what_a_service_tells_of_a_job_that_diverged(client: Client) -> None:
    """The API, the handle, ls, wait, show, why and events tell that it diverged, and none that it completed."""
    handle = client.submit_command(script(REPORTS, 3, 2, NAN), name="astray")
    view = ended(client, handle.id)
    assert (view["state"], view["best_loss"], view["diverged"]) == ("diverged", 2.0, True)
    assert handle.state is JobState.DIVERGED
    with pytest.raises(JobDivergedError, match="the last number before it was 2"):
        handle.result()

    def told(*words: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, [*words, "--url", client.address], prog_name="slaq")
        assert done.exit_code == status, done.output
        return done.output

    assert "diverged" in told("ls", "--state", "diverged")
    assert "diverged" in told("show", "astray")
    assert "has diverged" in told("why", "astray")
    assert "job 'astray' has diverged: its last loss is nan" in told("wait", "astray", status=4)
    assert "astray" not in told("ls", "--state", "completed", "--json")
    assert json.loads(told("ls", "--state", "diverged", "--json"))[0]["id"] == "astray"
    assert 'slaq_jobs_ended_total{state="diverged"}' in client.metrics()


def test_every_kind_of_job_of_a_service_can_diverge(client: Client, tmp_path: Path) -> None:
    """So do programs, external jobs, and jobs that were to stop at once."""
    (tmp_path / "own.py").write_text(PROGRAM)
    program = client.submit("own.py:train", cwd=str(tmp_path))
    stopped = client.submit_command(script(ENDLESS, 3, NAN), on_nan="stop")
    elsewhere = external(client)
    client.report(elsewhere, reports(3.0, NAN), offset=0)
    client.end(elsewhere, state=JobState.COMPLETED)
    said = external(client, "said")
    client.end(said, state=JobState.DIVERGED, reason="it says so itself")
    early = client.send(Submission(external=True, options={"name": "early", "on_nan": "stop"})).id
    client.report(early, reports(3.0, NAN, 2.0), offset=0)
    for job in (program.id, stopped.id, elsewhere, said, early):
        assert ended(client, job)["state"] == "diverged", job
