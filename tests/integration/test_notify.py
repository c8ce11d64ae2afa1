"""Laws of what runs when a job has ended: once, as the job's owner, not for long, and its failure is told."""

import os
import pwd
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slaq.client import Client, connect
from slaq.core.errors import CommandError
from slaq.core.job import JobState
from slaq.engines.processes import read_of
from slaq.kinds.notifying import ShellNotifier
from slaq.service.parts import EndedJob
from slaq.service.records import Identity, Submission
from slaq.service.service import Service
from tests.integration.opening import ME, reports
from tests.integration.serving import external, serving, until

TELLS = """
printf '%s|' "$SLAQ_JOB" "$SLAQ_STATE" "$SLAQ_REASON" "$SLAQ_BEST_LOSS" "$SLAQ_LOSSES" "$MARK" "$PWD" > told.new
mv told.new told
"""
LINUX_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can run commands as others")
#: Somebody whom every machine knows.
OTHER = "daemon"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("home"), cores=1) as served, connect(served.unix) as found:
        yield found


def outcome(client: Client, job: str) -> str:
    """Return what the job's events say of its command: what went wrong, or nothing."""
    for notice in client.events(after=0, kinds=["job.notified"], job_id=job):
        return str(notice.body["reason"])
    raise AssertionError("the stream ended")


def test_a_job_that_has_ended_is_told_of(client: Client, tmp_path: Path) -> None:
    """The command runs in the job's folder with its id, state, reason and best loss; its success is an event."""
    job = client.submit_command(
        ["sh", "-c", "exit 3"], cwd=str(tmp_path), notify=TELLS, env={"MARK": "a b"}, name="breaks"
    )
    assert outcome(client, job.id) == ""
    told = (tmp_path / "told").read_text().split("|")
    assert told[:2] == ["breaks", "failed"]
    assert told[2].startswith(job.reason[:20])
    assert told[3:] == ["", "0", "a b", str(tmp_path), ""]
    client.send(Submission(external=True, options={"name": "far", "notify": f"cd {tmp_path}; {TELLS}"}))
    client.report("far", reports(3.0, 1.5, 2.0), offset=0)
    client.end("far", state=JobState.COMPLETED, reason="")
    assert outcome(client, "far") == ""
    assert (tmp_path / "told").read_text().split("|")[:5] == ["far", "completed", "", "1.5", "3"]


def test_a_command_that_fails_is_told_in_the_events(client: Client) -> None:
    """Its exit status is; the job itself has ended as it has."""
    client.send(Submission(external=True, options={"name": "ill", "notify": "exit 7"}))
    client.cancel("ill")
    assert outcome(client, "ill") == "exit status 7"
    assert client.show_job("ill")["state"] == "cancelled"


def test_jobs_without_a_command_tell_nobody(client: Client) -> None:
    """Where nothing is asked for, nothing runs, and no event says that it did."""
    job = external(client, "quiet")
    client.end(job, state=JobState.COMPLETED)
    until(lambda: client.show_job(job)["state"] == "completed")
    kinds = []
    for notice in client.events(after=0, job_id=job):
        kinds.append(notice.kind)
        if notice.kind == "job.ended":
            break
    assert "job.notified" not in kinds


def ended(command: str, owner: str = ME.user) -> EndedJob:
    return EndedJob(owner=owner, command=command, cwd=None, env={})


def heard(notifier: ShellNotifier, *jobs: EndedJob) -> list[str]:
    """Return what is told of each command, in that order."""
    told: list[str] = []
    for job in jobs:
        notifier.notify(job, told.append)
    until(lambda: len(told) == len(jobs))
    return told


def marked(secret: str) -> list[int]:
    """Return the processes that were started with a variable of this value."""
    return [
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdecimal() and secret in str(read_of(int(pid), "environ"))
    ]


def test_a_command_has_an_end(tmp_path: Path) -> None:
    """One that takes too long is killed with all it has started, and so is what one leaves behind."""
    notifier = ShellNotifier("s", seconds=0.5)
    hidden = "MINE=nothing-is-left setsid sleep 1000 &"
    told = heard(notifier, ended(f"{hidden} sleep 1000"), ended(f"{hidden} true"), ended("no-such-program"))
    assert told == ["it took longer than 0.5 seconds", "", "exit status 127"]
    assert marked("nothing-is-left") == []
    notifier.close()


def test_commands_of_one_owner_run_one_after_the_other(tmp_path: Path) -> None:
    """They do not overlap, and keep their order; after the end of the service none is run."""
    notifier = ShellNotifier("s")
    log = tmp_path / "log"
    jobs = [ended(f"echo b{k} >> {log}; sleep 0.05; echo e{k} >> {log}") for k in range(4)]
    assert heard(notifier, *jobs) == [""] * 4
    assert log.read_text().split() == [f"{what}{k}" for k in range(4) for what in "be"]
    told: list[str] = []
    began = tmp_path / "began"
    notifier.notify(ended(f"touch {began}; sleep 1000"), told.append)
    notifier.notify(ended(f"echo later >> {log}"), told.append)
    until(began.exists)
    notifier.close()
    notifier.notify(ended(f"echo late >> {log}"), told.append)
    until(lambda: not any(one.name.startswith("slaq-notify") for one in threading.enumerate()))
    assert told == []
    assert "late" not in log.read_text()


@LINUX_ROOT
def test_a_command_runs_as_the_owner_of_the_job(open_service: Callable[..., Service], tmp_path: Path) -> None:
    """Never as root for somebody else: neither the user nor the groups are those of the service."""
    service = open_service()
    drop = tmp_path / "drop"
    drop.mkdir()
    for folder in (drop, *drop.parents):
        folder.chmod(folder.stat().st_mode | 0o711)
    drop.chmod(0o777)
    command = f"id -u > {drop}/new; id -G >> {drop}/new; mv {drop}/new {drop}/told"
    options = {"notify": command, "user": OTHER}
    job = service.submit(ME, Submission(external=True, options=options)).id  # type: ignore[arg-type]
    service.end(ME, job, state=JobState.COMPLETED)
    until((drop / "told").exists)
    entry = pwd.getpwnam(OTHER)
    uid, groups = (drop / "told").read_text().splitlines()
    assert int(uid) == entry.pw_uid
    assert {int(group) for group in groups.split()} == set(os.getgrouplist(OTHER, entry.pw_gid))


@LINUX_ROOT
def test_nobody_without_an_account_is_notified(open_service: Callable[..., Service]) -> None:
    """Such a command is refused when the job is submitted, because there is nobody to run it as."""
    service, nobody = open_service(), Identity(user="nobody-at-all")
    with pytest.raises(CommandError, match="there is no user 'nobody-at-all' on this machine"):
        service.submit(nobody, Submission(external=True, options={"notify": "true"}))
    assert service.submit(nobody, Submission(external=True)).id
