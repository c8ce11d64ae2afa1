"""A real service for tests: store, scheduler and engine, answering on real sockets in this process."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slaq.bootstrap import open_service
from slaq.client import Client, connect
from slaq.config.service import Address, ServiceSettings
from slaq.config.tokens import Token, make_token
from slaq.service.records import Submission
from slaq.web.server import RunningServer

LOOPBACK = Address(host="127.0.0.1", port=0)
#: Long enough for anything on a loaded machine.
PATIENCE = 60.0


@dataclass(frozen=True)
class Served:
    """A service that answers."""

    running: RunningServer
    settings: ServiceSettings

    @property
    def unix(self) -> str:
        """Where it is for this machine's users."""
        return f"unix://{self.settings.listen}"

    @property
    def tcp(self) -> str:
        """Where it is for those with tokens."""
        return f"http://127.0.0.1:{self.running.port}"

    def token(self, user: str, *, admin: bool = False) -> str:
        """Make a token."""
        count = (
            len(self.settings.tokens.read_text().split("[[token]]")) if self.settings.tokens.exists() else 1
        )
        return make_token(
            self.settings.tokens, Token(name=f"{user}-{count}", user=user, sha256="", admin=admin)
        )

    def client(self, user: str, *, admin: bool = False) -> Client:
        """Return a client with a token of that user."""
        return connect(self.tcp, self.token(user, admin=admin))


def settings_at(home: Path, **changes: Any) -> ServiceSettings:
    """Return settings for tests: quick epochs, loopback, and no rate that a test would reach."""
    usual = ServiceSettings(
        home=home, listen=home / "slaq.sock", tcp=LOOPBACK, epoch_seconds=0.1, requests_per_second=1e6
    )
    return replace(usual, **changes)


@contextmanager
def serving(home: Path, **changes: Any) -> Iterator[Served]:
    """Run a service; it is stopped, jobs and all, at the end."""
    settings = settings_at(home, **changes)
    running = RunningServer(open_service(settings), settings, lambda: settings)
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(running.run(lambda _: started.set())))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield Served(running, settings)
    finally:
        running.stop()
        thread.join()


def until(holds: Callable[[], Any]) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
    return found


def external(client: Client, name: str = "elsewhere") -> str:
    """Submit a job that runs elsewhere, which needs no account on this machine; return its id."""
    return client.send(Submission(external=True, options={"name": name})).id


def spoken(address: Address | Path, sent: bytes, *, until: bytes = b"") -> bytes:
    """Send bytes as they are, and return all that comes back until the other end closes, or says `until`."""
    kind = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(kind, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(address) if isinstance(address, Path) else (address.host, address.port))
        # One that is refused at once may be closed before it has sent anything; the answer is there all the same.
        with suppress(BrokenPipeError):
            connection.sendall(sent)
        heard = b""
        while piece := connection.recv(65536):
            heard += piece
            if until and until in heard:
                break
        return heard
