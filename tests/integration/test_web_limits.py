"""Laws of the gate and the sockets: what is sent, how often, to whom, and over what."""

import json
import logging
import socket
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.client import connect
from slaq.config.service import Address, ServiceSettings
from slaq.core.errors import AddressError, IdentityError, RequestError, ServiceFaultError
from slaq.service.service import Service
from slaq.web import models, protocol
from slaq.web.logs import JsonLines, Text
from slaq.web.notify import notify, notify_reloading
from slaq.web.rates import Rates
from slaq.web.sockets import tcp_socket, tls_context, unix_socket
from tests.integration.serving import LOOPBACK, Served, external, serving, spoken

SMALL = 4096


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home"), max_request_bytes=SMALL) as service:
        yield service


def said(served: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a request over the Unix socket as it is; return status, headers and body."""
    heard = spoken(served.settings.listen, request)
    head, _, body = heard.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest), body


# Rates.


@given(
    rate=st.floats(0.1, 1e4),
    burst=st.integers(1, 50),
    steps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
)
def test_no_more_than_rate_and_burst_pass(rate: float, burst: int, steps: list[float]) -> None:
    """In any stretch of time at most `burst` plus `rate` times its length get through, and waiting helps."""
    now = 0.0
    rates = Rates(rate, burst, lambda: now)
    passed = []
    for step in steps:
        now += step / rate
        seconds = rates.wait("ann")
        if not seconds:
            passed.append(now)
        else:
            assert 0 < seconds <= 1 / rate + 1e-9
            now += seconds
            assert rates.wait("ann") == 0
            passed.append(now)
    for first, start in enumerate(passed):
        for last, end in enumerate(passed[first:], first):
            assert last - first + 1 <= burst + rate * (end - start) + 1e-6


def test_one_asker_does_not_use_up_anothers_requests() -> None:
    """Each key has a bucket of its own, and a full one is forgotten."""
    now = 0.0
    rates = Rates(1.0, 2.0, lambda: now)
    assert [rates.wait("ann") for _ in range(3)] == [0.0, 0.0, 1.0]
    assert rates.wait("bob") == 0.0
    for number in range(20_000):
        now += 1e-3
        rates.wait(f"user-{number}")
    assert len(rates) <= 10_001


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    """Beyond its rate a user is refused with the seconds to wait; another user is not."""
    with serving(tmp_path, requests_per_second=0.5) as served:
        header = {"Authorization": f"Bearer {served.token('ann')}"}
        replies = [httpx.get(f"{served.tcp}/api/v1/cluster", headers=header) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 429]
        assert 1 <= int(replies[1].headers["retry-after"]) <= 3
        assert "too many requests" in replies[1].json()["detail"]
        other = {"Authorization": f"Bearer {served.token('bob')}"}
        assert httpx.get(f"{served.tcp}/api/v1/cluster", headers=other).status_code == 200


def test_the_client_waits_for_its_turn(tmp_path: Path) -> None:
    """A client that asks too often is slowed down, not refused."""
    with serving(tmp_path, requests_per_second=20.0) as served, served.client("ann") as client:
        for _ in range(45):
            assert client.cluster()["queued"] == 0


# Sizes.


def test_a_body_that_says_it_is_too_large_is_not_read(served: Served) -> None:
    """A request is refused by the length it announces, before any of it is sent."""
    status, headers, body = said(
        served,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 99999999999\r\n\r\n",
    )
    assert (status, headers["connection"]) == (413, "close")
    assert f"larger than {SMALL} bytes" in json.loads(body)["detail"]


def test_a_body_in_chunks_is_counted_too(served: Served) -> None:
    """A request that announces no length is refused as soon as it is too large."""
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    status, _, _ = said(
        served,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 5,
    )
    assert status == 413


def test_a_body_of_the_largest_size_is_taken(served: Served) -> None:
    """The limit itself is allowed."""
    body = json.dumps({"external": True, "name": "whole"}).encode().ljust(SMALL)
    status, _, _ = said(
        served,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % SMALL + body,
    )
    assert status == 201


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 4000,
        b'{"external": true, "weight": NaN}',
        b'{"external": true, "weight": 1e999}',
        b'{"external": true, "max_iterations": ' + b"9" * 500 + b"}",
        b'{"external": true, "name": "\\ud800"}',
        b'{"external": true, "name": "../../etc"}',
        b'{"external": true, "tags": ["\\u0000"]}',
        b'{"command": ["a\\u0000b"]}',
        b'{"program": {"algorithm": "\\ud800"}}',
        b'{"program": ' + b'{"a":' * 50 + b"1" + b"}" * 51,
        b'{"external": true, "extra": 1}',
        b'{"external": "true"}',
        b'{"command": [], "external": false}',
        b"\xff\xfe",
        b"null",
        b"",
    ],
)
def test_bodies_that_make_no_sense_are_refused_in_a_sentence(served: Served, body: bytes) -> None:
    """Whatever is sent as a job is taken or refused with a reason; it never breaks anything."""
    status, headers, answer = said(
        served,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body,
    )
    assert status in (400, 422)
    assert headers["content-type"] == "application/problem+json"
    assert json.loads(answer)["detail"]


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("whatif", {f"k{key}": 1 for key in range(models.MOST_KEYS + 1)}),
        ("jobs", {f"k{key}": 1 for key in range(models.MOST_KEYS + 1)}),
        ("jobs", {"external": True, "long" * 25_000: 1}),
        ("jobs", {"program": {"algorithm": [1] * models.MOST_VALUES}}),
        ("jobs", {"program": {"algorithm": [[{}] * 100] * (models.MOST_VALUES // 100)}}),
    ],
)
def test_what_is_refused_is_refused_as_a_whole(tmp_path: Path, address: str, body: dict[str, Any]) -> None:
    """A body with more in it than any request has is refused in one short sentence, not value by value."""
    with (
        serving(tmp_path) as served,
        httpx.Client(transport=httpx.HTTPTransport(uds=str(served.settings.listen))) as client,
    ):
        answer = client.post(f"http://localhost/api/v1/{address}", json=body)
    assert answer.status_code == 422
    assert len(answer.content) < 4000
    assert answer.json()["detail"].count(";") < 3


def test_a_head_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not send a whole head in time is closed."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    with serving(tmp_path) as served:
        assert spoken(served.settings.listen, b"GET /healthz HTTP/1.1\r\n") == b""
        assert spoken(served.settings.listen, b"") == b""


def test_nonsense_is_no_http(served: Served) -> None:
    """What is no HTTP is refused, and the service goes on."""
    assert b" 400 " in spoken(served.settings.listen, b"\x16\x03\x01 hello\r\n\r\n")
    assert said(served, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[0] == 200


# Hosts and headers.


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("", 421),
    ],
)
def test_loopback_answers_to_its_own_names_only(served: Served, host: str, status: int) -> None:
    """A name that was rebound to this machine gets no answer, with or without a token."""
    response = httpx.get(f"{served.tcp}/healthz", headers={"Host": host})
    assert response.status_code == status


def test_every_reply_has_the_security_headers(served: Served) -> None:
    """Replies are not cached, sniffed or framed, name no software, and invite no other origin."""
    for path in ("/healthz", "/api/v1/cluster", "/nowhere"):
        headers = httpx.get(f"{served.tcp}{path}", headers={"Origin": "https://evil.example"}).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not {"server", "access-control-allow-origin"} & set(headers)


def test_a_misspelt_parameter_is_not_passed_over(served: Served) -> None:
    """A parameter that a route does not have is refused with the one that was meant."""
    status, _, body = said(
        served, b"GET /api/v1/jobs?stat=running HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    assert status == 422
    assert "there is no parameter 'stat'; did you mean 'state'?" in json.loads(body)["detail"]


def test_unknown_addresses_and_methods_are_told_so(served: Served) -> None:
    """What is not there is a problem like any other."""
    header = {"Authorization": f"Bearer {served.token('ann')}"}
    missing = httpx.get(f"{served.tcp}/api/v1/nowhere", headers=header)
    wrong = httpx.put(f"{served.tcp}/api/v1/cluster", headers=header)
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert sorted(wrong.headers["allow"].split(", ")) == ["GET", "PATCH"]
    assert "openapi.json" in missing.json()["detail"]


def test_streams_of_one_user_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who holds as many streams open as they may gets no more until one ends; another user does."""
    monkeypatch.setattr("slaq.web.events.STREAMS", 1)
    ask = b"GET /api/v1/events?idle=0.01 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
    with serving(tmp_path) as served:
        ann, bob = (served.token(user).encode() for user in ("ann", "bob"))
        url = f"{served.tcp}/api/v1/events"
        header = {"Authorization": f"Bearer {ann.decode()}"}
        with httpx.stream("GET", url, headers=header) as first:
            assert first.status_code == 200
            lines = first.iter_lines()  # held, since letting go of it ends the stream
            next(lines)
            second = httpx.get(url, headers=header, params={"idle": 0.01})
            assert (second.status_code, "retry-after" in second.headers) == (429, False)
            address = Address(host="127.0.0.1", port=served.running.port or 0)
            assert b" 200 OK" in spoken(address, ask % bob, until=b"listening")
        while httpx.get(url, headers=header, params={"idle": 0.01}).status_code == 429:
            pass


# Sockets.


def test_the_socket_is_its_owners_alone(tmp_path: Path) -> None:
    """The Unix socket is closed to others, or open to one group."""
    with unix_socket(tmp_path / "own.sock", None):
        assert stat.S_IMODE((tmp_path / "own.sock").stat().st_mode) == 0o600
    group = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    with unix_socket(tmp_path / "shared.sock", group):
        assert stat.S_IMODE((tmp_path / "shared.sock").stat().st_mode) == 0o660


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    """A stale socket is taken over; one that is answered, and a file, are left alone."""
    path = tmp_path / "slaq.sock"
    unix_socket(path, None).close()
    with unix_socket(path, None):
        with pytest.raises(AddressError, match="a service answers there already"):
            unix_socket(path, None)
        assert path.exists()
    plain = tmp_path / "plain"
    plain.write_text("precious")
    with pytest.raises(AddressError, match="not a socket"):
        unix_socket(plain, None)
    assert plain.read_text() == "precious"


def test_an_address_in_use_is_told_in_a_sentence() -> None:
    """A port that is taken, and an address that is not here, say what to choose instead."""
    with tcp_socket(LOOPBACK) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match="something listens there already; choose another"):
            tcp_socket(Address(host="127.0.0.1", port=port))
    with pytest.raises(AddressError):
        tcp_socket(Address(host="192.0.2.1", port=0))


def test_off_loopback_there_is_tls_or_nothing(tmp_path: Path) -> None:
    """An address that others can reach is not listened on without TLS."""
    settings = ServiceSettings(home=tmp_path, listen=tmp_path / "s", tcp=Address(host="0.0.0.0", port=0))
    with pytest.raises(AddressError, match="no TLS; give tls_cert and tls_key"):
        tls_context(settings)
    assert tls_context(replace(settings, tcp=LOOPBACK)) is None
    (tmp_path / "bad.pem").write_text("nothing")
    bad = replace(settings, tls_cert=tmp_path / "bad.pem", tls_key=tmp_path / "bad.pem")
    with pytest.raises(AddressError, match="cannot be used"):
        tls_context(bad)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://example.com:8642", "must be reached by https"),
        ("ftp://example.com", "not the address of a service"),
        ("slaq.sock", "not the address of a service"),
        ("https://", "not the address of a service"),
        ("http://127.0.0.1:notaport", "this is not a valid address"),
        ("unix://relative/path", "not the address of a service"),
    ],
)
def test_a_client_sends_no_token_in_the_clear(address: str, told: str) -> None:
    """An address that is none, or would show the token to the network, is refused before anything is sent."""
    with pytest.raises(AddressError, match=told):
        connect(address, "slaq_secret")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        ["openssl", *options.split(), *names, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls_from_end_to_end(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that trusts the certificate gets in over TLS; plain HTTP at that port gets nothing."""
    cert, key = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    with serving(tmp_path, tls_cert=cert, tls_key=key) as served:
        port = served.running.port
        with connect(f"https://localhost:{port}", served.token("ann")) as client:
            assert client.cluster()["queued"] == 0
        with connect(f"https://localhost:{port}", "wrong") as client, pytest.raises(IdentityError):
            client.cluster()
        assert spoken(Address(host="127.0.0.1", port=port or 0), b"GET /healthz HTTP/1.1\r\n\r\n") == b""
        with connect(served.unix) as client:  # the Unix socket needs none
            assert client.cluster()["queued"] == 0


# Signals, logs, and systemd.


def test_a_reload_takes_up_what_can_change(tmp_path: Path) -> None:
    """After a reload new limits are in force, without a restart."""
    with serving(tmp_path) as served, served.client("ann") as client:
        external(client)
        served.running._reread = lambda: replace(served.settings, max_request_bytes=1024)
        served.running.reload()

        def report_until_refused() -> None:
            for _ in range(10_000):
                client.report("elsewhere", b" " * 2000 + b"\n", offset=10**6)

        with pytest.raises(RequestError, match="larger than 1024 bytes"):
            report_until_refused()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """A service that stops takes its socket away; one that starts, the copies its forerunner was killed over."""
    draft = tmp_path / "backup-abc"
    draft.mkdir()
    (draft / "slaq.db").write_text("half")
    with serving(tmp_path) as served:
        assert served.settings.listen.exists()
        assert not draft.exists()
        with connect(served.unix) as client:
            client.backup(tmp_path / "copy.db")
        assert not list(tmp_path.glob("backup-*"))
    assert not served.settings.listen.exists()


def test_a_defect_is_told_with_where_the_log_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody foresaw is a 500 with a reference, which the log has too, and tells nothing of the inside."""

    def broken(*arguments: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(Service, "cluster", broken)
    with serving(tmp_path) as served, connect(served.unix) as client:
        with pytest.raises(ServiceFaultError) as raised:
            client.cluster()
        assert "secret" not in str(raised.value)
        assert client.health()["ready"]
    logged = [one for one in caplog.records if getattr(one, "reference", None) == raised.value.reference]
    assert len(logged) == 1
    assert logged[0].exc_info


def record(**extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": "job ended", "levelname": "INFO", "created": 0.0, **extra})


@given(st.text(max_size=50))
def test_an_event_is_one_line_whatever_it_carries(text: str) -> None:
    """A log line, as text or as JSON, stays one line that says what was given."""
    one = JsonLines().format(record(job=text))
    assert json.loads(one)["job"] == text
    assert len(one.splitlines()) == 1
    assert Text().format(record(job=text)).isprintable()


def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States go to the socket that systemd names; without one nothing happens."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(30)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        notify_reloading()
        assert systemd.recv(100) == b"READY=1"
        assert systemd.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
