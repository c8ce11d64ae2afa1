"""Laws of jobs that slaq loses through no fault of their own: the process that supervises commands dies."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

import slaq
from slaq.core.events import JobLost
from slaq.core.job import JobState
from slaq.engines.journal import Journal
from slaq.engines.local.engine import LocalEngine
from slaq.engines.node.child import ChildNode
from slaq.engines.node.commands import runner
from slaq.engines.node.commands.records import Record
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.engines.node.site import Site
from slaq.jobs.options import IfLost
from slaq.ports import LiveEngine
from slaq.service.service import Service
from tests.integration.opening import ME, in_state, iterated, printed, python
from tests.integration.serving import until

#: Says who supervises it, and reports a loss that falls, from what it kept in its own place on.
SAYS_PARENT = """
import os, pathlib, slaq, time
kept = pathlib.Path(os.environ["SLAQ_JOB_DIR"]) / "kept"
start = int(kept.read_text()) if kept.exists() else 0
print("parent", os.getppid(), "from", start, "iteration", os.environ["SLAQ_ITERATION"], flush=True)
for i in range(start, 100000):
    slaq.report(1 / (1 + i))
    kept.with_suffix(".new").write_text(str(i + 1))
    kept.with_suffix(".new").replace(kept)
    time.sleep(0.01)
"""


def supervisor_of(line: str) -> int:
    return int(line.split()[1])


def kill_supervisor(service: Service, job_id: str, start: int = 1) -> int:
    """Kill the process that supervises a job which was started so many times; return its number."""
    line = until(partial(printed, service, job_id, start))[-1]
    pid = supervisor_of(line)
    os.kill(pid, signal.SIGKILL)
    return pid


def test_a_lost_supervisor_is_no_jobs_fault(open_service: Callable[..., Service]) -> None:
    """Its jobs go on, begin again or end, as their owners asked; none of the others is touched."""
    service = open_service()
    ids = {way: service.submit(ME, python(SAYS_PARENT, name=str(way), if_lost=way)).id for way in IfLost}
    for job_id in ids.values():
        until(iterated(service, job_id, 20))
    pid = kill_supervisor(service, ids[IfLost.RESUME])
    until(partial(in_state, service, ME, ids[IfLost.FAIL], JobState.FAILED))
    assert "asked not to run it again" in service.job(ME, ids[IfLost.FAIL]).reason
    for way in (IfLost.RESUME, IfLost.RESTART):
        line = until(partial(printed, service, ids[way], 2))[1]
        assert supervisor_of(line) != pid
        assert service.job(ME, ids[way]).attempts == 2
    resumed = until(partial(printed, service, ids[IfLost.RESUME], 2))[1].split()
    assert int(resumed[5]) >= 21, "it was told to begin at an iteration that was known"
    restarted = until(partial(printed, service, ids[IfLost.RESTART], 2))[1].split()
    assert int(restarted[5]) == 0
    until(iterated(service, ids[IfLost.RESUME], 60))
    until(iterated(service, ids[IfLost.RESTART], 3))
    numbers = [one["iteration"] for one in service.observations(ME, ids[IfLost.RESUME], limit=100_000)]
    assert numbers == list(range(len(numbers)))


def test_supervisors_may_be_lost_again_and_again(open_service: Callable[..., Service]) -> None:
    """However often it happens, the job goes on each time, also after a restart of the service."""
    service = open_service()
    job_id = service.submit(ME, python(SAYS_PARENT)).id
    for start in (1, 2, 3):
        until(iterated(service, job_id, 20 * start))
        kill_supervisor(service, job_id, start)
    until(partial(printed, service, job_id, 4))
    service.close()
    again = open_service()
    until(partial(printed, again, job_id, 5))
    numbers = [one["iteration"] for one in again.observations(ME, job_id, limit=100_000)]
    assert numbers == list(range(len(numbers)))


def test_a_job_that_was_cancelled_stays_cancelled(open_service: Callable[..., Service]) -> None:
    """A job whose end was asked for before its supervisor was lost is not started again."""
    service = open_service()
    job_id = service.submit(ME, python(SAYS_PARENT)).id
    until(iterated(service, job_id, 5))
    kill_supervisor(service, job_id)
    service.cancel(ME, job_id)
    until(partial(in_state, service, ME, job_id, JobState.CANCELLED))
    assert service.job(ME, job_id).attempts <= 2


def child_engine(site: Site, journal: Journal) -> LiveEngine:
    """Start the engine of one machine, with its node in a child process."""
    return LocalEngine(ChildNode(site, journal))


@pytest.fixture(params=["local", child_engine], ids=["node in this process", "node in a child process"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[slaq.Cluster]:
    with slaq.Cluster(2, epoch_seconds=0.1, directory=tmp_path, engine=request.param) as made:
        yield made


def test_commands_of_an_embedded_cluster_go_on(cluster: slaq.Cluster) -> None:
    """A command is run again by another supervisor; its curve goes on, and this counts as no restart."""
    code = SAYS_PARENT.replace('os.environ["SLAQ_JOB_DIR"]', repr(str(cluster.directory_of("x").parent)))
    code = code.replace(', "iteration", os.environ["SLAQ_ITERATION"]', "").replace("100000", "60")
    job = cluster.submit_command([sys.executable, "-c", code], retry=0)
    until(lambda: len(job.losses) >= 20)
    os.kill(supervisor_of(job.log().splitlines()[0]), signal.SIGKILL)
    assert job.result(timeout=60) == 0
    assert [one.iteration for one in job.observations] == list(range(len(job.observations)))
    assert len(job.log().splitlines()) == 2


def test_what_cannot_be_stored_concerns_its_job_alone(open_service: Callable[..., Service]) -> None:
    """An event that the store refuses is dropped and logged; all others are stored."""
    service = open_service()
    job_id = service.submit(ME, python(SAYS_PARENT)).id
    until(iterated(service, job_id, 5))
    with service._loop.paused():
        service._loop._store.append([JobLost(job_id="ghost", at=service._parts.clock.now(), reason="")])
    until(iterated(service, job_id, 30))
    until(lambda: len(service.observations(ME, job_id, limit=1000)) >= 30)
    assert service.health()["status"] == "ok"


def test_a_job_says_at_its_end_why_losses_may_be_missing(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """A job whose losses could not be read ends as it ended, and its owner is told."""
    os.mkfifo(tmp_path / "losses")
    service = open_service()
    job_id = service.submit(ME, python("print(1)", loss_file=str(tmp_path / "losses"))).id
    until(lambda: in_state(service, ME, job_id, JobState.COMPLETED))
    assert "is not a regular file" in service.job(ME, job_id).reason


def test_the_thread_of_commands_survives_what_goes_wrong_in_it(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw is told while it lasts, and the commands go on."""
    service = open_service()
    job_id = service.submit(ME, python(SAYS_PARENT)).id
    until(iterated(service, job_id, 5))

    def broken(*arguments: object) -> None:
        raise RuntimeError("trouble")

    with monkeypatch.context() as patch:
        patch.setattr(SupervisorClient, "poll", broken)
        until(service.troubles)
        assert "commands are not looked after" in service.troubles()[0]
        assert 'slaq_thread_troubles{thread="commands"} 1.0' in service.metrics(ME)
    until(iterated(service, job_id, service.job(ME, job_id).iteration + 20))
    until(lambda: not service.troubles())
    assert 'slaq_thread_up{thread="commands"} 1.0' in service.metrics(ME)


def test_a_thread_of_commands_that_stands_still_is_told(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody looks after commands for long, the service says so until somebody does."""
    service = open_service()
    job_id = service.submit(ME, python(SAYS_PARENT)).id
    until(iterated(service, job_id, 5))
    go_on, poll = threading.Event(), SupervisorClient.poll

    def waits(client: SupervisorClient, seconds: float | None = 0.0) -> list[Record]:
        go_on.wait()
        return poll(client, seconds)

    monkeypatch.setattr(SupervisorClient, "poll", waits)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "STUCK_SECONDS", 0.5)
        until(lambda: any("looked after commands for" in trouble for trouble in service.troubles()))
    go_on.set()
    until(lambda: not service.troubles())
