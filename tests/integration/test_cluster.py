"""The embedded cluster as its user sees it: submit, watch, wait, stop."""

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from slaq import Cancelled, Cluster, Context, Dataset, Job
from slaq.core.errors import (
    ClusterClosedError,
    DataError,
    DuplicateJobError,
    JobOptionError,
    UnknownNameError,
)
from slaq.core.events import JobEnded, LossObserved
from slaq.core.job import JobState

#: Seconds after which what has not happened never will.
PATIENCE = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(2, epoch_seconds=0.1, directory=tmp_path) as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)


def halving(count: int, seconds: float = 0.0) -> Any:
    """Return a program whose loss halves `count` times, and that keeps how often it did."""

    def program(ctx: Context) -> str:
        loss = 1.0
        ctx.report(loss)
        for done in range(1, count + 1):
            ctx.map(lambda partition: time.sleep(seconds))
            loss /= 2
            ctx.report(loss, done=done)
            ctx.checkpoint(done)
        return "all of it"

    return program


def endless(ctx: Context) -> None:
    while True:
        ctx.map(len)
        ctx.report(1.0)


def test_a_program_trains_as_it_would_inline(cluster: Cluster) -> None:
    """Results come in the order of the partitions, whatever worker made them; sparse and dense alike."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(103, 7)) * (rng.random((103, 7)) < 0.3)
    y = rng.normal(size=103)
    w = np.arange(7.0)

    def program(ctx: Context) -> list[Any]:
        return ctx.map(lambda part, w: (part.index, part.start, part.x @ w, part.y), w)

    for x in (dense, sparse.csr_matrix(dense), sparse.csr_array(dense)):
        data = Dataset(x, y)
        got = cluster.submit(program, data, partitions=5).result(PATIENCE)
        expected = [(part.index, part.start, part.x @ w, part.y) for part in data.cut(5)]
        assert len(got) == 5
        for one, other in zip(got, expected, strict=True):
            assert one[:2] == other[:2]
            np.testing.assert_array_equal(one[2], other[2])
            np.testing.assert_array_equal(one[3], other[3])


def test_tasks_cannot_write_to_data_that_others_share(cluster: Cluster) -> None:
    """A task that tries fails."""

    def program(ctx: Context) -> None:
        def scribble(partition: Any) -> None:
            partition.x[0, 0] = 1.0

        ctx.map(scribble)

    with pytest.raises(ValueError, match="read-only"):
        cluster.submit(program, (np.zeros((4, 2)), None)).result(PATIENCE)


def test_a_handle_tells_what_its_job_reports(cluster: Cluster) -> None:
    """Losses, metrics, costs, forecast and log; iteration 0 is the loss before the first iteration."""

    def program(ctx: Context) -> float:
        print("hello from the driver", flush=True)
        ctx.map(lambda partition: print("hello from a task"))
        halving(8)(ctx)
        return ctx.workers

    job = cluster.submit(program, (np.zeros((4, 2)), None), name="a.b-_")
    assert 0 < job.result(PATIENCE) <= 2
    assert job.losses == [0.5**done for done in range(9)]
    assert [one.iteration for one in job] == list(range(9))
    assert all(one.cpu_seconds > 0 and one.wall_seconds > 0 for one in job.observations)
    assert [dict(one) for one in job.metrics] == [{}] + [{"done": done} for done in range(1, 9)]
    assert job.forecast([1, 2]).mean[0] < job.losses[-1]
    assert job.reduction > 0.9
    assert sorted(set(job.log().splitlines())) == ["hello from a task", "hello from the driver"]
    assert (job.directory / "checkpoint").exists()
    assert job.directory.parent == cluster.directory_of("other").parent
    assert (job.id, job.name, job.state, job.cores) == ("a.b-_", "a.b-_", JobState.COMPLETED, 0)
    assert job.done()
    assert not job.running()
    assert job.exception() is None


def test_lines_that_several_tasks_print_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python is told not to buffer, as in many containers."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")

    def printing(_: Any) -> None:
        for _ in range(200):
            print("one line")

    with Cluster(cores=2, directory=tmp_path) as cluster:
        job = cluster.submit(lambda ctx: ctx.map(printing), (np.zeros((8, 1)), None), partitions=8)
        job.result(PATIENCE)
        lines = job.log().splitlines()
    assert len(lines) == 1600
    assert set(lines) == {"one line"}


def test_observations_can_be_followed_live(cluster: Cluster) -> None:
    """Iterating over a job waits for what comes next, and ends with the job."""
    job = cluster.submit(endless, name="endless")
    followed = []
    for observation in job:
        followed.append(observation.iteration)
        if len(followed) == 5:
            assert job.running()
            job.cancel()
    assert followed == [one.iteration for one in job.observations]
    assert len(followed) >= 5


def test_done_callbacks_are_called_once_with_the_job(cluster: Cluster) -> None:
    """Added before or after the end, and whatever another one raises."""
    called: list[Job] = []
    event = threading.Event()

    def faulty(job: Job) -> None:
        called.append(job)
        raise RuntimeError("a callback failed")

    job = cluster.submit(halving(3, 0.01))
    job.add_done_callback(faulty)
    job.add_done_callback(called.append)
    job.result(PATIENCE)
    eventually(lambda: len(called) == 2)
    job.add_done_callback(lambda job: event.set())
    assert event.wait(PATIENCE)
    assert called == [job, job]


def test_a_result_is_waited_for_no_longer_than_asked(cluster: Cluster) -> None:
    """Then TimeoutError, as of a future; the job goes on."""
    job = cluster.submit(endless)
    with pytest.raises(TimeoutError):
        job.result(0.01)
    assert not job.wait(timeout=0.01)
    assert not cluster.wait(0.01)
    assert not job.done()


def test_jobs_share_the_capacity_by_the_scheduler_s_decisions(cluster: Cluster) -> None:
    """Every epoch hands out at most the capacity, and a job at most its maximum."""
    jobs = [cluster.submit(endless) for _ in range(3)]
    limited = cluster.submit(endless, max_cores=0.25, name="limited")
    eventually(lambda: limited.cores > 0 and all(job.cores > 0 for job in jobs))
    assert limited.cores <= 0.25
    assert cluster.jobs() == [*jobs, limited]
    assert [job.name for job in jobs] == ["endless-1", "endless-2", "endless-3"]
    decisions = cluster.history.decisions()
    assert decisions
    assert all(decision.cores.sum() <= cluster.capacity for decision in decisions)


def test_a_job_without_data_can_use_one_core(cluster: Cluster) -> None:
    """It has one partition, hence one task at a time."""
    job = cluster.submit(endless)
    eventually(lambda: job.cores > 0)
    assert job.cores <= 1


def test_max_iterations_ends_a_job_as_completed_with_what_it_kept(cluster: Cluster) -> None:
    """Exactly so many iterations are reported, and the last of them could still be kept."""
    job = cluster.submit(halving(50), max_iterations=7)
    assert job.result(PATIENCE) == 7
    assert len(job.losses) == 8
    assert job.state is JobState.COMPLETED
    assert "7 iterations" in job.reason


def test_a_program_that_catches_its_end_returns_what_it_likes(cluster: Cluster) -> None:
    """What it returns is the result, before what it kept."""

    def program(ctx: Context) -> str:
        try:
            halving(50)(ctx)
        except Cancelled as end:
            return f"ended: {end}"
        return "never"

    assert cluster.submit(program, max_iterations=2).result(PATIENCE) == "ended: it has done its 2 iterations"


def test_stop_at_a_share_of_the_way_to_the_target(cluster: Cluster) -> None:
    """With a target it is exact: the first loss at or below the share ends the job."""
    job = cluster.submit(halving(50), target_loss=0.0, stop_at=0.9)
    assert job.result(PATIENCE) == 4
    assert job.losses[-1] == 0.5**4
    assert job.reduction == pytest.approx(1 - 0.5**4)


def test_stop_at_a_share_of_the_forecast_reduction(cluster: Cluster) -> None:
    """Without one it goes by where the curve is forecast to end."""
    job = cluster.submit(halving(2000, 0.02), stop_at=0.9)
    assert job.wait(reduction=0.5, timeout=PATIENCE)
    assert job.wait(timeout=PATIENCE)
    assert job.state is JobState.COMPLETED
    assert "forecast reduction" in job.reason
    assert len(job.losses) < 2000
    assert job.reduction >= 0.9


def test_a_time_budget_ends_a_job_as_completed(cluster: Cluster) -> None:
    """Even one that is deep in a task."""
    job = cluster.submit(halving(50, 3600), time_budget=0.3)
    assert job.result(PATIENCE) is None
    assert job.state is JobState.COMPLETED
    assert job.losses == [1.0]


def test_the_same_data_is_in_memory_once(cluster: Cluster) -> None:
    """Jobs given the same arrays map the same file; once these were written to, another."""

    def program(ctx: Context) -> Any:
        def inode(partition: Any) -> Any:
            maps = Path("/proc/self/maps").read_text().splitlines()
            mine = {line.split()[4] for line in maps if "slaq-data" in line}
            return sorted(mine), float(partition.x[0, 0])

        ctx.report(1.0)
        first = ctx.map(inode)[0]
        ctx.map(lambda partition: time.sleep(0.5))
        return first

    if sys.platform != "linux":
        pytest.skip("only Linux tells what is mapped")
    x = np.ones((10, 2))
    one = cluster.submit(program, (x, None), partitions=1)
    two = cluster.submit(program, (x, None), partitions=1)
    x[0, 0] = 5.0
    three = cluster.submit(program, (x, None), partitions=1)
    seen = [job.result(PATIENCE) for job in (one, two, three)]
    assert [first for _, first in seen] == [1.0, 1.0, 5.0]
    assert len({inode for inodes, _ in seen for inode in inodes}) == 2


def test_what_cannot_be_submitted_leaves_no_job_behind(cluster: Cluster) -> None:
    """A name twice, data that cannot be shared, an unknown policy, a cluster that was shut down."""
    cluster.submit(halving(1), name="once")
    with pytest.raises(DuplicateJobError):
        cluster.submit(halving(1), name="once")
    with pytest.raises(DataError, match="column 0 of the features holds <object object"):
        cluster.submit(halving(1), (np.array([[object()]]), None))
    assert len(cluster.jobs()) == 1
    with pytest.raises(UnknownNameError):
        Cluster(1, policy="best")
    with pytest.raises(JobOptionError, match="cores is 0; give a whole number from 1 to 1,000,000"):
        Cluster(0)
    cluster.shutdown()
    with pytest.raises(ClusterClosedError):
        cluster.submit(halving(1))
    assert cluster.jobs()[0].result() == "all of it"


def test_a_block_that_raises_cancels_its_jobs(tmp_path: Path) -> None:
    """And one that does not waits for them."""
    cluster = Cluster(1, epoch_seconds=0.1, directory=tmp_path)
    job = cluster.submit(endless)
    with pytest.raises(ZeroDivisionError), cluster:
        raise ZeroDivisionError
    assert job.cancelled()
    with pytest.raises(CancelledError):
        job.result(PATIENCE)
    with Cluster(1, epoch_seconds=0.1, directory=tmp_path) as cluster:
        job = cluster.submit(halving(5))
    assert job.result(0) == "all of it"


def test_shutdown_without_waiting_lets_the_jobs_end(tmp_path: Path) -> None:
    """It returns at once; the jobs still complete."""
    cluster = Cluster(1, epoch_seconds=0.1, directory=tmp_path)
    job = cluster.submit(halving(5, 0.02))
    cluster.shutdown(wait=False)
    assert job.result(PATIENCE) == "all of it"


def test_history_holds_what_was_reported(cluster: Cluster) -> None:
    """The store has every loss and the end, for reports."""
    job = cluster.submit(halving(4))
    job.result(PATIENCE)
    cluster.shutdown()
    events = cluster.history.events(job.id)
    assert [event.observation.loss for event in events if isinstance(event, LossObserved)] == job.losses
    assert isinstance(events[-1], JobEnded)


def test_a_plain_script_needs_no_main_guard(tmp_path: Path) -> None:
    """Functions and classes of the script itself travel to the processes and back."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            import numpy as np
            import slaq

            SCALE = 2.0

            @dataclass
            class Model:
                total: float

            def scaled(partition, shift):
                return Model(SCALE * float(partition.x.sum()) + shift)

            def train(ctx):
                ctx.report(1.0)
                return Model(sum(part.total for part in ctx.map(scaled, 1.0)))

            with slaq.Cluster(2) as cluster:
                job = cluster.submit(train, (np.ones((4, 2)), None), partitions=2)
            assert isinstance(job.result(), Model)
            print(job.result())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert done.stdout == "Model(total=18.0)\n"
    assert done.stderr == ""
