"""Laws of the client: the handle is that of the embedded cluster, errors come back whole."""

import inspect
import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import slaq
from slaq.client import Client, ServiceJob, connect
from slaq.client.endpoint import find_endpoint
from slaq.client.events import parse_events
from slaq.core import errors
from slaq.core.errors import (
    ConflictError,
    ForbiddenError,
    JobFailedError,
    JobOptionError,
    LostReplyError,
    RequestError,
    UnknownJobError,
    UnreachableError,
)
from slaq.core.job import JobState
from slaq.service.records import JobView, Submission
from slaq.web.problems import problem_response
from tests.integration.serving import PATIENCE, Served, external, serving

#: Prints four losses and ends.
FALLING = [sys.executable, "-c", "for k in range(4): print(f'loss={1 / (k + 1)}', flush=True)"]
PROGRAM = """
def train(context):
    for loss in (4.0, 2.0, 1.0):
        context.report(loss)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as service:
        yield service


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with connect(served.unix) as one:
        yield one


def line(iteration: int, loss: float, **metrics: float) -> bytes:
    """Return a report as `slaq.report` writes it."""
    told = {"iteration": iteration, "loss": loss, "time": 1.7e9 + iteration, "cpu": 0.1, "pid": 1}
    return json.dumps({**told, "metrics": metrics}).encode() + b"\n"


# The handle.


def test_the_handle_is_that_of_the_embedded_cluster() -> None:
    """Whatever an embedded job has, a job of the service has too, with the same parameters."""
    for name in [name for name in dir(slaq.Job) if not name.startswith("_")] + ["__iter__"]:
        ours, theirs = inspect.getattr_static(ServiceJob, name), inspect.getattr_static(slaq.Job, name)
        assert type(ours) is type(theirs), name
        if callable(theirs):
            asked = [inspect.signature(one).parameters for one in (ours, theirs)]
            assert [(one.name, one.kind, one.default) for one in asked[0].values()] == [
                (one.name, one.kind, one.default) for one in asked[1].values()
            ], name


def test_a_command_from_submission_to_result(client: Client) -> None:
    """A job's handle tells its losses as they come, its log, its forecast and its end."""
    job = client.submit_command(FALLING, name="falling", loss_pattern=r"loss=([\d.]+)", tags=["night"])
    assert [seen.iteration for seen in job] == [0, 1, 2, 3]
    assert job.result(PATIENCE) == 0
    assert job.exception() is None
    assert job.losses == [1 / (k + 1) for k in range(4)]
    assert job.metrics == [{}] * 4
    assert [seen.loss for seen in job.observations] == job.losses
    assert job.log() == "".join(f"loss={1 / (k + 1)}\n" for k in range(4))
    assert (job.name, job.state, job.cores, job.diverged) == (job.id, JobState.COMPLETED, 0, False)
    assert job.done()
    assert not job.running()
    assert not job.cancelled()
    assert not job.cancel()
    assert job.wait(timeout=0)
    assert list(job.forecast([1, 10]).horizons) == [1, 10]
    assert job.forecast(5).mean[0] < 0.25
    assert job.directory.name == job.id
    assert 0 <= job.reduction <= 1
    assert [one.id for one in client.jobs(tag="night")] == [job.id]
    assert isinstance(job.view, JobView)


def test_a_command_finds_what_is_found_here(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine a command runs in this directory and finds this PATH; over TCP it is told nothing of it."""
    script = tmp_path / "hello"
    script.write_text("#!/bin/sh\necho from $(pwd)\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    job = client.submit_command(["hello"])
    assert job.result(PATIENCE) == 0
    assert job.log() == f"from {tmp_path}\n"
    assert client.submission(job.id)["env"]["PATH"].startswith(str(tmp_path))


def test_a_training_program_from_its_file(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is named by its file and function, and runs in a process of its own, with this interpreter."""
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    job = client.submit("train.py:train", name="named", weight=2.0)
    assert job.result(PATIENCE) == 0
    assert job.losses == [4.0, 2.0, 1.0]
    assert (job.view.weight, job.view.work) == (2.0, "program")


def test_failure_and_cancellation_are_raised(client: Client) -> None:
    """result() raises what happened, and so does exception() for a job that was cancelled."""
    failed = client.submit_command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(JobFailedError, match="exit"):
        failed.result(PATIENCE)
    assert isinstance(failed.exception(), JobFailedError)
    asleep = client.submit_command(["sleep", "1000"])
    with pytest.raises(TimeoutError):
        asleep.result(timeout=0.01)
    assert not asleep.wait(timeout=0)
    assert asleep.cancel()
    with pytest.raises(CancelledError):
        asleep.result(PATIENCE)
    assert asleep.cancelled()


def test_callbacks_come_once_for_each_job(client: Client) -> None:
    """Each callback is called once, after its job has ended, whether that was before or after it was added."""
    called: list[str] = []
    all_called = threading.Semaphore(0)

    def note(job: ServiceJob) -> None:
        assert job.done()
        called.append(job.id)
        all_called.release()

    jobs = [client.submit_command(["sleep", "0.1"], name="short") for _ in range(3)]
    for job in jobs:
        job.add_done_callback(note)
    jobs[0].wait(timeout=PATIENCE)
    jobs[0].add_done_callback(note)
    assert all(all_called.acquire(timeout=PATIENCE) for _ in range(4))
    assert sorted(called) == sorted([jobs[0].id, *(job.id for job in jobs)])


def test_an_external_job_reports_once_however_often_it_sends(client: Client) -> None:
    """Reports that are sent twice, in part or whole, are taken in once; losses that are not finite are told."""
    job = client.job(external(client, "far"))
    lines = line(0, 1.0) + line(1, 0.5, accuracy=0.75)
    assert client.report(job.id, lines, offset=0) == len(lines)
    assert client.report(job.id, lines, offset=0) == len(lines)
    more = line(2, math.nan)
    assert client.report(job.id, lines + more, offset=0) == len(lines + more)
    while len(job.observations) < 3:
        job.wait(timeout=0.05)
    assert job.losses[:2] == [1.0, 0.5]
    assert math.isnan(job.losses[2])
    assert job.metrics[1] == {"accuracy": 0.75}
    while not job.diverged:
        job.wait(timeout=0.05)
    client.report(job.id, lines + more + line(3, 0.25), offset=0)
    while len(job.observations) < 4:
        job.wait(timeout=0.05)
    client.end(job.id, state="completed", reason="done over there")
    assert job.result(PATIENCE) == 0
    assert job.reason == "done over there"


def test_waiting_for_a_reduction(client: Client) -> None:
    """wait(reduction=...) returns once so much is done, or False when the job has ended short of it."""
    job = client.job(external(client, "part"))
    client.report(job.id, b"".join(line(k, 0.5**k) for k in range(30)), offset=0)
    assert job.wait(reduction=0.5, timeout=PATIENCE)
    assert not job.wait(reduction=1.1, timeout=0)
    client.end(job.id, state="failed", reason="enough")
    assert job.wait(timeout=PATIENCE)
    assert not job.wait(reduction=1.1)


def test_steering_a_job(client: Client) -> None:
    """Pause, resume and change answer with the job as it then is."""
    job = client.job(external(client, "steered"))
    job.pause()
    assert client.show_job(job.id)["state"] == "paused"
    job.resume()
    assert client.show_job(job.id)["state"] in ("queued", "running")
    assert client.change(job.id, weight=3.0, tags=["a"])["weight"] == 3.0
    assert client.show_job(job.id)["tags"] == ["a"]
    assert client.submission(job.id)["external"] is True
    job.cancel()
    assert job.wait(timeout=PATIENCE)
    with pytest.raises(ConflictError):
        client.pause(job.id)


def test_lists_are_read_to_their_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, all jobs and all observations are found, in order, each once."""
    monkeypatch.setattr("slaq.client.api.PAGE", 3)
    ids = [external(client, "many") for _ in range(7)]
    found = [job["id"] for job in client.list_jobs()]
    assert [one for one in found if one in ids] == ids
    assert len(found) == len(set(found))
    assert [job.id for job in client.jobs(limit=5)] == found[:5]
    client.report(ids[0], b"".join(line(k, 1.0) for k in range(8)), offset=0)
    while len(list(client.observations(ids[0]))) < 8:
        client.job(ids[0]).wait(timeout=0.05)
    assert [seen["iteration"] for seen in client.observations(ids[0], limit=4)] == [0, 1, 2, 3]


def test_the_cluster_and_its_users(client: Client, tmp_path: Path) -> None:
    """What admins do through the client is done."""
    assert client.set_policy("fair")["policy"] == client.cluster()["policy"] == "fair"
    assert client.set_user("zoe", weight=2.0, max_jobs=5)["max_jobs"] == 5
    assert "zoe" in [user["user"] for user in client.users()]
    assert client.user("zoe")["weight"] == 2.0
    assert client.health()["ready"]
    assert "slaq_http_requests_total" in client.metrics()
    copy = client.backup(tmp_path / "copy.db")
    assert copy.read_bytes().startswith(b"SQLite format 3\0")
    with pytest.raises(FileExistsError):
        client.backup(copy)
    assert client.prune(before=0.0, dry_run=True)["jobs"] == []
    client.set_policy("total-quality")


# Errors.


def test_errors_come_back_as_they_were(served: Served, client: Client) -> None:
    """What the service refuses is raised here, with its type, its sentence and its data."""
    with pytest.raises(UnknownJobError) as unknown:
        client.job("none-such")
    assert unknown.value.job_id == "none-such"
    with pytest.raises(JobOptionError, match="weight is -1; give a number"):
        client.submit_command(["true"], weight=-1.0)
    with pytest.raises(JobOptionError, match=r"train\.py:train"):
        client.submit(lambda context: None)  # type: ignore[arg-type]
    with served.client("ann") as other, pytest.raises(ForbiddenError, match="ann may not"):
        other.set_policy("fair")


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownJobError("a"),
        errors.JobOptionError("weight", -1, "a number above 0"),
        errors.LimitError("too many", "wait"),
        errors.UnknownNameError("policy", "fare", ["fair"]),
        errors.ConflictError("it has ended", "submit it anew"),
        errors.RequestError("no"),
    ],
)
def test_an_error_survives_the_way_through_http(error: errors.SlaqError) -> None:
    """An error that is sent as a problem is read as itself."""
    import httpx

    from slaq.client.connection import error_of

    sent = problem_response(error)
    response = httpx.Response(sent.status_code, content=bytes(sent.body))
    back = error_of(response, find_endpoint("unix:///s", None))
    assert (type(back), str(back)) == (type(error), str(error))
    assert {
        name: list(value) if isinstance(value, tuple) else value for name, value in vars(error).items()
    } == (vars(back))


def test_a_service_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """The first request fails with the address and what to do, however patient the client is."""
    client = connect(f"unix://{tmp_path}/none.sock", patience=1000)
    with client, pytest.raises(UnreachableError, match="start one with `slaq serve`"):
        client.jobs()


def answering(reply: bytes) -> tuple[socket.socket, threading.Thread]:
    """Listen on a port, and answer one request with bytes; empty ones close the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(reply)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    return listener, thread


def test_a_lost_reply_is_not_taken_for_a_refusal() -> None:
    """A submission whose reply is lost is not sent again: it may have arrived."""
    listener, thread = answering(b"")
    with listener, connect(f"http://127.0.0.1:{listener.getsockname()[1]}", "t") as client:
        with pytest.raises(LostReplyError, match="slaq ls"):
            client.send(Submission(external=True))
        thread.join(PATIENCE)


def test_an_answer_that_is_not_the_services_is_told_as_such() -> None:
    """What some other server says is not taken for a refusal of the service."""
    listener, thread = answering(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<html")
    with listener, connect(f"http://127.0.0.1:{listener.getsockname()[1]}", "t") as client:
        with pytest.raises(RequestError, match="status 502 and no explanation"):
            client.jobs()
        thread.join(PATIENCE)


@pytest.mark.parametrize(
    ("environ", "address", "token"),
    [
        ({"SLAQ_URL": "https://a:1", "SLAQ_TOKEN": "t"}, "https://a:1", "t"),
        ({"SLAQ_HOME": "/var/lib/slaq"}, "unix:///var/lib/slaq/slaq.sock", None),
        ({"SLAQ_URL": "unix:///run/s", "SLAQ_HOME": "/x"}, "unix:///run/s", None),
        ({"SLAQ_URL": ""}, f"unix://{Path.home()}/.slaq/slaq.sock", None),
    ],
)
def test_the_environment_says_where_the_service_is(
    environ: dict[str, str], address: str, token: str | None
) -> None:
    """Without an address: $SLAQ_URL, else the socket in $SLAQ_HOME, else that in ~/.slaq."""
    place = find_endpoint(None, None, environ)
    assert (place.address, place.token) == (address, token)


# Restarts and events.


# httpcore leaves a socket to the garbage collector when nobody answers at a Unix address.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_restart_is_bridged(tmp_path: Path) -> None:
    """A client that had reached the service goes on after a restart: handles, callbacks, events and all."""
    heard: list[int] = []
    ended = threading.Event()
    with connect(f"unix://{tmp_path}/slaq.sock") as client:
        with serving(tmp_path):
            job = client.job(external(client))
            job.add_done_callback(lambda _: ended.set())
            stream = client.events(after=0)
            heard.append(next(stream).number)
        later: list[str] = []
        asking = threading.Thread(target=lambda: later.append(job.state))
        asking.start()
        with serving(tmp_path):
            asking.join(PATIENCE)
            assert later in ([JobState.RUNNING], [JobState.QUEUED])
            client.end(job.id, state="completed")
            for told in stream:
                heard.append(told.number)
                if told.kind == "job.ended":
                    break
            assert job.result(PATIENCE) == 0
            assert ended.wait(PATIENCE)
    assert heard == sorted(set(heard))


def test_events_are_taken_up_where_they_broke_off(client: Client) -> None:
    """A reader who comes back with the last number gets what came after it, each once and in order."""
    job = external(client, "told")
    client.pause(job)
    client.resume(job)
    client.cancel(job)
    client.job(job).wait(timeout=PATIENCE)
    kinds = ("job.submitted", "job.paused", "job.resumed", "job.ended")
    everything = []
    for told in client.events(after=0, kinds=kinds, job_id=job):
        everything.append(told)
        if told.kind == "job.ended":
            break
    assert [told.kind for told in everything] == list(kinds)
    for place, seen in enumerate(everything[:-1]):
        stream = client.events(after=seen.number, kinds=kinds, job_id=job)
        assert [next(stream) for _ in everything[place + 1 :]] == everything[place + 1 :]


def test_whoever_hears_of_an_end_sees_it(client: Client) -> None:
    """From the notice of its end on, a job is shown as ended."""
    ids = {client.submit_command(["true"], name="brief").id for _ in range(5)}
    for told in client.events(after=0, kinds=["job.ended"]):
        if told.job_id in ids:
            assert JobState(client.show_job(told.job_id)["state"]).ended
            ids.discard(told.job_id)
        if not ids:
            break


def test_a_page_that_is_not_the_last_is_full(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paused jobs among running ones, which the store does not tell apart, hide nothing that comes later."""
    ids = [external(client, "paged") for _ in range(6)]
    for job_id in ids[:4]:
        client.pause(job_id)
    monkeypatch.setattr("slaq.client.api.PAGE", 2)
    found = client.list_jobs(states=["running", "queued", "completed"])
    assert [job["id"] for job in found if job["id"] in ids] == ids[4:]


def test_a_stream_shows_ones_own_jobs_only(served: Served, client: Client) -> None:
    """Events of others' jobs do not reach a user, also not when asked for by number."""
    hidden = external(client, "hidden")
    with served.client("ann") as ann:
        mine = external(ann, "anns")
        for told in ann.events(after=0):
            assert told.job_id != hidden
            if told.job_id == mine and told.kind == "job.submitted":
                break
        with pytest.raises(UnknownJobError):
            next(ann.events(job_id=hidden))


def test_events_are_read_as_they_are_written() -> None:
    """Comments are signs of life, an event ends at an empty line, and one that is cut short is none."""
    body = '{"number": 7, "kind": "decision", "at": 1.0, "job_id": null, "owner": null, "body": {}}'
    lines = [": listening", "", "id: 7", "event: decision", f"data: {body}", "", ": ", "data: {"]
    found = list(parse_events(lines))
    assert [one if one is None else one.number for one in found] == [None, 7, None]
