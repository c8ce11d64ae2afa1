"""The engine's side of the zygote: has workers and drivers forked, and killed."""

import json
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from slaq.engines.local.peers import Peer
from slaq.engines.local.wire import DRIVER, HangUpError, Head, Kind

#: A worker is one core: libraries that start a thread per core would fight over it.
ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "BLIS_NUM_THREADS",
    ),
    "1",
)
#: Seconds the zygote may take to kill everything and exit before it is killed itself.
PATIENCE = 5.0


class Child:
    """A process that the zygote was asked for; its pid is 0 until it is there."""

    def __init__(self, number: int, peer: Peer, hooks: "Hooks") -> None:
        self.number = number
        self.peer = peer
        self.hooks = hooks
        self.pid = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What is called when a child is there, has said something, or has exited with a status."""

    forked: Callable[[], None]
    ready: Callable[[], None]
    exited: Callable[[int], None]


class Nursery:
    """Starts the zygote, and every other process through it.

    `died` is called when the zygote is gone though nobody closed the nursery.
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
        self._children: dict[int, Child] = {}
        self._count = 0
        ours, theirs = socket.socketpair()
        path = os.environ.get("PYTHONPATH")
        setup = {
            "path": sys.path,
            "environment": {} if path is None else {"PYTHONPATH": path},
            "preload": list(preload),
            "temporary": None if temporary is None else str(temporary),
        }
        arguments = [str(theirs.fileno()), json.dumps(setup)]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "slaq.engines.local.zygote", *arguments],
                # The module must be found wherever this process found it.
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                # Ctrl-C in a terminal goes to this process, which decides what becomes of the jobs.
                start_new_session=True,
            )
        self._peer = Peer(ours, selector, self._ready)

    def fork(self, hooks: Hooks, *, is_driver: bool) -> Child:
        """Ask for a worker or a driver; messages may be sent to it at once."""
        self._count += 1
        ours, theirs = socket.socketpair()
        with theirs:
            head = Head(Kind.FORK, DRIVER if is_driver else 0, self._count)
            self._peer.send(head, files=(theirs.fileno(),))
        child = Child(self._count, Peer(ours, self._selector, hooks.ready), hooks)
        self._children[child.number] = child
        return child

    def kill(self, child: Child) -> None:
        """Kill a child with all it has started; its exit is told as any other."""
        self._peer.send(Head(Kind.KILL, a=child.number))

    def close(self) -> None:
        """Kill everything, and wait until it is dead."""
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
        if head.kind == Kind.FORKED:
            child = self._children[head.a]
            child.pid = head.b
            child.hooks.forked()
        elif head.kind == Kind.EXITED:
            # As the system tells it: below zero for a signal.
            status = head.c - (1 << 32) if head.c >> 31 else head.c
            self._children.pop(head.a).hooks.exited(status)
