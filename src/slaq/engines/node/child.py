"""A node in a child process: the same calls, sent over a socket that only parent and child hold.

Both ends unpickle what the other sent. The child runs no user's code itself: what programs return passes through
it packed. When the parent ends, in whatever way, the child ends everything it runs. When the child ends, its
processes end themselves, and the parent fails its jobs.
"""

import itertools
import logging
import os
import secrets
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from typing_extensions import override

from slaq.core.errors import UnknownJobError
from slaq.core.events import Event, JobEnded, JobLost
from slaq.core.job import JobState
from slaq.engines.clock import WallClock
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, JournalEntry, Listener
from slaq.engines.node.commands.marks import clear_away
from slaq.engines.node.inbox import Inbox
from slaq.engines.node.node import Node, make_node
from slaq.engines.node.peers import Peer
from slaq.engines.node.site import Site
from slaq.engines.node.spawn import inherited, spawn
from slaq.engines.node.wire import Channel, HangUpError, Head
from slaq.engines.packing import pack, pack_error, unpack, unpack_error
from slaq.engines.processes import LINUX, how_it_ended

#: Seconds that a child may take to answer a call before it counts as lost.
PATIENCE = 30.0
#: Seconds between the child's looks at whether its parent is still there.
LOOK_EVERY = 1.0
FAILED = 1
#: In the node's directory: what the child itself prints.
LOG = "node.log"


class NodeMessageKind(IntEnum):
    """What parent and child say; `a` is the number of a call."""

    #: Parent: a method and its arguments.
    CALL = 1
    #: Child: what the call returned or, flagged FAILED, raised.
    RETURN = 2
    #: Child: what has happened since the last time.
    ENTRIES = 3


_log = logging.getLogger(__name__)


class _LostError(Exception):
    """The child is gone."""


class ChildNode(Node):
    """The parent's side. May be called from any thread; no call waits longer than PATIENCE."""

    def __init__(self, site: Site, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        self._calls: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        #: Jobs that can be started, because they were prepared or lost, and jobs that run.
        self._prepared: set[str] = set()
        self._started: set[str] = set()
        #: Why there is no child any more, where that is so.
        self._lost = ""
        site.directory.mkdir(parents=True, exist_ok=True)
        #: The secret under which the processes of commands are marked.
        self._token = site.token or secrets.token_hex(32)
        with (site.directory / LOG).open("ab") as log:
            self._process, sock = spawn(main, log=log)
        # A child that stands still must not block its parent once the socket is full.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
        self._channel = Channel(sock)
        self._thread = threading.Thread(target=self._hear, name="slaq-node", daemon=True)
        self._thread.start()
        self._call("open", replace(site, token=self._token))

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @override
    def capacity(self) -> float:
        try:
            return float(self._call("capacity"))
        except _LostError:
            return 0.0

    @override
    def prepare(self, job_id: str, work: Any) -> None:
        # On a lost node the job is taken all the same, and fails with the reason when it is started.
        with suppress(_LostError):
            self._call("prepare", job_id, work)
        self._prepared.add(job_id)

    @override
    def start(self, job_id: str) -> None:
        if job_id not in self._prepared:
            raise UnknownJobError(job_id)
        with self._lock:
            self._prepared.discard(job_id)
            self._started.add(job_id)
        try:
            self._call("start", job_id)
        except _LostError:
            self._fail_started()

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        with suppress(_LostError):
            self._call("end", job_id, state, reason)

    @override
    def kill(self, job_id: str) -> None:
        with suppress(_LostError):
            self._call("kill", job_id)

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        with suppress(_LostError):
            self._call("grant", dict(cores))

    @override
    def poll(self) -> Sequence[JournalEntry]:
        return self._journal.take()

    @override
    def close(self) -> None:
        with suppress(_LostError):
            self._call("close")
        self._lose(SHUT_DOWN)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _call(self, method: str, *arguments: Any) -> Any:
        """Return what the child's node returns, or raise what it raises; raises _LostError without a child."""
        number, answer = next(self._numbers), Future[Any]()
        with self._lock:
            if self._lost:
                raise _LostError
            self._calls[number] = answer
        try:
            with self._sending:
                self._channel.send(Head(NodeMessageKind.CALL, a=number), pack((method, arguments)))
            error = answer.exception(PATIENCE)
        except (HangUpError, OSError):
            self._lose(
                f"the process of its node did not answer within {PATIENCE:g} seconds; make a new cluster"
            )
            raise _LostError from None
        finally:
            self._calls.pop(number, None)
        if error is not None:
            raise error
        return answer.result()

    # The thread that hears the child.

    def _hear(self) -> None:
        try:
            while True:
                head, payload = self._channel.receive()
                with self._lock:
                    if self._lost:
                        return
                    if head.kind == NodeMessageKind.ENTRIES:
                        self._take(unpack(payload))
                    elif head.a in self._calls:
                        _answer(self._calls[head.a], head, payload)
        except (HangUpError, OSError):
            self._lose(None)
        except Exception as error:
            self._lose(f"the process of its node sent what cannot be read ({error!r}); make a new cluster")

    def _take(self, entries: Sequence[JournalEntry]) -> None:
        for entry in entries:
            if isinstance(entry.event, JobEnded | JobLost):
                self._started.discard(entry.event.job_id)
            if isinstance(entry.event, JobLost):
                self._prepared.add(entry.event.job_id)
        self._journal.enter(entries)

    def _lose(self, reason: str | None) -> None:
        """Drop the child, with that reason or with how it ended; fail its calls and its jobs."""
        with self._lock:
            if self._lost:
                return
            status = _ended(self._process, at_once=reason is not None)
            self._lost = (
                reason or f"the process of its node was lost ({how_it_ended(status)}); make a new cluster"
            )
            for answer in self._calls.values():
                if not answer.done():
                    answer.set_exception(_LostError())
            self._channel.close()
        if self._started and LINUX:
            # What supervised the commands ends them too, but a job has ended only when nothing of it runs.
            clear_away(self._token)
        self._fail_started()

    def _fail_started(self) -> None:
        with self._lock:
            for job_id in sorted(self._started):
                self._journal.ended(job_id, Ending(state=JobState.FAILED, reason=self._lost))
            self._started.clear()


def _answer(call: "Future[Any]", head: Head, payload: memoryview) -> None:
    """Give a call what was returned or raised; an answer that cannot be unpacked is that call's error."""
    try:
        if head.flag == FAILED:
            error, text = unpack_error(payload)
            call.set_exception(error or RuntimeError(text))
        else:
            call.set_result(unpack(payload))
    except Exception as error:
        call.set_exception(error)


def _ended(process: subprocess.Popen[bytes], *, at_once: bool) -> int:
    """Return the exit status of a child, killed now or where it does not end by itself."""
    if not at_once:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(PATIENCE)
    process.kill()
    return process.wait()


class _NodeServer(Listener):
    """The child's side: one node, one socket, one loop."""

    def __init__(self, sock: socket.socket, parent: int) -> None:
        self._parent = parent
        self._selector = selectors.DefaultSelector()
        self._inbox = Inbox(self._selector)
        self._peer = Peer(sock, self._selector, self._ready)
        self._node: Node | None = None
        self._temporary: Path | None = None
        self._open = True

    def run(self) -> None:
        """Serve until the parent closes the node, or is gone."""
        try:
            while self._open and os.getppid() == self._parent:
                for key, events in self._selector.select(LOOK_EVERY):
                    key.data(events)
                self._tell()
        except HangUpError:
            # The parent is gone: there is nobody left to answer.
            pass
        finally:
            if self._node is not None:
                self._node.close()
            self._tell()
            self._peer.finish(PATIENCE)
            if self._temporary is not None and os.getppid() != self._parent:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def stop(self) -> None:
        """End the node soon."""
        self._open = False
        self._inbox.ring()

    @override
    def happened(self, event: Event, ending: Ending | None) -> None:
        self._inbox.ring()

    def _tell(self) -> None:
        entries = () if self._node is None else self._node.poll()
        if entries:
            self._peer.send(Head(NodeMessageKind.ENTRIES), pack(list(entries)))

    def _ready(self) -> None:
        message = self._peer.receive()
        if message is None:
            return
        try:
            method, arguments = unpack(message.payload)
            flag, answer = 0, pack(self._do(method, arguments))
        except Exception as error:
            flag, answer = FAILED, pack_error(error)
        # What a call led to is told before the call returns.
        self._tell()
        self._peer.send(Head(NodeMessageKind.RETURN, flag, message.head.a), answer)

    def _do(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == "open":
            (site,) = arguments
            # Not to be removed with this process, but with the parent.
            self._temporary = site.directory if site.temporary else None
            self._node = make_node(replace(site, temporary=False), Journal(WallClock(), self))
            return None
        assert self._node is not None
        self._open = method != "close"
        return getattr(self._node, method)(*arguments)


def main(descriptor: str, parent: str) -> None:
    """Serve a node over the inherited socket."""
    # The parent decides what Ctrl-C means for its jobs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _NodeServer(inherited(descriptor), int(parent))
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.run()
