"""Runs the application until it is told to stop: sockets, signals, reload and a clean end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import uvicorn
from typing_extensions import override

from slaq.bootstrap import open_service
from slaq.config.service import ServiceSettings
from slaq.core.errors import SlaqError
from slaq.service.service import Service
from slaq.web.app import make_app
from slaq.web.cluster_routes import clear_drafts
from slaq.web.connections import Places, most_connections
from slaq.web.gate import Gate
from slaq.web.logs import configure_logs, set_level, tell_left_out
from slaq.web.notify import notify, notify_reloading
from slaq.web.protocol import HEAD_SECONDS, PeerProtocol
from slaq.web.sockets import BACKLOG, ListeningSocket, load_certificate, tcp_socket, tls_context, unix_socket

_log = logging.getLogger(__name__)
#: Seconds between two looks for log lines that were left out.
LOG_SECONDS = 10.0
#: Seconds that running requests have to end once the service stops.
LAST_REQUESTS = 5.0
KEEP_ALIVE = 75


def serve(settings: ServiceSettings, reread: Callable[[], ServiceSettings] | None = None) -> None:
    """Run a service until SIGTERM or SIGINT. SIGHUP takes up what `reread` returns: the settings as they are."""
    configure_logs(settings.log_format, settings.log_level)
    service = open_service(settings)
    try:
        running = RunningServer(service, settings, reread)
    except BaseException:
        service.close()
        raise
    asyncio.run(running.run())


class _Server(uvicorn.Server):
    """A server without signal handlers: signals concern all listeners at once."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, but give a TLS handshake no longer than the head of a request."""
        await self.lifespan.startup()
        loop, config = asyncio.get_running_loop(), self.config
        protocol: Any = config.http_protocol_class
        connected = partial(
            protocol, config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        patience = None if config.ssl is None else HEAD_SECONDS
        self.servers = [
            await loop.create_server(
                connected, sock=one, backlog=BACKLOG, ssl=config.ssl, ssl_handshake_timeout=patience
            )
            for one in sockets or []
        ]
        self.started = True


async def _remind() -> None:
    """Log how many lines were left out, even if no further line comes."""
    while True:
        await asyncio.sleep(LOG_SECONDS)
        tell_left_out()


class RunningServer:
    """A service that answers."""

    def __init__(
        self, service: Service, settings: ServiceSettings, reread: Callable[[], ServiceSettings] | None = None
    ) -> None:
        self.service = service
        self.settings = settings
        self._reread = reread
        self._tls = tls_context(settings) if settings.tcp is not None else None
        self.places = Places(most_connections(), lambda: self.settings.connections_per_user)
        self.gate: Gate = make_app(service, settings, self.places)
        clear_drafts(settings.home)
        self._unix = ListeningSocket(unix_socket(settings.listen, settings.group), self.places)
        self._identity = os.stat(settings.listen).st_ino
        self._tcp: socket.socket | None = None
        try:
            if settings.tcp is not None:
                self._tcp = ListeningSocket(tcp_socket(settings.tcp), self.places, tls=self._tls is not None)
        except BaseException:
            self._unix.close()
            settings.listen.unlink(missing_ok=True)
            raise
        self._servers: list[_Server] = []
        self._stopping = False

    @property
    def port(self) -> int | None:
        """The TCP port, where there is one."""
        return None if self._tcp is None else int(self._tcp.getsockname()[1])

    async def run(self, started: Callable[["RunningServer"], None] | None = None) -> None:
        """Answer until stopped; then close the service."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        served = [(self._unix, None), *([(self._tcp, self._tls)] if self._tcp is not None else [])]
        self._servers = [_Server(self._config(tls)) for _, tls in served]
        with self._signals(loop):
            reminding = asyncio.create_task(_remind())
            tasks = [
                asyncio.create_task(server.serve([listener]))
                for server, (listener, _) in zip(self._servers, served, strict=True)
            ]
            try:
                await self._until_started()
                self._announce()
                if started is not None:
                    started(self)
                await asyncio.gather(*tasks)
            finally:
                reminding.cancel()
                notify("STOPPING=1")
                await asyncio.to_thread(self._close)

    def stop(self) -> None:
        """Refuse new requests, let running ones end, and return from `run`; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._stop)

    def reload(self) -> None:
        """Read settings and certificate again; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._reload)

    def _config(self, tls: ssl.SSLContext | None) -> uvicorn.Config:
        config = uvicorn.Config(
            self.gate,
            http=partial(PeerProtocol, self.places),  # type: ignore[arg-type]
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=int(LAST_REQUESTS),
        )
        config.load()
        config.ssl = tls
        return config

    async def _until_started(self) -> None:
        while not all(server.started for server in self._servers):
            await asyncio.sleep(0.01)

    def _announce(self) -> None:
        tcp = None if self.settings.tcp is None else f"{self.settings.tcp.host}:{self.port}"
        told = {"socket": str(self.settings.listen), "tcp": tcp, "tls": self._tls is not None}
        _log.info("service started", extra=told)
        notify("READY=1")

    @contextlib.contextmanager
    def _signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        handled = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop, signal.SIGHUP: self._reload}
        taken = []
        for number, act in handled.items():
            # Only the main thread gets signals; in another one `stop` and `reload` are called.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, act)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        if self._stopping:
            _log.warning("second stop: running requests are cut off")
        else:
            _log.info("service stopping")
        self.service.end_streams()
        for server in self._servers:
            server.force_exit = self._stopping
            server.should_exit = True
        self._stopping = True

    def _reload(self) -> None:
        notify_reloading()
        try:
            settings = self.settings if self._reread is None else self._reread()
            waiting = self.settings.waiting_for_restart(settings)
            self.service.reload(settings)
            self.gate.reset(settings)
            set_level(settings.log_level)
            if self._tls is not None and settings.tls_cert is not None:
                load_certificate(self._tls, settings)
            self.settings = settings
            _log.info("settings read again", extra={"waiting_for_restart": ", ".join(waiting) or None})
        except (SlaqError, OSError) as error:
            _log.error("settings refused; the old ones stay", extra={"reason": str(error)})
        notify("READY=1")

    def _close(self) -> None:
        try:
            self.service.close()
        finally:
            # Another service may have put its own socket there in the meantime.
            with contextlib.suppress(OSError):
                if os.stat(self.settings.listen).st_ino == self._identity:
                    self.settings.listen.unlink()
            _log.info("service stopped")
