"""Laws of the numbers that users compare: done, 90% in, and best are the same wherever they are told."""

import json
import math
import re
import sys
import time
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import slaq
from slaq.cli.display.job_columns import COLUMNS, in_short
from slaq.cli.main import main
from slaq.client import Client, connect
from slaq.core.appraisal import Appraiser
from slaq.core.events import LossObserved
from slaq.core.forecast import CurveForecaster
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.progress import LossRange, end_by, seconds_left
from slaq.core.quality import first_and_best
from slaq.core.roster import Roster
from slaq.core.stopping import Aim, reduction_made, still_to_come
from slaq.jobs.context import Context
from slaq.jobs.options import ServiceOptions
from slaq.service.records import Submission
from tests.integration.opening import reports
from tests.integration.serving import external, serving, until

CURVE = [4.0 / (1.0 + n) + 1.0 for n in range(12)]
LOSSES = st.lists(
    st.one_of(st.integers(-1000, 1000).map(float), st.sampled_from([math.nan, math.inf, 1e300])),
    min_size=1,
    max_size=40,
)


def done_in_roster(losses: list[float], target: float | None, total: int | None = None) -> float:
    """Return the share that decisions see, of losses that come one in each epoch."""
    roster = Roster(CurveForecaster())
    roster.admit(JobSpec(id="job", target_loss=target, max_iterations=total), 0.0)
    for n, loss in enumerate(losses):
        seen = Observation(iteration=n, loss=loss, cpu_seconds=1.0, wall_seconds=1.0)
        roster.absorb([LossObserved(job_id="job", at=float(n), observation=seen)])
    return float(Appraiser(epoch_seconds=1.0).appraise(roster, 1.0, float(len(losses))).reduction[0])


@given(LOSSES, st.one_of(st.none(), st.integers(-1000, 1000).map(float)))
def test_a_curve_has_one_share_done(losses: list[float], target: float | None) -> None:
    """What decisions see of a curve is what is measured of it at its end."""
    made = reduction_made(losses, Aim(target=target))
    assert 0.0 <= made <= 1.0
    assert made == pytest.approx(done_in_roster(losses, target), abs=1e-6)


@given(LOSSES, st.integers(1, 80))
def test_a_curve_with_a_known_end_has_one_share_done(losses: list[float], total: int) -> None:
    """With a known end, too, what decisions see is what is measured; at its last loss a job has made it all."""
    left = still_to_come(range(len(losses)), losses, None, total)
    made = reduction_made(losses, Aim(left=left))
    assert made == pytest.approx(done_in_roster(losses, None, total), abs=1e-6)
    known = [loss for loss in losses if abs(loss) < 1e100]
    if left == 0.0 and known:
        assert made == float(min(known) < known[0])


@given(LOSSES)
def test_a_curve_has_one_first_and_one_best_loss(losses: list[float]) -> None:
    """Losses taken one by one and as a whole have the same first and best."""
    seen = LossRange()
    for loss in losses:
        seen.add(loss)
    first, best = first_and_best(np.array(losses))
    assert (seen.first, seen.best) == ((None, None) if math.isnan(first) else (first, best))
    assert seen.diverged == (not abs(losses[-1]) < 1e100)


@given(st.integers(-1000, 1000).map(float), st.integers(0, 1000).map(float), st.floats(0.01, 1.0))
def test_the_end_of_a_curve_follows_from_its_share(first: float, fallen: float, made: float) -> None:
    """Whoever knows the first loss, the best one and the share knows the end."""
    best = first - fallen
    end = end_by(first, best, made)
    assert end <= best
    if fallen:
        assert (first - best) / (first - end) == pytest.approx(made)


def test_soon_is_not_reached() -> None:
    """A moment that has passed counts as soon; only the share itself says that it is reached."""
    assert seconds_left(0.49, 10.0, now=20.0) == 1.0
    assert seconds_left(0.9, None, now=20.0) == 0.0
    assert seconds_left(0.49, None, now=20.0) is None
    assert seconds_left(0.49, 30.0, now=20.0) == 10.0


def test_what_a_job_completed_with_is_its_whole_reduction() -> None:
    """A completed job is done; one that was ended at a share, or misses its target, is done as far as it came."""
    assert reduction_made(CURVE, state=JobState.COMPLETED) == 1.0
    assert reduction_made([1.0, 1.0, 2.0], state=JobState.COMPLETED) == 0.0
    assert reduction_made(CURVE, Aim(stopped_at=0.5), JobState.COMPLETED) == reduction_made(CURVE)
    assert reduction_made(CURVE, Aim(target=0.0), JobState.COMPLETED) == (CURVE[0] - CURVE[-1]) / CURVE[0]


@pytest.mark.parametrize("stop_at", [None, 0.999])
def test_a_job_that_ends_by_itself_is_done_whatever_share_it_was_to_stop_at(
    stop_at: float | None, tmp_path: Path
) -> None:
    """The same curve of a job that completed by itself is the same share, with `stop_at` and without."""
    code = f"for loss in {CURVE}: print('loss', loss)"
    with slaq.Cluster() as cluster:
        job = cluster.submit_command([sys.executable, "-c", code], stop_at=stop_at)
    assert (job.state, len(job.losses), job.reduction) == (JobState.COMPLETED, len(CURVE), 1.0)
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        seen = client.submit_command([sys.executable, "-c", code], stop_at=stop_at)
        assert seen.wait(timeout=60)
        assert client.show_job(seen.id)["reduction"] == 1.0


def test_every_start_of_a_job_is_counted(tmp_path: Path) -> None:
    """What a job finds as its attempt, what is shown as its starts, and what a restarted service knows agree."""
    code = "import os, sys; print(os.environ['SLAQ_ATTEMPT']); sys.exit(os.environ['SLAQ_ATTEMPT'] < '3')"
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        job = client.submit_command([sys.executable, "-c", code], retry=2)
        assert job.wait(timeout=60)
        assert job.log().split() == ["1", "2", "3"]
        assert client.show_job(job.id)["attempts"] == 3
        assert "3 times" in told(client, job.id, "show", job.id)
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        assert client.show_job(job.id)["attempts"] == 3


@pytest.mark.parametrize(
    ("reason", "short"),
    [
        ("", ""),
        ("stopped on request", "stopped on request"),
        ("exit status 3; the end of its log: one", "exit status 3; the end of its log: one"),
        ("exit status 3; the end of its log: one\ntwo\nthree", "exit status 3; the end of its log: three"),
        ("Traceback (most recent call last):\n  ...\nValueError: no\n", "ValueError: no"),
    ],
)
def test_the_short_form_of_a_reason_says_how_a_job_ended(reason: str, short: str) -> None:
    """The exit status stays, and of several lines the last one."""
    assert in_short(reason) == short


def shown(**differs: Any) -> dict[str, Any]:
    """Return a job as the API shows it, as far as columns look at it."""
    usual: dict[str, Any] = {
        "id": "net-1", "state": "running", "reduction": 0.5, "iteration": 5, "trains": True, "deadline": 9.0,
        "submitted_at": 0.0, "ended_at": None, "prospect": {"at_90": None, "chance": None, "out_of_reach": False},
    }  # fmt: skip
    prospect = {name: differs.pop(name) for name in ("at_90", "chance", "out_of_reach") if name in differs}
    return usual | {"prospect": usual["prospect"] | prospect} | differs


@pytest.mark.parametrize(
    ("column", "jobs"),
    [
        ("job", [shown(id="net-2"), shown(id="net-10"), shown(id="net-10-2"), shown(id="other")]),
        ("90% in", [shown(reduction=0.95, at_90=9.0), shown(at_90=3.0), shown(at_90=5.0), shown()]),
        ("90% in", [shown(at_90=3.0), shown(state="completed", ended_at=1.0, reduction=1.0, at_90=2.0)]),
        ("chance", [shown(chance=0.9), shown(chance=0.1), shown(chance=0.5, out_of_reach=True),
                    shown(deadline=None)]),
        ("age", [shown(submitted_at=1.0, ended_at=8.0), shown(submitted_at=7.0), shown(submitted_at=6.0)]),
    ],
)  # fmt: skip
def test_a_column_is_sorted_by_what_it_shows(column: str, jobs: list[dict[str, Any]]) -> None:
    """The best, soonest, likeliest or latest come first, and those that show a dash last."""
    for order in permutations(jobs):
        assert sorted(order, key=COLUMNS[column].key) == jobs


def told(client: Client, job: str, *words: str) -> str:
    """Return what a verb prints of the service that the client uses."""
    done = CliRunner().invoke(main, [*words, "--url", client.address], prog_name="slaq")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("competes", [True, False])
def test_every_way_out_tells_the_same(competes: bool, tmp_path: Path) -> None:
    """The API, the handle, ls, show, why, top, the report and the store tell the same of one job."""
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        options: ServiceOptions = {"max_cores": 1.0} if competes else {}
        job = client.send(Submission(external=True, options=options)).id
        client.report(job, reports(*CURVE), offset=0)
        view = until(lambda: (found := client.show_job(job))["reduction"] > 0 and found)
        made, percent = view["reduction"], f"{100 * view['reduction']:.0f}%"
        assert view["best_loss"] == client.job(job).best_loss == min(CURVE)
        assert client.job(job).reduction == made
        assert (row := COLUMNS["done"].text(view, time.time())) == percent, row
        assert percent in told(client, job, "ls")
        assert f"{percent} of its whole reduction" in told(client, job, "show", job)
        assert json.loads(told(client, job, "ls", "--json"))[0]["reduction"] == made
        explained = client.why(job)
        assert explained["prospects"]["reduction"] == pytest.approx(made)
        assert explained["normalised_loss"] == pytest.approx(1.0 - made)
        (row,) = client.decision()["jobs"]
        assert row["reduction"] == pytest.approx(made)
        # 90% are told as reached where so much is done, and nowhere else.
        shown = COLUMNS["90% in"].text(view, time.time())
        assert (shown == "reached") == (made >= 0.9)
        assert bool(re.search(r"90% reached", told(client, job, "show", job))) == (made >= 0.9)
        client.end(job, state=JobState.COMPLETED)
        ended = until(lambda: (found := client.show_job(job))["state"] == "completed" and found)
        assert (
            ended["reduction"] == client.job(job).reduction == reduction_made(CURVE, state=JobState.COMPLETED)
        )
        assert f"{ended['best_loss']:.4g}" in told(client, job, "show", job)
        summary = json.loads(told(client, job, "report", "--json"))
        assert summary["time_to_90"] is not None
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        assert client.show_job(job)["reduction"] == ended["reduction"]
        assert client.show_job(job)["best_loss"] == ended["best_loss"]


def test_an_embedded_cluster_tells_what_a_service_tells(tmp_path: Path) -> None:
    """The same curve, cancelled at the same loss, is done as far in a service as on an embedded cluster."""

    def train(ctx: Context) -> None:
        for loss in CURVE:
            ctx.report(loss)
        while True:
            time.sleep(0.01)

    with slaq.Cluster(cores=1, epoch_seconds=0.1) as cluster:
        handle = cluster.submit(train)
        until(lambda: len(handle.losses) == len(CURVE))
        handle.cancel()
    with serving(tmp_path / "home", cores=1) as served, connect(served.unix) as client:
        job = external(client)
        client.report(job, reports(*CURVE), offset=0)
        client.end(job, state=JobState.CANCELLED)
        ended = until(lambda: (found := client.show_job(job))["state"] == "cancelled" and found)
    assert handle.reduction == pytest.approx(reduction_made(CURVE))
    assert ended["reduction"] == pytest.approx(handle.reduction)
    assert ended["best_loss"] == handle.best_loss
