"""The supervisor's side of the processes that read what commands say: one for each user whose commands run."""

import json
import math
import os
import selectors
import signal
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace

from slaq.engines.node.commands.reader_process import (
    ReaderMessage,
    WatchOrder,
    decode_items,
    start_reader,
)
from slaq.engines.node.commands.records import Launch, RunAs
from slaq.engines.node.peers import Peer
from slaq.engines.node.reports import Item, item_from
from slaq.engines.node.wire import Head, Message

#: A reader that is lost is replaced so often within so many seconds; then its commands go on without losses.
MOST_LOST, LOST_SECONDS = 5, 60.0
#: Bytes of a message from a reader: more than it says at once.
LONGEST_SAID = 1 << 24

KILLED = "the losses cannot be read any more: the process that reads them was killed again and again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a reader says of one command."""

    number: int
    items: tuple[Item, ...] = ()
    #: Whether the reader waits to be told that this was taken.
    counts: bool = False
    #: Whether it watches the command from here on, and whether it has read all that the command wrote.
    ready: bool = False
    done: bool = False
    #: Why losses cannot be read, once that is so.
    failure: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class _ReaderHandle:
    """One reader: its process, and what it was told to read."""

    user: RunAs | None
    #: A pidfd: signals through it cannot reach a later process with the same id.
    pidfd: int = -1
    peer: Peer | None = None
    orders: dict[int, WatchOrder] = field(default_factory=dict)
    finishing: set[int] = field(default_factory=set)
    lost: int = 0
    lost_at: float = 0.0
    #: When it last told that it gets on with commands that have ended.
    got_on_at: float = -math.inf

    def send(self, kind: ReaderMessage, number: int, payload: bytes = b"") -> None:
        if self.peer is not None:
            self.peer.send(Head(kind, a=number), [payload] if payload else ())

    def end(self) -> None:
        """Kill the reader, which may be blocked on a file."""
        if self.peer is not None:
            self.peer.close()
            self.peer = None
        if self.pidfd >= 0:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            os.close(self.pidfd)
            self.pidfd = -1


class Readers:
    """Runs a reader process for each user and collects what the readers find. Lives in the supervisor's thread."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._readers: dict[RunAs | None, _ReaderHandle] = {}
        #: The reader of each command.
        self._of: dict[int, _ReaderHandle] = {}
        self._heard: deque[tuple[_ReaderHandle, Heard]] = deque()

    def open(self, number: int, launch: Launch) -> None:
        """Read a command from now on; raises OSError where no process can be started."""
        spec = launch.spec
        reader = self._readers.get(spec.run_as)
        if reader is None:
            reader = _ReaderHandle(user=spec.run_as)
            self._start(reader)
            self._readers[spec.run_as] = reader
        order = WatchOrder(
            reports=str(launch.reports),
            log=str(spec.log.absolute()),
            pattern=spec.loss_pattern,
            file=None if spec.loss_file is None else str(launch.cwd / spec.loss_file),
            column=spec.loss_column,
            search=spec.search,
            folder=str(launch.cwd),
            series=spec.loss_series,
            first=spec.first_iteration,
            mark=launch.mark,
        )
        reader.orders[number] = order
        self._of[number] = reader
        reader.send(ReaderMessage.OPEN, number, order.encode())

    def finish(self, number: int) -> None:
        """Have the rest of what an ended command wrote be read: `Heard.done` follows."""
        reader = self._of[number]
        reader.finishing.add(number)
        reader.send(ReaderMessage.FINISH, number)

    def forget(self, number: int) -> None:
        """Stop reading a command; a reader without commands ends."""
        reader = self._of.pop(number, None)
        if reader is None:
            return
        del reader.orders[number]
        reader.finishing.discard(number)
        reader.send(ReaderMessage.FORGET, number)
        if not reader.orders:
            self._end(reader)

    def got_on_at(self, number: int) -> float:
        """Return when the reader of a command last told that it gets on with what has ended."""
        reader = self._of.get(number)
        return -math.inf if reader is None else reader.got_on_at

    @property
    def waiting(self) -> bool:
        """Whether readers have sent something that `heard` returns."""
        return bool(self._heard)

    def heard(self, *, items: bool) -> Heard | None:
        """Return what a reader sent next; without `items`, None if that holds items: it stays queued."""
        if not self._heard or (self._heard[0][1].counts and not items):
            return None
        reader, heard = self._heard.popleft()
        if heard.counts:
            reader.send(ReaderMessage.TAKEN, 1)
        return heard

    def close(self) -> None:
        """End all readers."""
        for reader in list(self._readers.values()):
            self._end(reader)

    def _start(self, reader: _ReaderHandle) -> None:
        pid, sock = start_reader(reader.user)
        try:
            reader.pidfd = os.pidfd_open(pid)
        except OSError:
            sock.close()
            raise
        reader.peer = Peer(sock, self._selector, lambda: self._ready(reader), longest=LONGEST_SAID)

    def _end(self, reader: _ReaderHandle) -> None:
        self._readers.pop(reader.user, None)
        reader.end()

    def _ready(self, reader: _ReaderHandle) -> None:
        if reader.peer is None:
            return
        try:
            message = reader.peer.receive()
            if message is not None:
                self._take(reader, message)
        except Exception:
            # It was killed, or its user has got hold of it and sends rubbish.
            self._replace(reader)

    def _take(self, reader: _ReaderHandle, message: Message) -> None:
        number, kind = message.head.a, message.head.kind
        if kind == ReaderMessage.READING:
            reader.got_on_at = time.monotonic()
            return
        if kind == ReaderMessage.READY and number in reader.orders:
            # A reader that takes the place of this one begins there too, and not at what has been written by then.
            order = reader.orders[number]
            first = json.loads(bytes(message.payload) or b"null")
            reader.orders[number] = replace(order, places=order.places or first)
        if number not in reader.orders:
            if kind == ReaderMessage.ITEMS:
                reader.send(ReaderMessage.TAKEN, 1)
            return
        if kind == ReaderMessage.ITEMS:
            said, places = decode_items(message.payload)
            order = reader.orders[number]
            if places is None:
                reader.orders[number] = replace(order, told=order.told + len(said))
            else:
                reader.orders[number] = replace(order, places=places, told=0)
            found = tuple(item for one in said if (item := item_from(one)) is not None)
            heard = Heard(number=number, items=found, counts=True)
        elif kind == ReaderMessage.FAILED:
            heard = Heard(number=number, failure=bytes(message.payload).decode(errors="replace"))
        else:
            heard = Heard(number=number, ready=kind == ReaderMessage.READY, done=kind == ReaderMessage.DONE)
        self._heard.append((reader, heard))

    def _replace(self, reader: _ReaderHandle) -> None:
        """Start a reader in the place of a killed one; it continues where that one stopped."""
        reader.end()
        now = time.monotonic()
        reader.lost = reader.lost + 1 if now - reader.lost_at < LOST_SECONDS else 1
        reader.lost_at = now
        try:
            if reader.lost > MOST_LOST:
                raise OSError
            self._start(reader)
        except OSError:
            self._give_up(reader)
            return
        for number, order in reader.orders.items():
            reader.send(ReaderMessage.OPEN, number, order.encode())
            if number in reader.finishing:
                reader.send(ReaderMessage.FINISH, number)

    def _give_up(self, reader: _ReaderHandle) -> None:
        self._readers.pop(reader.user, None)
        for number in reader.orders:
            self._heard.append((reader, Heard(number=number, failure=KILLED)))
            self._heard.append((reader, Heard(number=number, ready=True)))
            self._heard.append((reader, Heard(number=number, done=True)))
