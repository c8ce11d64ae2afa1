"""The process that runs the commands on behalf of the engine, and ends them when the engine is gone.

Engine and warden share a socket, over which go lines of JSON. When the engine ends in whatever way, the warden
reads the end of the stream, or finds that it has another parent, and ends every tree. A process of its own
also means that a search for losses, or a slow engine, never makes a job miss its share.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress

from slaq.core.errors import SlaqError
from slaq.engines.processes.launch import NOT_EXECUTED
from slaq.engines.processes.shares import choose
from slaq.engines.processes.supervisor import Message, Supervisor, exit_message, order_of
from slaq.engines.processes.tree import ProcessTable, become_reaper

#: Seconds between two checks that the engine lives.
CHECK_SECONDS = 0.2
#: Seconds that trees get to end by themselves when the engine is gone.
LAST_GRACE = 1.0
#: Bytes that wait to be sent, beyond which losses are left in their files for later.
MOST_WAITING = 1 << 20


class Warden:
    """One socket to the engine, one supervisor, one loop."""

    def __init__(self, channel: socket.socket, supervisor: Supervisor, engine: int) -> None:
        self._channel = channel
        self._supervisor = supervisor
        self._engine = engine
        self._incoming = b""
        self._outgoing = bytearray()
        self._closing = False
        self._watching = False
        self._selector = selectors.DefaultSelector()
        channel.setblocking(False)
        self._selector.register(channel, selectors.EVENT_READ)
        self._wake, wakened = os.pipe()
        for end in (self._wake, wakened):
            os.set_blocking(end, False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._close())

    def run(self) -> None:
        """Serve until the engine wants no more, or is gone, and the last tree has ended."""
        wait = 0.0
        while not (self._closing and self._supervisor.idle):
            self._watch_for_room(bool(self._outgoing))
            for key, events in self._selector.select(min(wait, CHECK_SECONDS)):
                if key.fd == self._wake:
                    with suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                elif events & selectors.EVENT_READ:
                    self._receive()
            if os.getppid() != self._engine:
                self._close()
            news, wait = self._supervisor.step(listen=len(self._outgoing) < MOST_WAITING)
            for message in news:
                self.tell(message)
            self._send()
        self._flush()

    def _watch_for_room(self, wanted: bool) -> None:
        if wanted != self._watching and self._channel.fileno() >= 0:
            self._watching = wanted
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
            self._selector.modify(self._channel, events)

    def tell(self, message: Message) -> None:
        """Have a message sent."""
        self._outgoing += json.dumps(message).encode() + b"\n"

    def _flush(self) -> None:
        with suppress(OSError):
            self._channel.settimeout(LAST_GRACE)
            self._channel.sendall(self._outgoing)

    def _send(self) -> None:
        if not self._outgoing:
            return
        try:
            sent = self._channel.send(self._outgoing)
            del self._outgoing[:sent]
        except BlockingIOError:
            return
        except OSError:
            self._outgoing.clear()
            self._close()

    def _receive(self) -> None:
        try:
            received = self._channel.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._hang_up()
            return
        *lines, self._incoming = (self._incoming + received).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, message: Message) -> None:
        match message["do"]:
            case "start":
                self._start(message)
            case "share":
                self._supervisor.share(message["tree"], message["cores"])
            case "stop":
                self._supervisor.stop(message["tree"])
            case "close":
                self._close()

    def _start(self, message: Message) -> None:
        try:
            self._supervisor.start(order_of(message))
        except OSError as error:
            fault = f"it could not be started ({error})"
            self.tell(exit_message(message["tree"], at=time.monotonic(), status=NOT_EXECUTED, fault=fault))

    def _hang_up(self) -> None:
        self._selector.unregister(self._channel)
        self._channel.close()
        self._outgoing.clear()
        self._close()

    def _close(self) -> None:
        if not self._closing:
            self._closing = True
            self._supervisor.stop_all(LAST_GRACE)


def main(arguments: Sequence[str]) -> None:
    """Run as a warden: the number of the socket, the engine's process, the grace in seconds, the forced way."""
    fd, engine, grace, force = arguments
    channel = socket.socket(fileno=int(fd))
    channel.set_inheritable(False)  # a command that held it would hide our death from the engine
    become_reaper()
    table = ProcessTable()
    try:
        choice = choose(table, force or None)
    except SlaqError as error:
        channel.sendall(json.dumps({"is": "refused", "error": vars(error)}).encode() + b"\n")
        return
    supervisor = Supervisor(choice.throttle, table, float(grace))
    warden = Warden(channel, supervisor, int(engine))
    warden.tell({"is": "ready", "throttle": choice.name, "refused": dict(choice.refused)})
    try:
        warden.run()
    except BaseException:
        with suppress(OSError):
            channel.sendall(json.dumps({"is": "crash", "traceback": traceback.format_exc()}).encode() + b"\n")
        raise
    finally:
        supervisor.free()


if __name__ == "__main__":
    main(sys.argv[1:])
