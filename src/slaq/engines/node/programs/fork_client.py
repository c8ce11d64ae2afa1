"""The client of the fork server: starts and kills workers and drivers, and survives the fork server's end."""

import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slaq.engines import processes
from slaq.engines.node.peers import Peer
from slaq.engines.node.programs.fork_server import main
from slaq.engines.node.programs.messages import DRIVER, MessageKind
from slaq.engines.node.spawn import spawn
from slaq.engines.node.wire import HangUpError, Head, Message

#: Seconds the fork server may take to kill everything and exit before it is killed itself.
PATIENCE = 5.0
#: The variable by which the processes that come of one fork server are known.
MARK = "SLAQ_FORK_SERVER"
#: How often what is left of a fork server is looked for, and the seconds between two looks.
LOOKS, APART = 100, 0.005


class ForkedChild:
    """A process that was requested from the fork server; its pid is 0 until it exists."""

    def __init__(self, number: int, peer: Peer, hooks: "Hooks") -> None:
        self.number = number
        self.peer = peer
        self.hooks = hooks
        self.pid = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Called when a child exists, has sent something, or has exited with a status.

    A child that has exited and has no pid was never there: the system had no process for it; its status says why.
    """

    forked: Callable[[], None]
    ready: Callable[[], None]
    exited: Callable[[int], None]


class ForkClient:
    """Starts a fork server, and every other process through it.

    `died` is called with its exit status when the fork server ends before `close`. By then none of its children
    runs, and no hook of theirs is called any more, so that a new fork server can be started in its place.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        log: Path,
        preload: Sequence[str],
        temporary: Path | None,
        died: Callable[[int], None],
    ) -> None:
        self._selector = selector
        self._log = log
        self._setup = json.dumps(
            {"preload": list(preload), "temporary": None if temporary is None else str(temporary)}
        )
        self._died = died
        self._children: dict[int, ForkedChild] = {}
        self._count = 0
        self._server: tuple[subprocess.Popen[bytes], Peer] | None = None
        #: Of the present fork server, and of all that comes of it.
        self._mark = ""

    @property
    def alive(self) -> bool:
        """Whether there is a fork server."""
        return self._server is not None

    def start(self) -> None:
        """Start a fork server where there is none; raises OSError where the system refuses."""
        with self._log.open("ab") as log:
            # A worker is one core: libraries that start a thread per core would fight over it.
            self._mark = secrets.token_hex(16)
            env = {**os.environ, **processes.thread_limits(1), MARK: self._mark}
            process, ours = spawn(main, self._setup, log=log, env=env, isolated=False)
        self._server = (process, Peer(ours, self._selector, self._ready))

    def fork(self, hooks: Hooks, *, is_driver: bool) -> ForkedChild:
        """Request a worker or a driver; messages may be sent to it at once.

        Raises OSError where there is no fork server, or no descriptor left.
        """
        if self._server is None:
            raise OSError("there is no fork server")
        self._count += 1
        ours, theirs = socket.socketpair()
        with theirs:
            child = ForkedChild(self._count, Peer(ours, self._selector, hooks.ready), hooks)
            head = Head(MessageKind.FORK, DRIVER if is_driver else 0, child.number)
            try:
                self._tell(head, theirs.fileno())
            except OSError:
                child.peer.close()
                raise
        self._children[child.number] = child
        return child

    def hear(self, child: ForkedChild) -> Message | None:
        """Return the next message of a child, if it has arrived; kill a child that has hung up.

        How it died is told as any other exit. Raises MalformedError for what cannot be a message.
        """
        try:
            return child.peer.receive()
        except HangUpError:
            child.peer.close()
            self.kill(child)
            return None

    def kill(self, child: ForkedChild) -> None:
        """Kill a child with all that it has started; `exited` is called as for any other exit."""
        self._tell(Head(MessageKind.KILL, a=child.number))

    def close(self) -> None:
        """Kill all children and the fork server, and wait for their end."""
        server, self._server = self._server, None
        if server is not None:
            process, peer = server
            peer.close()
            children, self._children = self._children, {}
            for child in children.values():
                child.peer.close()
            _await_end(process, PATIENCE)

    def _tell(self, head: Head, *files: int) -> None:
        if self._server is not None:
            self._server[1].send(head, files=files)

    def _ready(self) -> None:
        assert self._server is not None
        try:
            message = self._server[1].receive()
        except HangUpError:
            self._lose()
            return
        if message is None:
            return
        head = message.head
        child = self._children.get(head.a)
        if child is None:
            return
        if head.kind == MessageKind.FORKED:
            child.pid = head.b
            child.hooks.forked()
        elif head.kind == MessageKind.EXITED:
            # Below zero for a signal, as everywhere.
            status = head.c - (1 << 32) if head.c >> 31 else head.c
            del self._children[head.a]
            child.hooks.exited(status)

    def _lose(self) -> None:
        """Give the fork server up: what it has forked must be gone before anything takes its place."""
        assert self._server is not None
        process, peer = self._server
        self._server = None
        peer.close()
        # Once it has ended, the kernel has killed its children, and not what they started.
        status = _await_end(process, PATIENCE)
        children, self._children = self._children, {}
        for child in children.values():
            if child.pid:
                processes.kill_group(child.pid)
        _kill_bearers(self._mark)
        try:
            self._died(status)
        finally:
            for child in children.values():
                child.peer.close()


def _await_end(process: "subprocess.Popen[bytes]", patience: float) -> int:
    try:
        return process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _kill_bearers(mark: str) -> None:
    """Kill every process that was started with this mark in its environment, until none is left; Linux only."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(LOOKS if processes.LINUX else 0):
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        found = [pid for pid in pids if wanted in _environment(pid)]
        if not found:
            return
        processes.send(found, signal.SIGKILL)
        time.sleep(APART)


def _environment(pid: int) -> list[bytes]:
    """Return the variables that a process began with; none of one that is gone or somebody else's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
