"""The process that runs the commands of a node, and ends them when the node is gone.

Node and supervisor share a socket. When the node ends in whatever way, the supervisor reads the end of the stream
and ends every tree; so it does when its parent, the keeper, is gone. A process of its own also means that a search
for losses, or a slow node, never makes a job miss its share.
"""

import os
import selectors
import signal
import socket
import time
import traceback
from contextlib import suppress
from typing import Any

from slaq.core.errors import CommandError, SlaqError
from slaq.engines.node.commands.launch import Inherited
from slaq.engines.node.commands.readers import Readers
from slaq.engines.node.commands.records import Ready
from slaq.engines.node.commands.shares import Choice, choose
from slaq.engines.node.commands.supervisor import Supervisor
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.node.peers import Peer
from slaq.engines.node.spawn import inherited
from slaq.engines.node.wire import HangUpError, Head
from slaq.engines.packing import pack, unpack
from slaq.engines.processes import adopt_orphans, precede, raise_descriptor_limit

#: Seconds between two checks that the node lives.
CHECK_SECONDS = 0.2
#: Seconds that trees get to end by themselves when the node is closed, at most, and when it is gone.
CLOSING_GRACE, LAST_GRACE = 5.0, 1.0
#: Seconds between two tries to find a way to enforce shares where the system is short of something, and how many.
TRY_SECONDS, TRIES = 1.0, 20
#: Bytes that wait to be sent, beyond which losses are left in their files for later.
MOST_WAITING = 1 << 20


class SupervisorProcess:
    """One socket to the node, one supervisor, one loop."""

    def __init__(self, sock: socket.socket, keeper: int) -> None:
        self._keeper = keeper
        self._supervisor: Supervisor | None = None
        self._closing = False
        self._selector = selectors.DefaultSelector()
        #: Who reads what commands say; the loop wakes when there is something.
        self.readers = Readers(self._selector)
        self._peer = Peer(sock, self._selector, self._ready)
        self._wake, wakened = os.pipe()
        for end in (self._wake, wakened):
            os.set_blocking(end, False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self._close())

    def tell(self, value: Any) -> None:
        """Have a value sent to the node."""
        self._peer.send(Head(0), pack(value))

    def run(self, supervisor: Supervisor) -> None:
        """Serve until the node wants no more, or is gone, and the last tree has ended."""
        self._supervisor = supervisor
        wait = 0.0
        while not (self._closing and supervisor.idle):
            for key, events in self._selector.select(min(wait, CHECK_SECONDS)):
                key.data(events)
            if os.getppid() != self._keeper:
                self._close()
            news, wait = supervisor.step(listen=self._peer.backlog < MOST_WAITING)
            if news:
                self.tell(news)

    def finish(self) -> None:
        """Send what waits, if the node still listens."""
        self._peer.finish(LAST_GRACE)

    def _woken(self, _: int) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _ready(self) -> None:
        try:
            message = self._peer.receive()
        except HangUpError:
            self._peer.close()
            self._close()
            return
        if message is None or self._supervisor is None:
            return
        method, arguments = unpack(message.payload)
        if method == "close":
            self._close(CLOSING_GRACE)
        elif not self._closing:  # else this process ends, and the node learns that its commands are lost
            getattr(self._supervisor, method)(*arguments)

    def _close(self, grace: float = LAST_GRACE) -> None:
        if not self._closing:
            self._closing = True
            if self._supervisor is not None:
                self._supervisor.stop_all(grace)


def main(descriptor: str, keeper: str, grace: str, force: str) -> None:
    """Run as a supervisor: the grace is in seconds, the forced way to enforce shares may be empty."""
    process = SupervisorProcess(inherited(descriptor), int(keeper))
    adopt_orphans()
    # Commands get what was there before: see `Inherited`.
    open_files = raise_descriptor_limit()
    table = ProcessTable()
    try:
        choice = _choose(table, force or None)
    except SlaqError as error:
        process.tell(error)
        process.finish()
        return
    usual = Inherited(open_files, precede())
    supervisor = Supervisor(choice.throttle, table, process.readers, float(grace), usual)
    process.tell(Ready(throttle=choice.name, refused=dict(choice.refused), pid=os.getpid()))
    try:
        process.run(supervisor)
    except BaseException:
        process.tell(traceback.format_exc())
        raise
    finally:
        process.finish()
        supervisor.free()


def _choose(table: ProcessTable, force: str | None) -> Choice:
    for _ in range(TRIES):
        try:
            return choose(table, force)
        except OSError as error:
            reason = str(error)
            time.sleep(TRY_SECONDS)
    raise CommandError(
        f"no way to enforce CPU shares could be tried out ({reason})", "free processes, files or memory"
    )
