"""Whatever goes wrong in a job stays in that job, and nothing outlives the cluster: with real processes."""

import contextlib
import functools
import math
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from slaq import Cancelled, Cluster, Context, Dataset
from slaq.core.errors import JobFailedError, TaskError
from slaq.core.events import JobDelayed, JobEnded
from slaq.core.job import JobState
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.programs.runner import ProgramRunner
from slaq.engines.node.site import Site
from slaq.engines.node.wire import HEAD, Head, encode
from slaq.engines.packing import Buffer

#: Seconds after which what has not happened never will.
PATIENCE = 60.0
X = np.arange(12.0).reshape(6, 2)
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, or enforces, this")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(2, epoch_seconds=0.2, directory=tmp_path / "cluster", grace_seconds=0.5) as cluster:
        yield cluster
        cluster.shutdown(cancel=True)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Return whether a process is no more, or is dead and only not reaped by whoever has adopted it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def row_sums(ctx: Context) -> Any:
    """A small program that other jobs must leave unharmed."""
    ctx.report(1.0)
    total = sum(ctx.map(lambda partition: partition.x.sum()))
    ctx.report(0.5)
    return total


def assert_unharmed(cluster: Cluster) -> None:
    assert cluster.submit(row_sums, (X, None)).result(PATIENCE) == X.sum()


def test_a_worker_killed_in_a_task_changes_no_result(cluster: Cluster, tmp_path: Path) -> None:
    """Its task runs again on another worker."""
    marker = tmp_path / "killed"

    def program(ctx: Context) -> list[float]:
        def task(partition: Any) -> float:
            if partition.index == 2 and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return float(partition.x.sum())

        return ctx.map(task)

    job = cluster.submit(program, (X, None), partitions=6)
    assert job.result(PATIENCE) == X.sum(axis=1).tolist()
    assert marker.exists()


def test_a_task_that_kills_every_worker_fails_its_job_only(cluster: Cluster) -> None:
    """After a few attempts the job fails and says why."""

    def program(ctx: Context) -> None:
        ctx.map(lambda partition: os.kill(os.getpid(), signal.SIGKILL))

    job = cluster.submit(program, (X, None), partitions=2)
    error = job.exception(PATIENCE)
    assert isinstance(error, TaskError)
    assert "SIGKILL" in str(error)
    assert job.state is JobState.FAILED
    assert_unharmed(cluster)


def test_a_killed_driver_goes_on_from_its_checkpoint(cluster: Cluster) -> None:
    """The job completes, and no iteration is told twice."""

    def program(ctx: Context) -> tuple[Any, int]:
        for done in range(ctx.restored or 0, 6):
            ctx.map(len)
            ctx.report(1.0 / (done + 1))
            if done == 3 and ctx.restored is None:
                os.kill(os.getpid(), signal.SIGKILL)
            ctx.checkpoint(done + 1)
        return ctx.restored, os.getpid()

    job = cluster.submit(program, (X, None))
    assert job.result(PATIENCE)[0] == 3
    assert [one.iteration for one in job.observations] == list(range(6))
    assert job.losses == [1.0 / (done + 1) for done in range(6)]


def test_a_driver_that_keeps_dying_fails_with_the_end_of_its_log(cluster: Cluster, tmp_path: Path) -> None:
    """It is started `retry` times again, no more."""
    starts = tmp_path / "starts"

    def program(ctx: Context) -> None:
        with starts.open("a") as file:
            file.write("x")
        print("the last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    job = cluster.submit(program, retry=1)
    error = job.exception(PATIENCE)
    assert isinstance(error, JobFailedError)
    assert "SIGKILL" in error.reason
    assert "the last words" in error.reason
    assert starts.read_text() == "xx"
    assert_unharmed(cluster)


def test_what_a_program_raises_is_its_owners(cluster: Cluster) -> None:
    """The exception comes back, with the traceback it had; the log has it too."""

    def program(ctx: Context) -> None:
        def deep_inside() -> None:
            raise ValueError("no such luck")

        deep_inside()

    job = cluster.submit(program)
    error = job.exception(PATIENCE)
    assert isinstance(error, ValueError)
    assert "deep_inside" in str(error.__cause__)
    assert "deep_inside" in job.log()
    assert "no such luck" in job.reason
    assert job.state is JobState.FAILED
    with pytest.raises(ValueError, match="no such luck"):
        job.result()


def test_what_a_task_raises_is_raised_at_the_map(cluster: Cluster) -> None:
    """The program may catch it and go on; its cause is the traceback of the task."""

    def program(ctx: Context) -> tuple[str, str, list[int]]:
        def faulty(partition: Any) -> None:
            raise KeyError(partition.index)

        try:
            ctx.map(faulty)
        except KeyError as error:
            return str(error), str(error.__cause__), ctx.map(len)
        raise AssertionError

    message, cause, lengths = cluster.submit(program, (X, None), partitions=2).result(PATIENCE)
    assert message in ("0", "1")
    assert "in faulty" in cause
    assert lengths == [3, 3]


def test_an_exception_that_cannot_be_sent_comes_as_a_task_error(cluster: Cluster) -> None:
    """Its traceback is in the text."""

    def program(ctx: Context) -> None:
        class OddError(Exception):
            def __init__(self, one: int, two: int) -> None:
                super().__init__("odd")

        def faulty(partition: Any) -> None:
            raise OddError(1, 2)

        ctx.map(faulty)

    error = cluster.submit(program).exception(PATIENCE)
    assert isinstance(error, TaskError)
    assert "OddError" in str(error)


@pytest.mark.parametrize("where", ["task", "program"])
def test_a_result_that_cannot_be_sent_is_an_error(cluster: Cluster, where: str) -> None:
    """It names what could not be pickled."""

    def program(ctx: Context) -> object:
        if where == "task":
            ctx.map(lambda partition: sys._getframe())
        return sys._getframe()

    with pytest.raises(TypeError, match="frame"):
        cluster.submit(program).result(PATIENCE)


def test_a_task_that_hangs_is_ended_by_its_timeout(cluster: Cluster) -> None:
    """`task_timeout` kills its worker and raises at the map."""

    def program(ctx: Context) -> None:
        ctx.map(lambda partition: time.sleep(3600))

    error = cluster.submit(program, task_timeout=0.2).exception(PATIENCE)
    assert isinstance(error, TaskError)
    assert "task_timeout" in str(error)
    assert_unharmed(cluster)


@pytest.mark.parametrize("where", ["task", "program", "stubborn program"])
def test_a_job_that_hangs_can_be_cancelled(cluster: Cluster, where: str) -> None:
    """A driver that does not listen is killed, and a worker is freed; both cores are there for others."""

    def program(ctx: Context) -> None:
        ctx.report(1.0)
        while where == "stubborn program":
            with contextlib.suppress(Cancelled):
                ctx.report(1.0)
        if where == "task":
            ctx.map(lambda partition: time.sleep(3600))
        time.sleep(3600)

    job = cluster.submit(program, (X, None), partitions=2)
    eventually(lambda: bool(job.losses))
    assert job.cancel()
    with pytest.raises(CancelledError):
        job.result(PATIENCE)
    assert job.cancelled()
    assert not job.cancel()
    assert_unharmed(cluster)


def test_a_program_cannot_swallow_its_cancellation_by_accident(cluster: Cluster) -> None:
    """`except Exception` does not catch it, and `finally` runs."""

    def program(ctx: Context) -> None:
        try:
            while True:
                try:
                    ctx.report(1.0)
                    ctx.map(len)
                except Exception as error:
                    print("caught", error)
        finally:
            print("cleaned up")

    job = cluster.submit(program)
    eventually(lambda: bool(job.losses))
    job.cancel()
    assert job.wait(timeout=PATIENCE)
    assert job.cancelled()
    eventually(lambda: job.log() == "cleaned up\n")


def test_a_job_diverges_where_its_last_loss_is_no_number(cluster: Cluster) -> None:
    """A job goes on after such losses, and has diverged where the last one is such a loss."""

    def recovers(ctx: Context) -> str:
        for loss in (1.0, math.nan, math.inf, 0.5):
            ctx.report(loss)
        return "done"

    def breaks_off(ctx: Context) -> None:
        ctx.report(1.0)
        ctx.report(math.nan)

    job, broken = cluster.submit(recovers), cluster.submit(breaks_off)
    assert job.result(PATIENCE) == "done"
    assert [math.isfinite(loss) for loss in job.losses] == [True, False, False, True]
    assert not job.diverged
    assert broken.wait(timeout=PATIENCE) or broken.done()
    assert (broken.state, broken.diverged) == (JobState.DIVERGED, True)


def test_a_program_that_never_reports_gets_its_share(cluster: Cluster) -> None:
    """It ends by itself beside one that reports all the time."""

    def silent(ctx: Context) -> int:
        return sum(sum(ctx.map(len)) for _ in range(50))

    def loud(ctx: Context) -> None:
        while True:
            ctx.map(len)
            ctx.report(1.0)

    other = cluster.submit(loud, (X, None))
    assert cluster.submit(silent, (X, None)).result(PATIENCE) == 50 * len(X)
    other.cancel()


@linux_only
@pytest.mark.parametrize("where", ["task", "program"])
def test_a_job_that_fills_memory_fails_alone(cluster: Cluster, where: str) -> None:
    """`memory` turns it into a MemoryError; a job within the limit is not bothered."""

    def program(ctx: Context) -> int:
        def hog(partition: Any) -> int:
            return len(bytearray(200_000_000))

        assert ctx.map(lambda partition: len(bytearray(10_000_000))) == [10_000_000] * 2
        return sum(ctx.map(hog)) if where == "task" else hog(None)

    job = cluster.submit(program, (X, None), partitions=2, memory=100_000_000)
    assert isinstance(job.exception(PATIENCE), MemoryError)
    assert cluster.submit(program, (X, None), partitions=2).result(PATIENCE) >= 200_000_000


@linux_only
def test_what_a_program_leaves_running_is_killed_with_it(cluster: Cluster) -> None:
    """Even a process in a session of its own that ignores signals."""

    def program(ctx: Context) -> int:
        script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        return subprocess.Popen([sys.executable, "-c", script], start_new_session=True).pid

    pid = cluster.submit(program).result(PATIENCE)
    eventually(lambda: is_gone(pid))


def counts(ctx: Context, iterations: int, every: int | None, started: Path) -> tuple[int, list[int]]:
    """Count and report, with a checkpoint now and then; note the fork server of each start."""
    with started.open("a") as file:
        file.write(f"{os.getppid()} {ctx.restored or 0}\n")
    done = []
    for number in range(ctx.restored or 0, iterations):
        done += ctx.map(len)
        ctx.report(1.0 / (1 + number))
        if every is not None and number % every == 0:
            ctx.checkpoint(number + 1)
        time.sleep(0.02)
    return ctx.restored or 0, done


def test_the_loss_of_the_fork_server_is_no_jobs_failure(cluster: Cluster, tmp_path: Path) -> None:
    """Programs go on from their checkpoints or begin again, even without restarts; each loss is told once."""
    jobs = {}
    for name, every in (("often", 1), ("seldom", 10), ("never", None)):
        started = tmp_path / name
        work = functools.partial(counts, iterations=40, every=every, started=started)
        jobs[name] = cluster.submit(work, (X, None), name=name, partitions=2, retry=0)
    queued = cluster.submit(row_sums, (X, None), after=["often"])
    eventually(lambda: all(len(job.losses) >= 15 for job in jobs.values()))
    (server,) = {(tmp_path / name).read_text().split()[0] for name in jobs}
    os.kill(int(server), signal.SIGKILL)
    starts = {}
    for name, job in jobs.items():
        job.result(PATIENCE)
        assert job.losses == [1.0 / (1 + number) for number in range(40)]
        starts[name] = [line.split() for line in (tmp_path / name).read_text().splitlines()]
        assert len(starts[name]) == 2
        assert starts[name][1][0] != server
    assert int(starts["often"][1][1]) >= 14
    assert int(starts["seldom"][1][1]) in (11, 21, 31)
    assert int(starts["never"][1][1]) == 0
    assert queued.result(PATIENCE) == X.sum()
    assert_unharmed(cluster)


@linux_only
def test_nothing_of_a_lost_fork_server_runs_on(cluster: Cluster) -> None:
    """Neither its drivers and workers nor what they have started, in sessions of their own too."""

    def program(ctx: Context) -> int:
        if not ctx.restored:
            script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
            for apart in (False, True):
                ctx.report(subprocess.Popen([sys.executable, "-c", script], start_new_session=apart).pid)
            ctx.checkpoint(1)
            ctx.report(os.getpid())
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(3600)
        return 1

    job = cluster.submit(program)
    assert job.result(PATIENCE) == 1
    assert len(job.losses) >= 2
    eventually(lambda: all(is_gone(int(pid)) for pid in job.losses))


def test_a_program_that_was_told_to_end_ends_so_when_the_fork_server_is_lost(cluster: Cluster) -> None:
    """A cancelled job is cancelled, whatever becomes of its driver meanwhile."""

    def program(ctx: Context) -> None:
        ctx.report(os.getppid())
        time.sleep(3600)

    job = cluster.submit(program)
    eventually(lambda: bool(job.losses))
    job.cancel()
    os.kill(int(job.losses[0]), signal.SIGKILL)
    assert job.wait(timeout=PATIENCE)
    assert job.cancelled()


def test_fork_servers_that_are_lost_again_and_again_fail_the_jobs_there_are(cluster: Cluster) -> None:
    """With a reason, instead of trying for ever; jobs that come later are run."""

    def murderous(ctx: Context) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(3600)

    with pytest.raises(JobFailedError, match="was lost 5 times"):
        cluster.submit(murderous).result(PATIENCE)
    assert_unharmed(cluster)


def test_a_fork_server_that_is_lost_while_nothing_runs_is_replaced(cluster: Cluster) -> None:
    """For the next job that comes, however often that happens."""

    def program(ctx: Context) -> int:
        return os.getppid()

    servers = set()
    for _ in range(3):
        server = cluster.submit(program).result(PATIENCE)
        servers.add(server)
        os.kill(server, signal.SIGKILL)
        eventually(lambda server=server: is_gone(server))  # type: ignore[misc]
    assert len(servers) == 3
    assert_unharmed(cluster)


def say(ctx: Context, *sent: Head | Buffer) -> None:
    """Write to the socket of a driver, as a program could that finds it."""
    channel = ctx._channel  # type: ignore[attr-defined]
    for one in sent:
        channel._socket.sendall(b"".join(encode(one)) if isinstance(one, Head) else one)


#: What no driver says.
NONSENSE: dict[str, Head | bytes] = {
    "bytes": b"\xff" * 400,
    "a message that never ends": HEAD.pack(MessageKind.MAP, 0, 0, 1, 0, 0.0, 0.0, 1 << 63),
    "a message beyond all memory": HEAD.pack(MessageKind.MAP, 0, 0, 1, 0, 0.0, 0.0, 1 << 40),
    "an unknown kind": Head(99),
    "the kind of another": Head(MessageKind.EXITED, a=1, b=2, c=3),
    "no CPU time": Head(MessageKind.REPORT, x=math.nan, y=1.0),
    "negative CPU time": Head(MessageKind.REPORT, x=-5.0, y=1.0),
    "endless CPU time": Head(MessageKind.REPORT, x=math.inf, y=1.0),
    "a lifetime of CPU time": Head(MessageKind.REPORT, x=1e300, y=1.0),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_a_driver_that_sends_nonsense_fails_alone(cluster: Cluster, what: str) -> None:
    """The job says what was found; its neighbours, and those who come later, are not bothered."""
    said = NONSENSE[what]

    def loud(ctx: Context) -> int:
        return sum(sum(ctx.map(len)) for _ in range(100))

    def program(ctx: Context) -> None:
        ctx.map(len)
        say(ctx, said)
        time.sleep(3600)

    other = cluster.submit(loud, (X, None))
    job = cluster.submit(program, (X, None))
    with pytest.raises(JobFailedError, match="its driver sent"):
        job.result(PATIENCE)
    assert other.result(PATIENCE) == 100 * len(X)
    assert_unharmed(cluster)


def test_what_a_driver_may_say_by_mistake_is_passed_over(cluster: Cluster) -> None:
    """Metrics beyond the length of a line, no JSON, odd names and rates that are none harm nobody."""

    def program(ctx: Context) -> str:
        ctx.map(len)
        report = MessageKind.REPORT
        for number, said in enumerate(
            [b"[" * 50_000, b'{"m":' + b"9" * 300_000 + b"}", b"\xff{", b'{"\\ud800":1}']
        ):
            say(ctx, encode(Head(report, c=number, y=1.0), [said])[0], said)
        say(ctx, Head(MessageKind.ANNOUNCE, y=math.nan), Head(MessageKind.ANNOUNCE, y=-math.inf))
        say(ctx, *encode(Head(MessageKind.CAN_USE), [b'{"can_use":{"sizes":[1e999]}}']))
        say(ctx, Head(report, c=2**32 - 2, y=math.nan), Head(report, c=2**32 - 1, y=1.0))
        ctx.map(len)
        return "done"

    job = cluster.submit(program, (X, None))
    assert job.result(PATIENCE) == "done"
    assert [one.iteration for one in job.observations] == [0, 1, 2, 3, 2**32 - 2, 2**32 - 1]
    assert all(math.isfinite(one.cpu_seconds) for one in job.observations)
    assert_unharmed(cluster)


@pytest.mark.parametrize("what", ["bytes", "an unknown kind", "another task", "CPU time"])
def test_a_task_that_writes_to_its_workers_socket_fails_its_job_only(cluster: Cluster, what: str) -> None:
    """The worker is replaced, and after a few attempts the job fails and says why."""
    said = {
        "bytes": b"\xff" * 400,
        "an unknown kind": b"".join(encode(Head(99))),
        "another task": b"".join(encode(Head(MessageKind.DONE, a=1, b=77, c=77))),
        "CPU time": b"".join(encode(Head(MessageKind.DONE, a=1, b=1, c=0, x=math.nan))),
    }[what]

    def program(ctx: Context) -> None:
        def task(partition: Any) -> None:
            for descriptor in map(int, os.listdir("/proc/self/fd")):
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                        os.write(descriptor, said)
            time.sleep(3600)

        ctx.map(task)

    job = cluster.submit(program, (X, None), partitions=1)
    error = job.exception(PATIENCE)
    assert isinstance(error, TaskError)
    assert "its worker was lost (it sent" in str(error)
    assert_unharmed(cluster)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave this process no descriptor to open anything with, for the time of the body."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in held:
            os.close(descriptor)


@linux_only
def test_a_node_without_descriptors_delays_jobs_and_fails_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs that are started meanwhile run once files can be opened again."""
    journal = Journal(WallClock())
    programs = ProgramRunner(Site(cores=1, epoch_seconds=0.5, directory=tmp_path), journal)
    job = ProgramJob(program=cloudpickle.dumps(row_sums), data=Dataset(X), partitions=2)
    try:
        for job_id in ("a", "b"):
            programs.prepare(job_id, job)
        with no_descriptors():
            for job_id in ("a", "b"):
                programs.start(job_id)
            programs.grant({"a": 0.5, "b": 0.5}, 2.0)
            eventually(lambda: caplog.text.count("driver not started") >= 4)
            delayed = [entry.event for entry in journal.take() if isinstance(entry.event, JobDelayed)]
            assert [event.job_id for event in delayed] == ["a", "b"]
            assert all("Too many open files" in event.reason for event in delayed)
        ended: list[JobEnded] = []

        def both_ended() -> bool:
            ended.extend(entry.event for entry in journal.take() if isinstance(entry.event, JobEnded))
            return len(ended) == 2

        eventually(both_ended)
        assert {event.state for event in ended} == {JobState.COMPLETED}
    finally:
        programs.close()


def test_a_machine_without_a_process_to_spare_delays_jobs_and_fails_none(cluster: Cluster) -> None:
    """Workers and drivers are started once the system has processes again."""

    def program(ctx: Context) -> int:
        return os.getppid()

    server = cluster.submit(program).result(PATIENCE)
    # Where it may open nothing more, the fork server cannot take a child's socket.
    soft, hard = resource.prlimit(server, resource.RLIMIT_NOFILE)
    resource.prlimit(server, resource.RLIMIT_NOFILE, (0, hard))
    job = cluster.submit(row_sums, (X, None))
    eventually(lambda: job.reason.startswith("cannot run yet ("))
    assert not job.done()
    resource.prlimit(server, resource.RLIMIT_NOFILE, (soft, hard))
    assert job.result(PATIENCE) == X.sum()
    assert job.reason == ""


#: Written without `if __name__ == "__main__"`: it is not needed.
OWNER = """
    import os, sys, time
    import numpy as np
    import slaq

    def task(partition):
        return os.getpid()

    def program(ctx):
        pids = {os.getpid(), os.getppid()}
        while len(pids) < 4:
            pids |= set(ctx.map(task))
        ctx.report(1.0)
        print(*pids, ctx.data.num_rows, flush=True)
        while True:
            ctx.map(task)

    cluster = slaq.Cluster(2)
    job = cluster.submit(program, (np.ones((100, 3)), np.ones(100)))
    while not job.losses:
        time.sleep(0.02)
    while not job.log():
        time.sleep(0.02)
    print(job.directory.parent, *job.log().split()[:-1], flush=True)
    ENDING
"""


@pytest.mark.parametrize(
    ("ending", "number"),
    [
        ("time.sleep(3600)", signal.SIGKILL),
        ("job.result()", signal.SIGINT),
        ("with cluster: job.result()", signal.SIGINT),
        ("sys.exit()", None),
    ],
    ids=["SIGKILL", "Ctrl-C", "Ctrl-C in the block", "forgotten"],
)
def test_nothing_outlives_the_process_that_made_the_cluster(ending: str, number: int | None) -> None:
    """No worker, driver or fork server is left, nor the temporary directory, however that process ends.

    Data lies in memory without a name, which the system frees with its last process.
    """
    script = textwrap.dedent(OWNER).replace("ENDING", ending)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        directory, *pids = owner.stdout.readline().split()
        assert len(pids) == 4
        if number is not None:
            owner.send_signal(number)
        owner.wait(PATIENCE)
    eventually(lambda: all(is_gone(int(pid)) for pid in pids))
    eventually(lambda: not Path(directory).exists())


def open_files(directory: Path) -> list[str]:
    """Return what this process has open below a directory, and the memory without a name."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(descriptor.readlink()))
    return sorted(link for link in links if link.startswith((str(directory), "/memfd:")))


@linux_only
def test_a_job_that_starts_after_the_end_fails_and_leaves_nothing_open(tmp_path: Path) -> None:
    """Its start is refused in words, once, and neither its log nor its data stays open."""
    open_before = open_files(tmp_path)
    journal = Journal(WallClock())
    programs = ProgramRunner(Site(cores=1, epoch_seconds=0.5, directory=tmp_path), journal)
    job = ProgramJob(program=cloudpickle.dumps(row_sums), data=Dataset(X), partitions=1)
    programs.prepare("late", job)
    assert open_files(tmp_path) != open_before
    programs.close()
    programs.start("late")
    (entry,) = journal.take()
    event = entry.event
    assert isinstance(event, JobEnded)
    assert event.state is JobState.FAILED
    assert open_files(tmp_path) == open_before
