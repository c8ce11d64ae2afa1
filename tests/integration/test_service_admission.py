"""Why a job is not started yet: one place holds jobs back, and every reason is shown wherever the job is."""

import asyncio
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from slaq import Cluster
from slaq.bootstrap import open_service as open_bootstrapped
from slaq.cli.main import main
from slaq.client import connect
from slaq.config.service import ServiceSettings, UserLimits
from slaq.core.job import JobState
from slaq.engines.memory import memory_here
from slaq.engines.node.commands import descriptors
from slaq.service.records import JobView, Notice, Submission
from slaq.service.service import Service
from tests.integration.opening import ANN, BOB, ME, in_state, printed, python
from tests.integration.serving import external, serving, until

EXTERNAL = Submission(external=True)


def held(service: Service, job_id: str) -> JobView | None:
    """Return a job once the scheduler has held it back."""
    view = service.job(ME, job_id)
    assert view.state is JobState.QUEUED
    return view if view.reason != "waits for the next decision" else None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"concurrent": 1}, "waits because 1 job may run at a time"),
        (
            {"defaults": UserLimits(max_running=1)},
            "waits because 1 job of ann may run at a time",
        ),
        (
            {"defaults": UserLimits(max_cores=1.5)},
            "waits because ann may hold 1.5 cores, of which running jobs hold at least 1, and the job needs 1",
        ),
    ],
)
def test_a_job_that_is_held_back_says_why(
    open_service: Callable[..., Service], changes: dict[str, object], reason: str
) -> None:
    """The reason is the same in a listing, in the job itself and in its explanation, and goes with the hold."""
    service = open_service(**changes)
    asked = Submission(external=True, options={"min_cores": 1.0, "max_cores": 1.0})
    first = service.submit(ANN, asked).id
    until(lambda: in_state(service, ANN, first, JobState.RUNNING))
    second = service.submit(ANN, asked).id
    view = until(lambda: held(service, second))
    assert view.reason == reason
    (listed,) = service.jobs(ANN, states={JobState.QUEUED})
    assert listed.reason == reason
    assert service.why(ANN, second)["text"] == f"{second} {reason}."
    service.end(ANN, first, state=JobState.COMPLETED)
    until(lambda: in_state(service, ANN, second, JobState.RUNNING))
    assert service.job(ANN, second).reason == ""


def test_a_limit_of_one_user_holds_back_no_other(open_service: Callable[..., Service]) -> None:
    """A job that is held back does not hold up the jobs behind it."""
    service = open_service(users={"ann": UserLimits(max_running=0)})
    waits, runs = service.submit(ANN, EXTERNAL).id, service.submit(BOB, EXTERNAL).id
    until(lambda: in_state(service, BOB, runs, JobState.RUNNING))
    assert (
        until(lambda: held(service, waits)).reason
        == "waits because no jobs of ann may run now (max_running is 0)"
    )
    service.set_user(ME, "ann", max_running=None)
    until(lambda: in_state(service, ANN, waits, JobState.RUNNING))


def test_a_job_waits_for_the_end_of_those_it_comes_after(open_service: Callable[..., Service]) -> None:
    """A job starts once every job that it comes after has ended, whether that ran, waited or was paused."""
    service = open_service(concurrent=1)
    first, second = (service.submit(ANN, EXTERNAL).id for _ in range(2))
    until(lambda: in_state(service, ANN, first, JobState.RUNNING))
    service.pause(ANN, second)
    last = service.submit(ANN, Submission(external=True, options={"after_any": (first, second)})).id
    assert until(lambda: held(service, last)).reason == f"waits for job {first!r} to end"
    service.end(ANN, first, state=JobState.FAILED)
    until(lambda: service.job(ANN, last).reason == f"waits for job {second!r} to end")
    assert service.job(ANN, second).started_at is None
    service.cancel(ANN, second)
    until(lambda: in_state(service, ANN, last, JobState.RUNNING))


def test_a_job_waits_for_the_memory_it_declared(open_service: Callable[..., Service]) -> None:
    """Declared memory of running jobs counts against the machine's; jobs that declare none start beside them."""
    service, there_is = open_service(), memory_here()
    asked = Submission(command=("sleep", "600"), options={"memory": round(0.6 * there_is)})
    first = service.submit(ME, asked).id
    until(lambda: in_state(service, ME, first, JobState.RUNNING))
    second, free = service.submit(ME, asked).id, service.submit(ME, EXTERNAL).id
    assert until(lambda: held(service, second)).reason.startswith("waits for memory: it needs ")
    until(lambda: in_state(service, ME, free, JobState.RUNNING))
    service.cancel(ME, first)
    until(lambda: in_state(service, ME, second, JobState.RUNNING))


def test_a_job_is_not_started_before_its_arrival(open_service: Callable[..., Service]) -> None:
    """It is queued until it is due, with the moment as its reason, and other jobs start meanwhile."""
    service = open_service()
    later = service.submit(ANN, Submission(external=True, options={"arrival": 3600.0}))
    soon = service.submit(ANN, Submission(external=True, options={"arrival": 0.3})).id
    due = datetime.fromtimestamp(service.store.job(later.id).spec.arrival)
    assert until(lambda: held(service, later.id)).reason == f"is not due before {due:%F %T}"
    until(lambda: in_state(service, ANN, soon, JobState.RUNNING))
    started, submitted = service.job(ANN, soon).started_at, service.job(ANN, soon).submitted_at
    assert started is not None
    assert started - submitted >= 0.3
    assert service.job(ANN, later.id).state is JobState.QUEUED


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a small disk")
def test_jobs_wait_while_the_store_cannot_be_written(tmp_path: Path) -> None:
    """While the disk is full, a queued job gives that as its reason; with room again, its reason is as before."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "slaq-test", small], check=True)
    try:
        settings = ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1, concurrent=1)
        service = open_bootstrapped(settings)
        try:
            first, second = (service.submit(ANN, EXTERNAL).id for _ in range(2))
            usual = "waits because 1 job may run at a time"
            until(lambda: service.job(ANN, second).reason == usual)
            with suppress(OSError), (small / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(b"x" * 4096)
            reason = "waits because the store cannot be written: "
            until(lambda: service.job(ANN, second).reason.startswith(reason))
            assert service.job(ANN, first).state is JobState.RUNNING
            (small / "filler").unlink()
            until(lambda: service.job(ANN, second).reason == usual)
        finally:
            service.close()
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


@contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """Leave a process no descriptor for another command."""
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors.RESERVED, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


SAYS_PARENT = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"


def test_a_started_job_that_cannot_run_yet_says_why(open_service: Callable[..., Service]) -> None:
    """Where the supervisor is short of descriptors, a command shows that wherever it is shown, until it runs."""
    service = open_service()
    first = service.submit(ME, python(SAYS_PARENT)).id
    supervisor = int(until(partial(printed, service, first, 1))[0])
    with without_descriptors(supervisor):
        second = service.submit(ME, python(SAYS_PARENT)).id
        until(lambda: service.job(ME, second).reason.startswith("cannot run yet ("))
        view = service.job(ME, second)
        (listed,) = [one for one in service.jobs(ME) if one.id == second]
        assert (view.state, listed.reason) == (JobState.RUNNING, view.reason)
        assert view.reason.endswith("; slaq keeps trying")
        assert service.why(ME, second)["text"] == f"{second} {view.reason}."
    until(partial(printed, service, second, 1))
    until(lambda: service.job(ME, second).reason == "")
    assert service.job(ME, first).reason == ""


def test_a_job_of_a_cluster_that_cannot_run_yet_says_why() -> None:
    """The handle gives the reason while the command waits, and none once it runs."""
    with Cluster(2, epoch_seconds=0.1) as cluster:
        first = cluster.submit_command([sys.executable, "-c", SAYS_PARENT])
        supervisor = int(until(first.log))
        with without_descriptors(supervisor):
            second = cluster.submit_command([sys.executable, "-c", SAYS_PARENT])
            until(lambda: second.state is JobState.RUNNING and second.reason.startswith("cannot run yet ("))
        until(second.log)
        until(lambda: second.reason == "")
        cluster.shutdown(cancel=True)
    assert second.state is JobState.CANCELLED


def test_a_changed_reason_is_told_over_the_event_stream(open_service: Callable[..., Service]) -> None:
    """Whoever follows the stream hears why a job waits, once for each change of the reason."""
    service = open_service(concurrent=0, defaults=UserLimits(max_running=1))

    async def follow() -> list[Notice]:
        told: list[Notice] = []
        async with service.notices(ANN, kinds={"job.waiting", "job.started"}) as notices:
            await asyncio.to_thread(service.submit, ANN, EXTERNAL)
            await asyncio.to_thread(service.submit, ANN, EXTERNAL)
            while len(told) < 2:
                told += await notices.next()
            settings = service.settings
            await asyncio.to_thread(service.reload, replace(settings, concurrent=5))
            while len(told) < 4:
                told += await notices.next()
        return told

    told = asyncio.run(follow())
    no_room = "waits because no jobs may run now (concurrent is 0)"
    assert [(one.kind, one.job_id, one.body["reason"]) for one in told] == [
        ("job.waiting", "external", no_room),
        ("job.waiting", "external-2", no_room),
        ("job.started", "external", ""),
        ("job.waiting", "external-2", "waits because 1 job of ann may run at a time"),
    ]


def test_the_command_line_shows_why_a_job_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`slaq ls`, `slaq show` and `slaq why` give the reason of a job that is held back."""
    monkeypatch.setenv("SLAQ_HOME", str(tmp_path))
    with serving(tmp_path, concurrent=0) as served, connect(served.unix) as client:
        job = external(client)
        reason = "waits because no jobs may run now (concurrent is 0)"
        until(lambda: client.show_job(job)["reason"] == reason)
        for command in (["ls"], ["show", job], ["why", job]):
            done = CliRunner(env={"COLUMNS": "200"}).invoke(main, command)
            assert done.exit_code == 0, done.output
            assert reason in done.stdout


#: Opens a service in a process whose limit of open files is that given, and says what becomes of three jobs.
CROWDED = """
import json, pathlib, resource, sys, time
soft, hard, home = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from slaq.bootstrap import open_service
from slaq.config.service import ServiceSettings
from slaq.service.records import Identity, Submission
me = Identity(user="me", admin=True)
service = open_service(ServiceSettings(home=home, listen=home / "slaq.sock", epoch_seconds=0.05))
jobs = [service.submit(me, Submission(external=True)).id for _ in range(3)]
while any(service.job(me, job).reason == "waits for the next decision" for job in jobs):
    time.sleep(0.01)
print(json.dumps([service.job(me, job).reason for job in jobs]))
service.close()
"""


def crowded(soft: int, hard: int, home: Path) -> list[str]:
    command = [sys.executable, "-c", CROWDED, str(soft), str(hard), str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def test_jobs_wait_where_the_process_could_not_open_their_files(tmp_path: Path) -> None:
    """No more jobs run than the limit of open files allows; the soft limit is raised to the hard one first."""
    room = descriptors.RESERVED + 2 * descriptors.EACH
    reason = f"waits for file descriptors: {2 * descriptors.EACH} are enough for 2 jobs"
    assert crowded(room, room, tmp_path / "tight") == ["", "", reason]
    assert crowded(room, 2 * room, tmp_path / "raised") == ["", "", ""]


def test_a_job_has_the_limits_that_the_service_was_started_with(tmp_path: Path) -> None:
    """What the service raises for itself is not handed on to jobs, which may raise it themselves."""
    code = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512));"
        "os.execv(sys.executable, [sys.executable, '-m', 'slaq', *sys.argv[1:]])"
    )
    home = tmp_path / "home"
    command = [sys.executable, "-c", code, "serve", "--home", str(home), "--epoch-seconds", "0.1"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as service:
        try:
            until((home / "slaq.sock").exists)
            with connect(f"unix://{home}/slaq.sock") as client:
                limits = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
                job = client.send(python(limits)).id
                until(lambda: client.show_job(job)["state"] == "completed")
                assert client.log(job).data == b"(256, 512)\n"
        finally:
            service.terminate()
