"""The gate in front of the application: it checks who asks, how often, how much is sent, and to which host."""

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slaq.config.service import ServiceSettings
from slaq.core.errors import LimitError, RateError, RequestError, SlaqError
from slaq.service.records import Identity
from slaq.web import PREFIX
from slaq.web.connections import Places
from slaq.web.counts import RequestCounts
from slaq.web.identity import Identities
from slaq.web.problems import problem_response
from slaq.web.rates import Rates

_log = logging.getLogger(__name__)
#: Open to anyone who can connect: they only say that the service is there.
PROBES = frozenset({"/healthz", "/readyz"})
#: Seconds within which the body of a request must have arrived, and seconds in which something of it must.
BODY_SECONDS, SILENT_SECONDS = 60.0, 10.0
#: Requests of one user that are answered at a time; further ones wait. A stream of events does not count.
AT_A_TIME = 8
#: Bytes beyond which a body is large, and requests of one user with a large body that are taken in at a time: while
#: one is parsed, everybody waits.
LARGE, LARGE_AT_A_TIME = 65536, 2
#: Bytes of a body that is JSON, which takes longer than lines of reports; more than any submission needs.
MOST_JSON = 2**20
STREAM = f"{PREFIX}/events"
#: What the addresses end in that take reports.
REPORTS = "/reports"
#: Seconds' worth of a user's requests that may come at once.
BURST_SECONDS = 2.0
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Gate:
    """Passes a request on to the application once the asker is identified and the body is complete.

    The asker is identified before any route is looked for, so that no route can forget to do it.
    """

    def __init__(
        self, app: ASGIApp, settings: ServiceSettings, counts: RequestCounts, places: Places
    ) -> None:
        self.app = app
        self.counts = counts
        self._places = places
        self._turns: dict[str, _Turns] = {}
        self.settings = settings
        self.identities = Identities(settings.tokens, settings.admins)
        self._rates = _rates_of(settings)

    def reset(self, settings: ServiceSettings) -> None:
        """Apply other settings."""
        self.settings = settings
        self.identities.admins = frozenset(settings.admins)
        self._rates = _rates_of(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there are no websockets, and nothing to do at start and stop
        reply = _Reply(send, unread=_has_body(Headers(scope=scope)))
        began = time.monotonic()
        try:
            await self._pass(scope, receive, reply)
        except SlaqError as error:
            await _refuse(error, scope, receive, reply)
        except _RefusalError as refusal:
            await refusal.respond(scope, receive, reply)
        except Exception as error:
            # The application has sent an answer already.
            if not _client_left(error):
                who = scope["state"].get("who")
                told = {
                    "path": scope["path"],
                    "user": None if who is None else who.user,
                    "reference": scope["state"].get("reference"),
                }
                _log.exception("request failed", extra=told)
        finally:
            self._note(scope, reply.status, time.monotonic() - began)

    async def _pass(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        headers = Headers(scope=scope)
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        if state.get("peer") is None:
            self._check_host(scope, headers)
        if scope["path"] in PROBES:
            # Whoever asks is not known, so nothing is waited for.
            await self.app(scope, _replayed(b"", receive), reply)
            return
        who = state["who"] = self._identify(scope, headers)
        seconds = self._rates.wait(who.user)
        if seconds:
            raise RateError(seconds)
        with self._turns_of(who.user) as turns:
            async with turns.large if _may_be_large(headers) else contextlib.nullcontext():
                body = await self._body(headers, receive, self._most_bytes(scope))
                reply.unread = False
                if scope["path"] == STREAM:
                    await self.app(scope, _replayed(body, receive), reply)
                    return
                async with turns.free:
                    await self.app(scope, _replayed(body, receive), reply)

    def _identify(self, scope: Scope, headers: Headers) -> Identity:
        peer = scope["state"].get("peer")
        if peer is not None:
            return self.identities.of_peer(peer)
        # Wrong tokens are not counted: guessing one is hopeless, refusing a guess costs next to nothing, and a
        # limit would lock out everyone behind the same address.
        who = self.identities.of_header(headers.get("authorization"))
        place = scope["state"].get("place")
        if place is not None and not self._places.move(place, ("user", who.user), admin=who.admin):
            error = LimitError(
                f"{who.user} has as many connections open as a user may have", "close some of them"
            )
            raise _RefusalError(error, 429)
        return who

    @contextlib.contextmanager
    def _turns_of(self, user: str) -> Iterator["_Turns"]:
        """Give what the requests of a user wait for, as long as there are any."""
        turns = self._turns.setdefault(user, _Turns())
        turns.wanted += 1
        try:
            yield turns
        finally:
            turns.wanted -= 1
            if not turns.wanted:
                del self._turns[user]

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        """Refuse, on loopback, host names of other machines: a web page may have rebound its name to this one."""
        server = scope.get("server")
        if server is None or not _is_loopback(server[0]):
            return
        name = _host_name(headers.get("host", ""))
        allowed = {"localhost", *([self.settings.tcp.host] if self.settings.tcp else [])}
        if name not in allowed and not _is_loopback(name):
            raise _RefusalError(RequestError(f"this is not the host {name!r}; use localhost"), 421)

    def _most_bytes(self, scope: Scope) -> int:
        most = self.settings.max_request_bytes
        return most if scope["path"].endswith(REPORTS) else min(most, MOST_JSON)

    async def _body(self, headers: Headers, receive: Receive, most: int) -> bytes:
        """Return the complete body; refuse one that is too large before reading all of it, however it is sent."""
        length = headers.get("content-length")
        if length is None and "transfer-encoding" not in headers:
            return b""
        if length is not None and (not length.isdecimal() or len(length) > 18 or int(length) > most):
            raise _too_large(most)
        parts = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    async with asyncio.timeout(SILENT_SECONDS):
                        message = await receive()
                    if message["type"] != "http.request":
                        raise _RefusalError(RequestError("the request was cut short"), 400)
                    parts += message.get("body", b"")
                    if len(parts) > most:
                        raise _too_large(most)
                    if not message.get("more_body", False):
                        return bytes(parts)
        except TimeoutError:
            error = RequestError(
                f"the request was not sent within {BODY_SECONDS:.0f} seconds, or nothing of it came for "
                f"{SILENT_SECONDS:.0f}; send it faster, or in smaller parts"
            )
            raise _RefusalError(error, 408) from None

    def _note(self, scope: Scope, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        if route.startswith("/") and scope["path"].startswith(PREFIX):
            # Routers do not know the prefix they were included with.
            route = PREFIX + route.removeprefix(PREFIX)
        self.counts.note(scope["method"], route, status or 499, seconds)
        # Changes are logged with who made them, but for reports, which come every second.
        changes = scope["method"] not in ("GET", "HEAD", "OPTIONS") and not route.endswith(REPORTS)
        who = scope["state"].get("who")
        told = {
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "user": None if who is None else who.user,
            "seconds": round(seconds, 6),
        }
        _log.log(logging.INFO if changes else logging.DEBUG, "request", extra=told)


class _RefusalError(Exception):
    """A refusal that has its HTTP status."""

    def __init__(self, error: SlaqError, status: int) -> None:
        super().__init__(str(error))
        self._response = problem_response(error, status, {"Connection": "close"})

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._response(scope, receive, send)


@dataclass(slots=True)
class _Turns:
    """The requests of one user that are being answered or wait for that."""

    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_A_TIME))
    large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LARGE_AT_A_TIME))
    wanted: int = 0


class _Reply:
    """Adds the security headers to a response, and keeps its status."""

    def __init__(self, send: Send, *, unread: bool) -> None:
        self._send = send
        self.status: int | None = None
        #: Whether there is a body that was not read: then the connection ends, since nobody waits for the body.
        self.unread = unread

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            if self.unread:
                headers["Connection"] = "close"
        await self._send(message)


async def _refuse(error: SlaqError, scope: Scope, receive: Receive, send: Send) -> None:
    await problem_response(error)(scope, receive, send)


def _replayed(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Return a `receive` that gives the body first, and then what comes over the connection."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _client_left(error: BaseException) -> bool:
    """Return whether all that went wrong is that nobody reads a stream of events any more."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_client_left, error.exceptions))
    return isinstance(error, anyio.BrokenResourceError)


def _may_be_large(headers: Headers) -> bool:
    """Return whether a body may be large, as far as its head tells."""
    length = headers.get("content-length", "0")
    return "transfer-encoding" in headers or not length.isdecimal() or len(length) > 18 or int(length) > LARGE


def _rates_of(settings: ServiceSettings) -> Rates:
    rate = settings.requests_per_second
    return Rates(rate, max(BURST_SECONDS * rate, 1.0))


def _too_large(most: int) -> _RefusalError:
    return _RefusalError(RequestError(f"the request is larger than {most} bytes; send less at a time"), 413)


def _host_name(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
