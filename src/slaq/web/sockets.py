"""The sockets a service listens on: a Unix socket for this machine's users, TCP for those with tokens."""

import errno
import grp
import logging
import os
import socket
import ssl
import stat
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.config.service import Address, ServiceSettings
from slaq.core.errors import AddressError, LimitError
from slaq.web.connections import Place, Places, place_of
from slaq.web.problems import problem_response

#: Connections that may wait to be accepted; the kernel may allow fewer.
BACKLOG = 4096
#: Connections refused before other work of the service has its turn.
REFUSED_AT_ONCE = 64
#: Seconds without accepting, where no descriptor is left even to refuse with.
EXHAUSTED_PAUSE = 1.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class _Accepted(socket.socket):
    """An accepted connection, which leaves its place when it is closed."""

    left: Callable[[], object] | None = None

    @override
    def close(self) -> None:
        super().close()
        if self.left is not None:
            self.left()


class ListeningSocket(socket.socket):
    """Accepts the connections for which there is a place, and refuses the others before any of them costs more."""

    def __init__(self, listening: socket.socket, places: Places, *, tls: bool = False) -> None:
        super().__init__(fileno=listening.detach())
        self._places = places
        self._answers = not tls
        #: Given up for a moment where there is no other descriptor, to accept a connection and close it.
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._paused_until = 0.0

    @override
    def close(self) -> None:
        super().close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    @override
    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that has a place. The event loop tries again later after a BlockingIOError."""
        if time.monotonic() < self._paused_until:
            raise BlockingIOError
        for _ in range(REFUSED_AT_ONCE):
            try:
                found, address = super().accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._shed(error)
                raise
            connection = _Accepted(fileno=found.detach())
            connection.setblocking(False)
            try:
                place = place_of(connection, address, partial(_end, weakref.ref(connection)))
            except (OSError, ValueError):
                connection.close()
                continue
            if self._places.take(place):
                # Also if nobody closes it: where asyncio cannot set up a connection, it only drops the socket.
                connection.left = weakref.finalize(connection, self._places.leave, place)
                return connection, address
            self._refuse(connection, place)
        raise BlockingIOError

    def _refuse(self, connection: socket.socket, place: Place) -> None:
        whose, one = place.key
        _log.warning("connection refused", extra={whose: one, "open": len(self._places)})
        with suppress(OSError):
            if self._answers:
                # What was sent is read first: closing a socket with unread data discards the answer.
                connection.recv(65536)
        with suppress(OSError):
            if self._answers:
                connection.send(_REFUSAL)
        connection.close()

    def _shed(self, error: OSError) -> None:
        """Close the next connection with the help of the spare descriptor; else accept nothing for a while."""
        _log.error("connection refused: no descriptors left", extra={"reason": error.strerror})
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with suppress(OSError):
                super().accept()[0].close()
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        if self._spare is not None:
            raise BlockingIOError
        # asyncio stops watching the socket for a second after such an error, but tries many times more before.
        self._paused_until = time.monotonic() + EXHAUSTED_PAUSE / 2


def _end(connection: weakref.ref[_Accepted]) -> None:
    """End a connection in both directions; whoever reads from it sees that, and closes it."""
    there = connection()
    if there is not None:
        with suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)


def _refusal() -> bytes:
    """Return the answer to a connection for which there is no place."""
    error = LimitError("too many connections are open", "close some, or try again in a moment")
    answer = problem_response(error, 503, {"Connection": "close"})
    head = b"".join(b"%s: %s\r\n" % pair for pair in answer.raw_headers)
    return b"HTTP/1.1 503 Service Unavailable\r\n" + head + b"\r\n" + bytes(answer.body)


_REFUSAL = _refusal()


def unix_socket(path: Path, group: str | None) -> socket.socket:
    """Listen at a path, for its owner alone or for a group; replace a socket at which nobody answers."""
    _clear(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The file that bind creates takes the socket's mode, so others can never open it.
    os.fchmod(listener.fileno(), 0o600)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise AddressError(
            f"unix://{path}", error.strerror or str(error), "choose another: --listen"
        ) from None
    if group is not None:
        try:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(0o660)
        except (OSError, KeyError):
            listener.close()
            path.unlink()
            found = f"the socket cannot be given to the group {group!r}"
            remedy = f"run the service as root or as a member of {group}"
            raise AddressError(f"unix://{path}", found, remedy) from None
    listener.listen(BACKLOG)
    return listener


def _clear(path: Path) -> None:
    """Remove a socket that a service left behind; raise where anything else is there."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(f"unix://{path}", "there is a file that is not a socket", "move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise AddressError(f"unix://{path}", error.strerror or str(error), "move it away") from None
    raise AddressError(f"unix://{path}", "a service answers there already", "stop it first")


def tcp_socket(address: Address) -> socket.socket:
    """Listen at a host and port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        found = "something listens there already" if taken else error.strerror or str(error)
        raise AddressError(str(address), found, "choose another: --tcp HOST:PORT") from None
    listener.listen(BACKLOG)
    return listener


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Return the TLS context for TCP; None on loopback without a certificate.

    Raises off loopback without a certificate: tokens would cross the network in the clear.
    """
    address = settings.tcp
    if settings.tls_cert is None or settings.tls_key is None:
        if address is not None and not address.loopback:
            found = "other machines can reach it, and there is no TLS"
            remedy = "give tls_cert and tls_key, or listen on 127.0.0.1"
            raise AddressError(str(address), found, remedy)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: ServiceSettings) -> None:
    """Read certificate and key; new connections use them."""
    assert settings.tls_cert is not None
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        found = f"the certificate cannot be used with {settings.tls_key} ({error.strerror or error})"
        remedy = "give a certificate and its key, both PEM"
        raise AddressError(str(settings.tls_cert), found, remedy) from None
