"""The client of the fork server: starts and kills workers and drivers."""

import json
import os
import selectors
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slaq.engines.node.peers import Peer
from slaq.engines.node.programs.fork_server import main
from slaq.engines.node.programs.messages import DRIVER, MessageKind
from slaq.engines.node.spawn import spawn
from slaq.engines.node.wire import HangUpError, Head, Message
from slaq.engines.processes import thread_limits

#: Seconds the fork server may take to kill everything and exit before it is killed itself.
PATIENCE = 5.0


class ForkedChild:
    """A process that was requested from the fork server; its pid is 0 until it exists."""

    def __init__(self, number: int, peer: Peer, hooks: "Hooks") -> None:
        self.number = number
        self.peer = peer
        self.hooks = hooks
        self.pid = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Called when a child exists, has sent something, or has exited with a status."""

    forked: Callable[[], None]
    ready: Callable[[], None]
    exited: Callable[[int], None]


class ForkClient:
    """Starts the fork server, and every other process through it.

    `died` is called when the fork server ends before `close`.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        log: IO[bytes],
        preload: Sequence[str],
        temporary: Path | None,
        died: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._died = died
        self._children: dict[int, ForkedChild] = {}
        self._count = 0
        # A worker is one core: libraries that start a thread per core would fight over it.
        self._process, ours = spawn(
            main,
            json.dumps(
                {"preload": list(preload), "temporary": None if temporary is None else str(temporary)}
            ),
            log=log,
            env={**os.environ, **thread_limits(1)},
            isolated=False,
        )
        self._peer = Peer(ours, selector, self._ready)

    def fork(self, hooks: Hooks, *, is_driver: bool) -> ForkedChild:
        """Request a worker or a driver; messages may be sent to it at once."""
        self._count += 1
        ours, theirs = socket.socketpair()
        with theirs:
            head = Head(MessageKind.FORK, DRIVER if is_driver else 0, self._count)
            self._peer.send(head, files=(theirs.fileno(),))
        child = ForkedChild(self._count, Peer(ours, self._selector, hooks.ready), hooks)
        self._children[child.number] = child
        return child

    def hear(self, child: ForkedChild) -> Message | None:
        """Return the next message of a child, if it has arrived; kill a child that has hung up.

        How it died is told as any other exit.
        """
        try:
            return child.peer.receive()
        except HangUpError:
            child.peer.close()
            self.kill(child)
            return None

    def kill(self, child: ForkedChild) -> None:
        """Kill a child with all that it has started; `exited` is called as for any other exit."""
        self._peer.send(Head(MessageKind.KILL, a=child.number))

    def close(self) -> None:
        """Kill all children and the fork server, and wait for their end."""
        self._peer.close()
        for child in self._children.values():
            child.peer.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ready(self) -> None:
        try:
            message = self._peer.receive()
        except HangUpError:
            self._peer.close()
            self._died()
            return
        if message is None:
            return
        head = message.head
        if head.kind == MessageKind.FORKED:
            child = self._children[head.a]
            child.pid = head.b
            child.hooks.forked()
        elif head.kind == MessageKind.EXITED:
            # Below zero for a signal, as everywhere.
            status = head.c - (1 << 32) if head.c >> 31 else head.c
            self._children.pop(head.a).hooks.exited(status)
