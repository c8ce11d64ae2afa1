"""A job says how many iterations it makes in all, and numbers them itself: seen the same way from every engine."""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slaq
from slaq import Cluster, reporting
from slaq.algorithms import KMeans
from slaq.core.errors import JobOptionError
from slaq.core.events import EndForeseen, LossObserved
from slaq.core.job import JobSpec, Observation
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.node.commands.unread import Allowance, unread
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.reports import LARGEST_ITERATION, NewTotal, Reading, as_json, item_from, parse_report
from slaq.jobs import variables
from slaq.jobs.inline import InlineContext
from slaq.service.records import Submission
from slaq.service.service import Service
from slaq.stores.sqlite import SqliteStore
from tests.integration.opening import ME, TRAINS, iterated, python
from tests.integration.serving import until

PATIENCE = 60.0
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
#: Numbers as scripts give them: gaps, a bar that is drawn again, and a later change of mind about the end.
SAYS = [(3.0, 0, 30), (2.0, 10, 30), (9.0, 10, 30), (9.0, 4, 30), (1.0, 20, 20)]
KEPT = [(0, 3.0), (10, 2.0), (20, 1.0)]


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setenv(variables.REPORTS, str(path))
    monkeypatch.setattr(reporting, "_pen", None)
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(1, policy="fair", epoch_seconds=0.1, directory=tmp_path / "cluster") as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def seen(job: Any) -> list[tuple[int, float]]:
    return [(one.iteration, one.loss) for one in job.observations]


def test_a_total_is_written_once_before_the_loss(reports: Path) -> None:
    """The line with the total stands before the first loss, and again only where the total has changed."""
    for loss, step, total in SAYS:
        slaq.report(loss, step=step, total=total)
    said = [json.loads(line) for line in reports.read_text().splitlines()]
    assert [(one.get("total"), one.get("step")) for one in said] == [
        *((30, None), (None, 0), (None, 10), (None, 10), (None, 4)),
        *((20, None), (None, 20)),
    ]


@pytest.mark.parametrize("bad", ["x", -1, 0.5, float("nan"), float("inf")])
def test_numbers_that_are_none_never_raise(
    reports: Path, capsys: pytest.CaptureFixture[str], bad: Any
) -> None:
    """A bad total costs nothing; a loss of which nobody can say which iteration it is of is left out, and noted."""
    slaq.report(1.0, total=bad)
    slaq.report(2.0, step=bad)
    (said,) = (json.loads(line) for line in reports.read_text().splitlines())
    assert said["loss"] == 1.0
    assert "slaq: a report was lost" in capsys.readouterr().err


@given(
    st.floats(allow_nan=False),
    st.integers(0, LARGEST_ITERATION) | st.none(),
    st.integers(1, LARGEST_ITERATION),
)
def test_items_pass_between_processes_unchanged(loss: float, step: int | None, total: int) -> None:
    """Through JSON and back."""
    for item in (Reading(loss=loss, iteration=step), NewTotal(iterations=total, at=1.5)):
        assert item_from(json.loads(json.dumps(as_json(item)))) == item


@pytest.mark.parametrize("total", [0, -1, 1.5, 2**54, "3", None, True])
def test_a_total_that_makes_no_sense_is_no_report(total: object) -> None:
    """Only whole numbers from 1 to 2**53 count."""
    assert parse_report(json.dumps({"total": total, "time": 1.5, "pid": 1}).encode()) is None


@pytest.mark.parametrize("kind", ["program", "command"])
def test_jobs_of_a_cluster_number_their_iterations(cluster: Cluster, kind: str) -> None:
    """Numbers may be left out, redraws are ignored, and the last total holds."""
    if kind == "program":

        def program(ctx: slaq.Context) -> None:
            for loss, step, total in SAYS:
                ctx.report(loss, step=step, total=total)

        job = cluster.submit(program)
    else:
        code = f"import slaq\nfor loss, step, total in {SAYS}: slaq.report(loss, step=step, total=total)"
        job = cluster.submit_command([sys.executable, "-c", code], env=ENV)
    assert job.wait(timeout=PATIENCE)
    assert (seen(job), job.total) == (KEPT, 20)


def test_algorithms_of_slaq_say_when_they_end(cluster: Cluster) -> None:
    """Their number of iterations is the known end."""
    x = np.random.default_rng(0).normal(size=(40, 3))
    job = cluster.submit(KMeans(k=2, iterations=7, tolerance=0.0), x)
    assert job.wait(timeout=PATIENCE)
    assert job.total == 7


def test_a_loss_counts_before_a_total() -> None:
    """A line of a script's own that has both is a loss."""
    line = b'{"total": 5, "loss": 0.5, "time": 1.5, "pid": 1}'
    said = parse_report(line)
    assert said is not None
    assert isinstance(said.item, Reading)


def test_the_limit_of_the_owner_is_an_end_too(cluster: Cluster) -> None:
    """The earlier of the two ends counts, and the job ends there though its numbers leave some out."""
    code = (
        "import slaq, time\nfor k in range(100): slaq.report(1.0, step=10 * k, total=1000); time.sleep(0.01)"
    )
    job = cluster.submit_command([sys.executable, "-c", code], env=ENV, max_iterations=45)
    assert job.total == 45
    assert job.wait(timeout=PATIENCE)
    assert job.total == 45
    assert 50 in [one.iteration for one in job.observations]
    assert job.reason == "it has done its 45 iterations"


def test_a_program_learns_of_a_number_that_is_none() -> None:
    """The error names the option and what to give instead."""
    context = InlineContext()
    for said in ({"step": -1}, {"step": 0.5}, {"total": 2**40}):
        with pytest.raises(JobOptionError, match="a whole number from 0"):
            context.report(1.0, **said)
    for loss, step, total in SAYS:
        context.report(loss, step=step, total=total)
    assert (list(zip(context.iterations, context.losses, strict=True)), context.total) == (KEPT, 20)


def test_jobs_that_run_elsewhere_do_as_well() -> None:
    """Redraws cost nothing: the time of an iteration counts from the report before it that counted."""
    journal = Journal(WallClock())
    runner = ExternalRunner(journal)
    runner.prepare("job", ExternalJob())
    runner.start("job")
    items = [
        item
        for place, (loss, step, total) in enumerate(SAYS)
        for item in (
            NewTotal(iterations=total, at=float(place)),
            Reading(loss=loss, iteration=step, at=float(place)),
        )
    ]
    runner.report("job", items, 100)
    events = [entry.event for entry in journal.take()]
    losses = [event.observation for event in events if isinstance(event, LossObserved)]
    assert [(one.iteration, one.loss) for one in losses] == KEPT
    assert [one.wall_seconds for one in losses] == [0.0, 1.0, 3.0]
    assert [event.iterations for event in events if isinstance(event, EndForeseen)] == [30, 20]


def test_reports_after_a_crash_are_found_by_their_numbers(tmp_path: Path) -> None:
    """What stands after the last iteration known is unread, however many numbers were left out."""
    path = tmp_path / "reports.jsonl"
    path.write_text(
        "".join(
            json.dumps({"iteration": count, "loss": 1.0, "step": 100 * count, "time": 1.5, "pid": 7}) + "\n"
            for count in range(10)
        )
    )
    found = unread(path, start=0, known=601, last=600, allowance=Allowance())
    assert [one.iteration for one in found] == [700, 800, 900]


@given(
    steps=st.lists(st.integers(0, 60), unique=True, min_size=1).map(sorted),
    every=st.integers(1, 20),
    after=st.integers(-1, 60),
)
def test_a_thinned_curve_has_a_loss_of_every_stretch(steps: list[int], every: int, after: int) -> None:
    """Of every `n` iterations the first one with a loss is there, and the last of all, whichever are left out."""
    with tempfile.TemporaryDirectory() as home, SqliteStore(Path(home) / "slaq.db") as store:
        store.submit(JobSpec(id="job"))
        store.append(
            [
                LossObserved(job_id="job", at=0.0, observation=Observation(iteration=k, loss=1.0))
                for k in steps
            ]
        )
        found = store.observations("job", every_nth=every, after=after).iteration.tolist()
    firsts = {min(k for k in steps if k // every == stretch) for stretch in {k // every for k in steps}}
    assert found == sorted(k for k in firsts | {steps[-1]} if k > after)


def test_the_service_shows_how_far_a_job_is(open_service: Callable[..., Service]) -> None:
    """The total is in the job's view, after a restart of the service and after the job's end."""
    service = open_service(cores=1)
    code = TRAINS.replace("slaq.report(1 / (1 + i))", "slaq.report(1 / (1 + i), step=3 * i, total=5000)")
    job = service.submit(ME, python(code, max_iterations=6000))
    capped = service.submit(ME, Submission(external=True, options={"max_iterations": 7}))
    view = until(iterated(service, job.id, 6))
    assert view is not None
    assert (view.total, view.iteration % 3) == (5000, 0)
    assert service.job(ME, capped.id).total == 7
    service = open_service(cores=1)
    assert service.job(ME, job.id).total == 5000
    later = until(iterated(service, job.id, view.iteration + 6))
    assert later is not None
    service.cancel(ME, job.id)
    until(lambda: service.job(ME, job.id).state.ended)
    assert service.job(ME, job.id).total == 5000
