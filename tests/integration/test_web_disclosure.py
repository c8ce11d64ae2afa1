"""Laws of what users learn of each other's jobs: by no answer, and by no event, more than they may.

Driven by the OpenAPI document, so that a route that is added is tried too.
"""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from slaq.client import connect
from slaq.core.job import JobState
from slaq.jobs.options import ServiceOptions
from slaq.service import disclosure
from slaq.service.records import JobView, Notice, Submission
from slaq.service.service import Service
from tests.integration.serving import Served, serving, until
from tests.integration.test_web_access import ABOUT_JOBS, OPERATIONS, asked, bearer

#: In every text that ann chooses or her jobs write; nobody else must ever read it.
SECRET = "annsSecretText"
#: In every name of hers: others may know it only where everyone may read all jobs.
NAMED = "annsjob"
PLANTED = f"""
import os, sys, slaq, time
print("{SECRET} printed", flush=True)
slaq.report(1.0, {SECRET}metric=2.0)
slaq.report(0.9, {SECRET}metric=1.0)
slaq.report(0.8, {SECRET}metric=1.0)
time.sleep(600)
"""


def plant(served: Served, folder: Path) -> list[str]:
    """Give ann jobs in every state, with the secret in all that she chooses and they write; return their ids."""
    place = folder / f"{SECRET}-place"
    place.mkdir()
    runs: dict[str, Any] = {
        "name": f"{NAMED}-runs", "env": {f"{SECRET}_NAME": f"{SECRET} value"}, "cwd": str(place),
        "tags": (f"{SECRET}-tag",), "group": f"{SECRET}-group", "parameters": {f"{SECRET}_p": f"{SECRET} value"},
        "notify": f": {SECRET} notified",
    }  # fmt: skip
    with connect(served.unix) as client:
        running = client.send(
            Submission(command=(sys.executable, "-c", PLANTED, SECRET), options=cast(ServiceOptions, runs))
        )
        waits = client.send(
            Submission(
                command=(f"/bin/{SECRET}", "x"), options={"name": f"{NAMED}-waits", "after": (running.id,)}
            )
        )
        pattern = Submission(
            command=(sys.executable, "-c", "raise SystemExit('" + SECRET + "')"),
            options={"name": f"{NAMED}-fails", "loss_pattern": SECRET + r"(\d+)"},
        )
        fails = client.send(pattern)
        ended = client.send(Submission(external=True, options={"name": f"{NAMED}-ended"}))
        line = {"iteration": 0, "loss": 1.0, "time": 1e9, "cpu": 0.1, "pid": 7, f"{SECRET}metric": 2.0}
        client.report(ended.id, json.dumps(line).encode() + b"\n", offset=0)
        client.change(ended.id, tags=[f"{SECRET}-changed"])
        client.end(ended.id, state=JobState.FAILED, reason=f"{SECRET} reason")
        until(lambda: client.show_job(ended.id)["state"] == "failed" == client.show_job(fails.id)["state"])
        until(lambda: client.show_job(running.id)["iteration"] >= 2 or client.show_job(running.id)["reason"])
        client.pause(running.id)
        client.resume(running.id)
        assert SECRET in json.dumps([client.show_job(one.id) for one in (running, waits, fails, ended)])
    return [running.id, waits.id, fails.id, ended.id]


def answers(served: Served, header: str, jobs: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what a user is answered by every operation, about every job, as the name of each and all its text."""
    for operation in OPERATIONS:
        about = operation in ABOUT_JOBS
        for job in jobs if about else jobs[:1]:
            response = asked(served, operation, job, header)
            yield operation[0], f"{response.headers}{response.text}"
    listing: dict[str, Any] = {"state": ["failed", "running"], "owner": _owner(served), "limit": 1000}
    queries: list[dict[str, Any]] = [
        listing,
        {"last": 100},
        {"tag": f"{SECRET}-tag"},
        {"tag": f"{SECRET}-changed"},
        {"group": f"{SECRET}-group"},
        {"group": f"{SECRET}-group", "owner": _owner(served)},
    ]
    for query in queries:
        response = httpx.get(f"{served.tcp}/api/v1/jobs", params=query, headers={"Authorization": header})
        yield f"listing by {sorted(query)}", response.text


def stream(served: Served, header: str) -> str:
    """Return all events so far, as a user who comes back late reads them."""
    query = {"after": 0, "idle": 0.05}
    return httpx.get(
        f"{served.tcp}/api/v1/events", params=query, headers={"Authorization": header}, timeout=60
    ).text


def _owner(served: Served) -> str:
    with connect(served.unix) as client:
        return str(client.list_jobs()[0]["owner"])


@contextlib.contextmanager
def planted(tmp_path: Path, visibility: str) -> Iterator[tuple[Served, list[str]]]:
    with serving(tmp_path / "home", visibility=visibility) as served:
        yield served, plant(served, tmp_path)


def test_where_all_may_read_nobody_reads_what_is_anothers(tmp_path: Path) -> None:
    """With visibility "all", no answer and no event holds what ann chose or her jobs wrote, but for names."""
    with planted(tmp_path, "all") as (served, jobs):
        bob = bearer(served, "bob")
        every = [*answers(served, bob, jobs), ("stream", stream(served, bob))]
        assert [name for name, text in every if SECRET in text] == []
        told = dict(every)
        # The jobs were there to be read, and their owner reads it all.
        assert all(job in told["list_jobs"] and job in told["stream"] for job in jobs)
        assert json.loads(told["listing by ['tag']"])["jobs"] == []
        root = bearer(served, "root", admin=True)
        assert SECRET in stream(served, root)
        whole = {name for name, text in answers(served, root, jobs) if SECRET in text}
        assert whole >= {"list_jobs", "show_job", "show_submission", "read_log", "list_observations"}


def test_where_users_see_their_own_nothing_shows_that_there_is_another(tmp_path: Path) -> None:
    """With visibility "own", no answer and no event has anything of ann's jobs, not even a name."""
    with planted(tmp_path, "own") as (served, jobs):
        bob = bearer(served, "bob")
        owner = _owner(served)
        for operation in ABOUT_JOBS:
            for job in jobs:
                there = asked(served, operation, job, bob)
                absent = asked(served, operation, "none-such", bob)
                assert (there.status_code, there.text.replace(job, "none-such")) == (404, absent.text)
        others = [one for one in OPERATIONS if one not in ABOUT_JOBS]
        told = {one[0]: asked(served, one, "none-such", bob).text for one in others}
        told["stream"] = stream(served, bob)
        assert [name for name, text in told.items() if SECRET in text or NAMED in text] == []
        assert [name for name, text in told.items() if f'"{owner}"' in text] == []
        for query in (
            {"owner": owner},
            {"tag": f"{SECRET}-tag"},
            {"group": f"{SECRET}-group", "owner": owner},
            {"last": 10},
        ):
            page = httpx.get(f"{served.tcp}/api/v1/jobs", params=query, headers={"Authorization": bob}).json()
            assert [job for job in page["jobs"] if job["owner"] != "bob"] == []
            assert page["total"] in (None, len(page["jobs"]))


def test_jobs_of_others_cannot_be_waited_for_nor_paged_from(tmp_path: Path) -> None:
    """A name of another's job is refused like one that does not exist, wherever a job is named."""
    with planted(tmp_path, "own") as (served, jobs):
        header = {"Authorization": bearer(served, "bob")}
        asks: list[Callable[[str], httpx.Response]] = [
            lambda job: httpx.post(
                f"{served.tcp}/api/v1/jobs", json={"external": True, "after": [job]}, headers=header
            ),
            lambda job: httpx.get(f"{served.tcp}/api/v1/jobs", params={"after": job}, headers=header),
            lambda job: httpx.get(f"{served.tcp}/api/v1/events", params={"job": job}, headers=header),
            lambda job: httpx.get(f"{served.tcp}/api/v1/curves", params={"job": job}, headers=header),
        ]
        for ask in asks:
            there, absent = ask(jobs[0]), ask("none-such")
            assert there.status_code == absent.status_code == 404
            assert there.text.replace(jobs[0], "none-such") == absent.text


def test_metrics_name_nobody_else(tmp_path: Path) -> None:
    """Of single users, metrics tell an admin all and anyone else only of themselves."""
    with planted(tmp_path, "all") as (served, _), connect(served.unix) as root:
        owner = _owner(served)
        until(lambda: f'slaq_user_cores{{user="{owner}"}}' in root.metrics())
        with served.client("bob") as bob:
            assert "slaq_user_cores{" not in bob.metrics()


def test_troubles_are_for_admins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong may name jobs and paths, so that others learn only that something is."""
    monkeypatch.setattr(Service, "troubles", lambda service: (f"the folder of {SECRET} stays",))
    with serving(tmp_path) as served, served.client("bob") as bob, connect(served.unix) as root:
        assert root.cluster()["troubles"] == root.health()["troubles"] == [f"the folder of {SECRET} stays"]
        for told in (bob.cluster(), bob.health()):
            assert told["troubles"] == [disclosure.TROUBLED]


def test_every_field_of_a_job_is_decided_on() -> None:
    """Each field is either disclosed or withheld; what is withheld is of the same type as what it stands for."""
    assert not disclosure.DISCLOSED & disclosure.WITHHELD.keys()
    assert {one.name for one in fields(JobView)} == disclosure.DISCLOSED | disclosure.WITHHELD.keys()


def test_what_a_notice_carries_is_withheld_unless_it_is_named() -> None:
    """A fact that somebody adds to notices reaches nobody else until it is said that it may."""
    body = dict.fromkeys(("reason", "tags", "note", "summary"), SECRET) | {"state": "failed", "loss": 1.0}
    notice = Notice(number=1, kind="job.ended", at=0.0, job_id="a", owner="ann", body=body)
    seen = disclosure.notice_for_others(notice)
    assert seen == replace(notice, body={"state": "failed", "loss": 1.0, "reason": ""})
