"""Laws of access: nobody who is not known gets anywhere, and nobody gets at what is another's.

Driven by the OpenAPI document, so that a route that is added is tried too.
"""

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from slaq.service.records import Submission
from slaq.web.document import openapi_of
from slaq.web.gate import PROBES
from tests.integration.serving import Served, external, serving

#: What a route that asks for something is asked with; every other body is empty.
BODIES: dict[str, Any] = {
    "submit_job": {"external": True},
    "change_job": {"weight": 2.0},
    "change_group": {"weight": 2.0},
    "end_job": {"state": "completed"},
    "change_cluster": {"policy": "fair"},
    "change_user": {"weight": 2.0},
    "ask_whatif": {"horizon": 1.0},
    "prune": {"dry_run": True},
}
QUERIES: dict[str, dict[str, Any]] = {
    "forecast_job": {"horizon": 1},
    "send_reports": {"offset": 0},
    "follow_events": {"idle": 0.05},
    "list_curves": {"job": "{job_id}"},
}
#: What only admins may do.
ADMINS = {"change_cluster", "change_user", "prune", "back_up", "show_user"}
#: What anyone known may do, since it tells of their own jobs, or of the cluster as a whole, only.
ANYONE = {
    *("submit_job", "list_jobs", "show_cluster", "list_decisions", "show_last_decision", "show_decision"),
    *("change_group", "pause_group", "resume_group", "cancel_group"),
    *("ask_whatif", "list_users", "follow_events", "show_metrics", "show_health", "show_openapi"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as service:
        yield service


@pytest.fixture(scope="module")
def anns_job(served: Served) -> str:
    with served.client("ann") as client:
        return client.send(Submission(external=True, options={"name": "anns", "group": "annsgroup"})).id


def operations() -> list[tuple[str, str, str]]:
    """Return (name, method, path) of everything in the committed OpenAPI document."""
    path = Path(__file__).parents[2] / "docs" / "openapi.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    return [
        (operation["operationId"], method.upper(), route)
        for route, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


OPERATIONS = operations()
NAMES = [name for name, _, _ in OPERATIONS]
ABOUT_JOBS = [
    one for one in OPERATIONS if "{job_id}" in one[2] or "{job_id}" in QUERIES.get(one[0], {}).values()
]


def asked(
    served: Served, operation: tuple[str, str, str], job: str, authorization: str | None
) -> httpx.Response:
    """Ask one operation properly, about that job, with that header."""
    name, method, route = operation
    path = (
        route.replace("{job_id}", job)
        .replace("{name}", "zoe")
        .replace("{group}", "annsgroup")
        .replace("{epoch}", "0")
    )
    query = {key: job if value == "{job_id}" else value for key, value in QUERIES.get(name, {}).items()}
    body = {"json": BODIES[name]} if name in BODIES else {}
    if name == "send_reports":
        body = {"content": b'{"iteration":0,"loss":1.0}\n'}
    headers = {} if authorization is None else {b"Authorization": authorization.encode("latin-1")}
    with httpx.Client(transport=httpx.HTTPTransport(verify=False), timeout=60) as http:
        return http.request(method, served.tcp + path, params=query, headers=headers, **body)


def bearer(served: Served, user: str, *, admin: bool = False) -> str:
    """Return the header of a user with a token."""
    return f"Bearer {served.token(user, admin=admin)}"


def test_every_operation_is_of_one_kind() -> None:
    """Each operation is about a job, for admins, or for anyone: none is left out of these tests."""
    about_jobs = {one[0] for one in ABOUT_JOBS}
    assert about_jobs | ADMINS | ANYONE == set(NAMES)
    assert not about_jobs & (ADMINS | ANYONE)


def test_the_routes_are_those_of_the_document(served: Served) -> None:
    """The document names every route there is, but for the probes."""
    application: Any = served.running.gate.app
    document = openapi_of(application)
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes == {(method, path) for _, method, path in OPERATIONS}


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Basic c2xhcTpzbGFx", "Bearer slaq_wrong", "Bearer \xe9"],
    ids=["none", "empty", "basic", "wrong", "strange"],
)
def test_nobody_unknown_gets_anywhere(
    served: Served, anns_job: str, operation: tuple[str, str, str], authorization: str | None
) -> None:
    """Without a token that is known, every operation is refused, and says how to get one."""
    response = asked(served, operation, anns_job, authorization)
    assert response.status_code == 401
    assert response.headers["content-type"] == "application/problem+json"
    assert "anns" not in response.text


@pytest.mark.parametrize("operation", ABOUT_JOBS, ids=lambda one: str(one[0]))
def test_anothers_job_is_as_unknown_as_none(
    served: Served, anns_job: str, operation: tuple[str, str, str]
) -> None:
    """Whatever is asked about another user's job is answered as if there were no such job, and changes nothing."""
    bob = bearer(served, "bob")
    refused = asked(served, operation, anns_job, bob)
    absent = asked(served, operation, "none-such", bob)
    assert refused.status_code == absent.status_code == 404
    assert refused.text.replace(anns_job, "none-such") == absent.text
    with served.client("ann") as client:
        view = client.job(anns_job).view
    assert not view.state.ended
    assert (view.weight, view.iteration) == (1.0, -1)


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one[0] in ADMINS], ids=lambda one: str(one[0])
)
def test_what_is_for_admins_is_for_admins(
    served: Served, anns_job: str, operation: tuple[str, str, str]
) -> None:
    """What changes the whole, or shows others, is refused to everyone but admins."""
    assert asked(served, operation, anns_job, bearer(served, "bob")).status_code == 403
    assert asked(served, operation, anns_job, bearer(served, "root", admin=True)).status_code < 300


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one[0] in ANYONE], ids=lambda one: str(one[0])
)
def test_what_anyone_may_ask_shows_nothing_of_others(
    served: Served, anns_job: str, operation: tuple[str, str, str]
) -> None:
    """Lists, decisions, events and metrics name no job of another user."""
    response = asked(served, operation, anns_job, bearer(served, "bob"))
    assert response.status_code < 300 or response.status_code == 404
    assert anns_job not in response.text.replace("annsgroup", "")


def test_anothers_group_is_as_unknown_as_none(served: Served, anns_job: str) -> None:
    """Whatever is asked about another user's group is answered as if there were none, and changes nothing."""
    groups = [one for one in OPERATIONS if "{group}" in one[2]]
    assert len(groups) == 4
    bob = bearer(served, "bob")
    for name, method, route in groups:
        refused = asked(served, (name, method, route), anns_job, bob)
        absent = asked(served, (name, method, route.replace("{group}", "none-such")), anns_job, bob)
        assert refused.status_code == absent.status_code == 404
        assert refused.text.replace("annsgroup", "none-such") == absent.text
        named = httpx.request(
            method,
            served.tcp + route.replace("{group}", "annsgroup"),
            params={"owner": "ann"},
            json=BODIES.get(name),
            headers={"Authorization": bob},
        )
        assert named.status_code == 403
    with served.client("ann") as client, served.client("root", admin=True) as root:
        assert (client.job(anns_job).state, client.job(anns_job).view.weight) == ("running", 1.0)
        assert root.list_jobs(group="annsgroup") == []
        (found,) = root.change_group("annsgroup", owner="ann", weight=1.0)
        assert found["id"] == anns_job == root.list_jobs(group="annsgroup", owner="ann")[0]["id"]


def test_reading_all_is_not_touching_all(tmp_path: Path) -> None:
    """Where everyone may read all jobs, others' logs, commands and environments stay closed, and so do changes."""
    with serving(tmp_path, visibility="all") as served:
        with served.client("ann") as client:
            job = external(client)
        bob = bearer(served, "bob")
        replies = {one[0]: asked(served, one, job, bob) for one in ABOUT_JOBS}
    open_to_all = {"show_job", "list_observations", "list_curves", "list_allocations", "forecast_job"}
    assert {name for name, reply in replies.items() if reply.status_code == 403} == set(replies) - open_to_all


@pytest.mark.parametrize("path", sorted(PROBES))
def test_probes_say_a_word_or_two_to_anyone(served: Served, path: str) -> None:
    """A probe needs no token, and tells nothing but whether the service is there and whether it is well."""
    response = httpx.get(served.tcp + path)
    said = {"/healthz": {"status": "ok"}, "/readyz": {"status": "ready", "health": "ok"}}
    assert (response.status_code, response.json()) == (200, said[path])


def test_the_kernel_says_who_is_at_the_socket(served: Served) -> None:
    """On the Unix socket a token changes nothing: the peer's user is who asks."""
    transport = httpx.HTTPTransport(uds=str(served.settings.listen))
    headers = {"Authorization": bearer(served, "ann")}
    with httpx.Client(transport=transport, headers=headers) as http:
        users = http.get("http://localhost/api/v1/users").json()["users"]
    assert pwd.getpwuid(os.getuid()).pw_name in [user["user"] for user in users]


#: Sends what it is given as another user, and prints what comes back.
AS_OTHER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(sys.stdin.buffer.read())
while piece := connection.recv(65536):
    sys.stdout.buffer.write(piece)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_unix_user_is_no_admin() -> None:
    """Another Unix user at the socket sees only their own, and does what users may."""

    def said(socket: Path, method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        command = [sys.executable, "-c", AS_OTHER, str(socket)]
        sent = head.encode() + body
        return subprocess.run(command, input=sent, capture_output=True, timeout=60, check=True).stdout

    # Not in pytest's own folder, which others cannot reach.
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as one:
        Path(folder).chmod(0o711)
        socket = one.settings.listen
        socket.chmod(0o666)
        with one.client("ann") as client:
            job = external(client)
        users = said(socket, "GET", "/api/v1/users")
        seen = said(socket, "GET", f"/api/v1/jobs/{job}")
        changed = said(socket, "PATCH", "/api/v1/cluster", b'{"policy": "fair"}')
    listed = json.loads(users.partition(b"\r\n\r\n")[2])["users"]
    assert [user["user"] for user in listed] == [pwd.getpwuid(65534).pw_name]
    assert b" 404 " in seen.partition(b"\r\n")[0]
    assert b" 403 " in changed.partition(b"\r\n")[0]
