"""Laws of connections: whoever holds how many, others get answers, and neither descriptors nor the log run out."""

import errno
import io
import json
import logging
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from slaq.client import connect
from slaq.config.service import Address
from slaq.core.errors import LimitError, RateError
from slaq.service.records import ClusterView, Identity
from slaq.service.service import Service
from slaq.web import cluster_routes, gate, logs, protocol, server
from slaq.web.connections import Key, Place, Places, network_of
from slaq.web.logs import Handler
from slaq.web.sockets import ListeningSocket, unix_socket
from tests.integration.serving import PATIENCE, external, serving, spoken, until

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

#: Opens connections as another user, sends half a request on each, and says how many it could open.
HALF_SENT = """
import os, resource, socket, sys
path, uid, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
if os.getuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
held = []
for _ in range(count):
    try:
        one = socket.socket(socket.AF_UNIX)
        one.connect(path)
        held.append(one)
        one.send(b"GET /api/v1/cluster HTTP/1.1\\r\\nHost: localhost\\r\\nX-Half: ")
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""
#: Opens a connection as each of so many users, sends half a request on it, and says how many it could open.
AS_MANY = """
import os, socket, sys
held = []
for uid in range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])):
    os.seteuid(uid)
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
    os.seteuid(0)
    try:
        held[-1].send(b"GET /api/v1/cluster HTTP/1.1\\r\\nHost: localhost\\r\\nX-Half: ")
    except OSError:
        pass
print(len(held), flush=True)
sys.stdin.read()
"""
#: Asks once as another user, and prints the answer.
ASKS = """
import os, socket, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
one.sendall(b"GET /api/v1/cluster HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
while piece := one.recv(65536):
    sys.stdout.buffer.write(piece)
"""


@contextmanager
def half_sent(path: Path, uid: int, count: int) -> Iterator[int]:
    """Hold half-sent requests of another user open; give how many could be opened."""
    command = [sys.executable, "-c", HALF_SENT, str(path), str(uid), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


def answer_to(path: Path, uid: int) -> bytes:
    command = [sys.executable, "-c", ASKS, str(path), str(uid)]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout


# Places.


class World:
    """Places, and connections that are closed some time after they were given up."""

    def __init__(self, total: int, each: int) -> None:
        self.places = Places(total, lambda: each)
        self.open: list[Place] = []
        self.given_up: list[Place] = []
        self.count = 0

    def connect(self, key: Key, *, admin: bool = False) -> bool:
        self.count += 1
        place = Place(self.count, key, lambda: self.given_up.append(place))
        place.admin = admin
        taken = self.places.take(place)
        if taken:
            self.open.append(place)
        return taken

    def close(self, place: Place) -> None:
        self.open.remove(place)
        self.places.leave(place)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["connect", "admin", "close", "work", "wait", "move"]),
        st.integers(0, 3),
        st.integers(0, 30),
    ),
    max_size=120,
)


@given(total=st.integers(8, 40), each=st.integers(1, 20), steps=STEPS)
def test_no_limit_is_ever_passed(total: int, each: int, steps: list[tuple[str, int, int]]) -> None:
    """Whatever happens, all connections fit the total, and no user has more than their share of them."""
    world = World(total, each)
    for act, user, number in steps:
        place = world.open[number % len(world.open)] if world.open else None
        if act in ("connect", "admin"):
            world.connect(("uid", user), admin=act == "admin")
        elif place is not None and act == "close":
            world.close(place)
        elif place is not None and act == "work":
            world.places.work(place)
        elif place is not None and act == "wait":
            world.places.wait(place)
        elif place is not None:
            world.places.move(place, ("user", str(user)), admin=False)
        assert len(world.places) == len(world.open) <= total
        held = Counter(place.key for place in world.open if not place.given_up)
        assert max(held.values(), default=0) <= each
    for place in list(world.open):
        world.close(place)
    assert not len(world.places)
    assert not world.places._held
    assert not world.places._waiting


@given(total=st.integers(64, 4096), each=st.integers(1, 5000), users=st.integers(1, 4))
def test_however_greedy_others_are_there_is_a_place(total: int, each: int, users: int) -> None:
    """Beside several users who take all they can and answer nothing, a newcomer and an admin get a place."""
    world = World(total, each)
    for user in range(users):
        while world.connect(("uid", user)) and not world.given_up:
            world.places.work(world.open[-1])
    assert world.connect(("uid", 99))
    for _ in range(world.places.kept):
        assert world.connect(("uid", 1000), admin=True) or world.given_up


def test_the_connection_that_has_waited_longest_is_given_up() -> None:
    """A user at their limit gets a new connection for their oldest idle one, and none where all are at work."""
    world = World(64, 3)
    for _ in range(3):
        assert world.connect(("uid", 1))
    first, second, third = world.open
    world.places.work(first)
    assert world.connect(("uid", 1))
    assert world.given_up == [second]
    for place in (third, world.open[-1]):
        world.places.work(place)
    assert not world.connect(("uid", 1))
    world.places.wait(first)
    assert world.connect(("uid", 1))
    assert world.given_up == [second, first]


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("127.0.0.1", "loopback"),
        ("127.8.9.10", "loopback"),
        ("::1", "loopback"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_addresses_that_one_user_can_choose_from_count_as_one(host: str, network: str) -> None:
    """All of loopback, and all of an IPv6 network, are one."""
    assert network_of(host) == network


# The service.


@as_root
@pytest.mark.slow
def test_thousands_of_half_sent_requests_shut_nobody_out() -> None:
    """While one user holds thousands of half-sent requests, root, another user, and that user are answered."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as served:
        Path(folder).chmod(0o711)
        path = served.settings.listen
        path.chmod(0o666)
        for connections in (300, 4300):
            with half_sent(path, 65534, connections) as opened:
                assert opened
                health = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                assert b" 200 OK" in spoken(path, health)
                with connect(served.unix) as root:
                    assert root.health()["ready"]
                for uid in (pwd.getpwnam("daemon").pw_uid, 65534):
                    assert b" 200 OK" in answer_to(path, uid).partition(b"\r\n")[0]
                assert len(served.running.places) < 300
        until(lambda: len(served.running.places) < 10)


@as_root
def test_numbers_that_belong_to_no_user_count_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may use many numbers of users, as in a namespace, is one user, and takes nobody's place or cores."""
    monkeypatch.setattr(server, "most_connections", lambda: 64)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "home") as served:
        Path(folder).chmod(0o711)
        path = served.settings.listen
        path.chmod(0o666)
        command = [sys.executable, "-c", AS_MANY, str(path), "300000", "70"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == b"70\n"
            assert b" 200 OK" in answer_to(path, 65534).partition(b"\r\n")[0]
            process.stdin.close()
        refused = answer_to(path, 300_000)
        assert b" 403 " in refused.partition(b"\r\n")[0]
        assert b"300000 may not use this service without an account" in refused


def test_a_user_who_has_all_their_connections_is_refused_and_others_are_not(tmp_path: Path) -> None:
    """Connections over TCP count for the user of their token: one who has too many is told so, another is not."""
    with serving(tmp_path, connections_per_user=2) as served:
        tokens = {user: {"Authorization": f"Bearer {served.token(user)}"} for user in ("ann", "bob")}
        url, cluster = f"{served.tcp}/api/v1/events", f"{served.tcp}/api/v1/cluster"
        with (
            httpx.stream("GET", url, headers=tokens["ann"]) as one,
            httpx.stream("GET", url, headers=tokens["ann"]) as two,
        ):
            lines = [stream.iter_lines() for stream in (one, two)]
            assert [next(line) for line in lines] == [": listening"] * 2
            refused = httpx.get(cluster, headers=tokens["ann"])
            assert (refused.status_code, refused.headers["connection"]) == (429, "close")
            assert "as many connections open as a user may have" in refused.json()["detail"]
            assert httpx.get(cluster, headers=tokens["bob"]).status_code == 200


def test_requests_that_nobody_finishes_make_way_over_tcp_too(tmp_path: Path) -> None:
    """Beside half-sent requests of strangers, whoever sends a whole one is answered."""
    with serving(tmp_path, connections_per_user=4) as served:
        address = ("127.0.0.1", served.running.port or 0)
        held = []
        for _ in range(40):
            one = socket.create_connection(address)
            one.send(b"GET /api/v1/cluster HTTP/1.1\r\nX-Half: ")
            held.append(one)
        header = {"Authorization": f"Bearer {served.token('ann')}"}
        assert httpx.get(f"{served.tcp}/api/v1/cluster", headers=header).status_code == 200
        assert len(served.running.places) <= 8
        for one in held:
            one.close()


def test_a_connection_for_which_there_is_no_place_is_told_so_at_once(tmp_path: Path) -> None:
    """Where all of a user's connections are at work, a further one gets a refusal that says what to do."""
    with serving(tmp_path, connections_per_user=1) as served:
        ask = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(served.settings.listen))
            stream.sendall(ask)
            heard = b""
            while b"listening" not in heard:
                heard += stream.recv(65536)
            answer = spoken(served.settings.listen, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert "close some" in json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
            with connect(served.unix, patience=0.0) as client, pytest.raises(LimitError):
                client.cluster()
        with connect(served.unix) as client:
            until(lambda: len(served.running.places) == 0)
            assert client.health()["ready"]


def test_a_head_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """The head of a request takes no more memory than it may, however fast it is sent."""
    with serving(tmp_path) as served:
        with suppress(BrokenPipeError, ConnectionResetError):
            answer = spoken(served.settings.listen, b"GET / HTTP/1.1\r\nX: " + b"x" * 4 * protocol.HEAD_BYTES)
            assert b" 431 " in answer.partition(b"\r\n")[0]
        with connect(served.unix) as client:
            assert client.health()["ready"]


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a:b\r\n" * (protocol.MOST_HEADERS + 1),
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\r\nc: d\r\n",
        b"GET /api/v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000,
    ],
    ids=["headers", "trailers", "requests"],
)
def test_parts_of_a_request_that_cost_more_than_their_bytes_are_counted(tmp_path: Path, sent: bytes) -> None:
    """More headers than any client sends, headers after the body, and requests in a long row end a connection."""
    with serving(tmp_path) as served:
        heard = b""
        with suppress(BrokenPipeError, ConnectionResetError):
            heard = spoken(served.settings.listen, sent)
            assert b"HTTP/1.1 400 " in heard
        assert heard.count(b"HTTP/1.1 200 ") <= protocol.MOST_WAITING + 1
        with connect(served.unix) as client:
            assert client.health()["ready"]


def test_a_few_requests_in_a_row_are_all_answered(tmp_path: Path) -> None:
    """Requests that are sent before the first one is answered are answered in their order."""
    ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with serving(tmp_path) as served:
        heard = spoken(served.settings.listen, ask * protocol.MOST_WAITING + last)
        assert heard.count(b"HTTP/1.1 200 ") == protocol.MOST_WAITING + 1


def test_what_one_connection_sends_is_taken_in_by_small_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is sent at once, others have their turns after every few thousand bytes of it."""
    sizes: list[int] = []
    plain: Callable[[protocol.PeerProtocol, bytes], None] = protocol.PeerProtocol.data_received

    def noted(one: protocol.PeerProtocol, data: bytes) -> None:
        sizes.append(len(data))
        plain(one, data)

    monkeypatch.setattr(protocol.PeerProtocol, "data_received", noted)
    lines = b" " * 2**20 + b"\n"
    with serving(tmp_path) as served, connect(served.unix) as client:
        assert client.report(external(client), lines, offset=0, source="x") == len(lines)
    assert sum(sizes) > len(lines)
    assert max(sizes) <= 16384


def test_large_requests_of_one_user_wait_for_each_other_and_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large bodies a user sends two at a time; small requests are answered beside them, and all in the end."""
    reading: list[int] = []
    at_once: list[int] = []
    plain: Callable[..., Any] = gate.Gate._body

    async def noted(one: gate.Gate, headers: Any, receive: Any, most: int) -> Any:
        if int(headers.get("content-length", "0")) <= gate.LARGE:
            return await plain(one, headers, receive, most)
        reading.append(1)
        at_once.append(len(reading))
        try:
            return await plain(one, headers, receive, most)
        finally:
            reading.pop()

    monkeypatch.setattr(gate.Gate, "_body", noted)
    body = b'{"external": true}' + b" " * gate.LARGE
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(tmp_path) as served, connect(served.unix) as client:
        held = [socket.socket(socket.AF_UNIX) for _ in range(6)]
        for one in held:
            one.connect(str(served.settings.listen))
            one.sendall(head + body[:100])
        until(lambda: len(reading) == gate.LARGE_AT_A_TIME)
        assert external(client)
        for one in held:
            one.sendall(body[100:])
        assert all(one.recv(12) == b"HTTP/1.1 201" for one in held)
        for one in held:
            one.close()
    assert len(at_once) == len(held)
    assert max(at_once) == gate.LARGE_AT_A_TIME


def test_json_is_shorter_than_reports(tmp_path: Path) -> None:
    """A body that is parsed as a whole, while everybody waits, is refused where reports are taken."""
    with serving(tmp_path) as served, connect(served.unix) as client:
        job, more = external(client), b" " * gate.MOST_JSON + b"\n"
        assert client.report(job, more, offset=0, source="x") == len(more)
        head = b"POST /api/v1/whatif HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(more)
        assert b" 413 " in spoken(served.settings.listen, head).partition(b"\r\n")[0]


def test_whoever_leaves_a_stream_of_events_is_no_defect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that leaves while it is being told of events is not logged as a request that failed."""
    ask = b"GET /api/v1/events?idle=0.001 HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n\r\n"
    with serving(tmp_path) as served, connect(served.unix) as client:
        job = external(client)
        for count in range(200):
            client.change(job, weight=1.0 + count % 2)
        for _ in range(100):
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(served.settings.listen))
                one.sendall(ask)
                one.recv(100)
        until(lambda: len(served.running.places) <= 1)
    assert "request failed" not in caplog.text


def test_a_body_that_stops_coming_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose body falls silent is refused, and its connection ends."""
    monkeypatch.setattr(gate, "SILENT_SECONDS", 0.2)
    with serving(tmp_path) as served:
        head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        answer = spoken(served.settings.listen, head)
        assert b" 408 " in answer.partition(b"\r\n")[0]
        assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("request_line", [b"GET /healthz", b"POST /api/v1/jobs", b"POST /nowhere"])
def test_an_unknown_user_gets_nothing_waited_for(tmp_path: Path, request_line: bytes) -> None:
    """Whoever has no token is answered before any body comes, and their connection ends."""
    with serving(tmp_path) as served:
        address = Address(host="127.0.0.1", port=served.running.port or 0)
        answer = spoken(address, request_line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        assert answer.startswith((b"HTTP/1.1 401", b"HTTP/1.1 200"))
        assert b"connection: close" in answer.lower()


def test_an_answer_that_nobody_takes_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks on and on and reads nothing loses its connection."""
    monkeypatch.setattr(protocol, "TAKE_SECONDS", 0.2)
    ask = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(tmp_path) as served, socket.socket(socket.AF_UNIX) as greedy:
        greedy.connect(str(served.settings.listen))
        greedy.sendall(protocol.MOST_WAITING * ask)
        until(lambda: len(served.running.places) == 1)
        until(lambda: len(served.running.places) == 0)


def test_the_requests_of_one_user_leave_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests of one user are being answered, another user's are answered beside them."""
    free = threading.Event()
    plain: Callable[[Service, Identity], ClusterView] = Service.cluster

    def slow(service: Service, who: Identity) -> ClusterView:
        if who.user == "ann":
            free.wait(PATIENCE)
        return plain(service, who)

    monkeypatch.setattr(Service, "cluster", slow)
    with serving(tmp_path) as served:
        token = served.token("ann")
        ask = b"GET /api/v1/cluster HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
        held = [socket.create_connection(("127.0.0.1", served.running.port or 0)) for _ in range(60)]
        for one in held:
            one.sendall(ask % token.encode())
        until(
            lambda: served.running.gate._turns.get("ann") and served.running.gate._turns["ann"].wanted == 60
        )
        with served.client("bob") as bob:
            assert bob.cluster()["queued"] == 0
        free.set()
        assert all(one.recv(12) == b"HTTP/1.1 200" for one in held)
        for one in held:
            one.close()
        until(lambda: not served.running.gate._turns)


def test_one_user_asks_one_whatif_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second simulation of a user has to wait for the first, and another user's does not."""
    begun, free = threading.Event(), threading.Event()

    def simulated(service: Service, who: Identity, **asked: Any) -> dict[str, Any]:
        if who.user == "ann":
            begun.set()
            free.wait(PATIENCE)
        return {"horizon": 1.0, "replays": []}

    monkeypatch.setattr(Service, "whatif", simulated)
    monkeypatch.setattr(cluster_routes, "REPLAYS", 2)
    with serving(tmp_path) as served, served.client("ann") as ann, served.client("bob") as bob:
        first = threading.Thread(target=ann.whatif)
        first.start()
        assert begun.wait(PATIENCE)
        with connect(served.tcp, served.token("ann"), patience=0.0) as hasty, pytest.raises(RateError):
            hasty.whatif()
        assert bob.whatif()["replays"] == []
        free.set()
        first.join()


# Descriptors.


def test_without_descriptors_connections_are_closed_and_others_come_later(tmp_path: Path) -> None:
    """Where every descriptor is taken, whoever waits is sent away at once, and the next one is accepted."""
    places = Places(64, lambda: 10)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    with ListeningSocket(unix_socket(tmp_path / "s", None), places) as listener:
        listener.setblocking(False)
        taken = []
        for client in clients[:1]:
            client.connect(str(tmp_path / "s"))
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            with pytest.raises(BlockingIOError):
                listener.accept()
        finally:
            for descriptor in taken:
                os.close(descriptor)
        assert clients[0].recv(1) == b""
        clients[1].connect(str(tmp_path / "s"))
        accepted, _ = listener.accept()
        assert len(places) == 1
        accepted.close()
        assert len(places) == 0
    for client in clients:
        client.close()


def test_a_listener_without_its_spare_pauses(tmp_path: Path) -> None:
    """Where not even the spare descriptor can be had again, the error is raised once, and then nothing is tried."""
    with ListeningSocket(unix_socket(tmp_path / "s", None), Places(64, lambda: 10)) as listener:
        listener.setblocking(False)
        assert listener._spare is not None
        os.close(listener._spare)
        listener._spare = None
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            taken = []
            try:
                with suppress(OSError):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                    listener.accept()
                with pytest.raises(BlockingIOError):
                    listener.accept()
            finally:
                for descriptor in taken:
                    os.close(descriptor)


# The log.


class Recorder(logging.Formatter):
    """Keeps the records that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    @override
    def format(self, record: logging.LogRecord) -> str:
        self.records.append(record)
        return ""


@given(st.lists(st.tuples(st.sampled_from(["ann", "bob", None]), st.floats(0, 20)), max_size=400))
def test_every_line_is_written_or_counted(came: list[tuple[str | None, float]]) -> None:
    """Of each user so many lines a minute are written, and the others are counted in lines that come later."""
    now = 0.0
    handler = Handler(lambda: now)
    handler.setStream(io.StringIO())
    handler.setFormatter(recorder := Recorder())
    written = recorder.records
    for user, pause in came:
        now += pause if pause > 19 else 0.0
        handler.emit(logging.makeLogRecord({"msg": "request", "user": user}))
    now += logs.PERIOD
    handler.tell_left_out()
    plain = [record for record in written if record.msg == "request"]
    counted = sum(vars(record)["count"] for record in written if record.msg == "lines left out")
    assert len(plain) + counted == len(came)
    periods = 1 + sum(pause > 19 for _, pause in came)
    assert len(plain) <= logs.MOST_LINES * 3 * periods


def test_one_users_lines_do_not_keep_anothers_out() -> None:
    """A user who floods the log with refused requests leaves other users' lines in it."""
    handler = Handler(lambda: 0.0)
    handler.setStream(io.StringIO())
    handler.setFormatter(recorder := Recorder())
    written = recorder.records
    for number in range(10_000):
        handler.emit(logging.makeLogRecord({"msg": "request", "user": "ann", "path": f"/{number}"}))
    handler.emit(logging.makeLogRecord({"msg": "request", "user": "bob"}))
    assert [vars(record)["user"] for record in written].count("bob") == 1
    assert len(written) == logs.MOST_LINES + 1


def test_a_flood_of_refused_requests_is_a_few_lines(read_log: Callable[[], str], tmp_path: Path) -> None:
    """Nonsense and refused changes by the hundred leave the log short, and it tells how many there were."""
    with serving(tmp_path) as served:
        header = {"Authorization": f"Bearer {served.token('ann')}"}
        with served.client("ann") as client:
            external(client)
        with httpx.Client(base_url=served.tcp, headers=header) as http:
            for number in range(400):
                assert http.post(f"/api/v1/jobs/none-{number}/cancel").status_code == 404
        for _ in range(300):
            assert b" 400 " in spoken(served.settings.listen, b"\x16\x03\x01 hello\r\n\r\n")
        text = read_log()
    assert text.count("request method=POST") <= 2 * logs.MOST_LINES
    assert text.count("Invalid HTTP request") <= 2 * logs.MOST_LINES
    left_out = [line for line in text.splitlines() if "lines left out" in line]
    counts = {line.partition("like=")[2]: int(line.partition("count=")[2].split()[0]) for line in left_out}
    assert any(count >= 400 - 2 * logs.MOST_LINES for like, count in counts.items() if "ann" in like)


@pytest.fixture
def read_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Log as the service does, into memory; gives a function that returns the log with what was left out."""
    root, lines = logging.getLogger(), io.StringIO()
    before, level = list(root.handlers), root.level
    logs.configure_logs("text", "info")
    (handler,) = root.handlers
    assert isinstance(handler, Handler)
    handler.setStream(lines)

    def read() -> str:
        monkeypatch.setattr(logs, "PERIOD", 0.0)
        logs.tell_left_out()
        return lines.getvalue()

    yield read
    root.removeHandler(handler)
    for other in before:
        root.addHandler(other)
    root.setLevel(level)
