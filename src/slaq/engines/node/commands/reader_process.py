"""The process that reads what one user's commands say: their reports, their output, their files.

It runs as that user and reads for nobody else. So a file that makes every reader wait, a line that takes long to
search and an error that nobody foresaw hold up that user's losses alone, and never the supervisor.
"""

import json
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from slaq.core.errors import LossSourceError
from slaq.engines.node.commands.detected import DetectedLosses, Search
from slaq.engines.node.commands.launch import become_user, fork, reset_signals
from slaq.engines.node.commands.loss_sources import LossFile, LossPattern, LossSource, Place, Reported
from slaq.engines.node.commands.records import RunAs
from slaq.engines.node.reports import Item, NewSource, Reading, as_json
from slaq.engines.node.wire import Channel, HangUpError, Head
from slaq.engines.processes import die_with_parent

#: Seconds between two looks for new losses.
READ_SECONDS = 0.2
#: The part of a core that reading may take, and the part while commands that have ended are read to their end.
USUAL_SHARE, LAST_SHARE = 0.2, 0.5
#: Seconds between two messages that tell of progress with commands that have ended.
PROGRESS_SECONDS = 1.0
#: Items that one message holds at most, so that the supervisor is never busy with one message for long.
MOST_ITEMS = 500
#: Messages with items that may be under way: further losses stay in their files until some were taken.
CREDIT = 4


class ReaderMessage(IntEnum):
    """What supervisor and reader tell each other; `a` of the head is the number of the command."""

    #: To the reader: watch a command, read it to its end, forget it, and that so many (`a`) messages were taken.
    OPEN = 1
    FINISH = 2
    FORGET = 3
    TAKEN = 4
    #: From the reader: from where on it watches, items, why a source cannot be read, and that the end was reached.
    READY = 11
    ITEMS = 12
    FAILED = 13
    DONE = 14
    #: From the reader: it gets on with commands that have ended, though they may have said nothing.
    READING = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOrder:
    """What to read of one command. Where its owner named a pattern or a file, losses come from there alone.

    Else they are looked for, in its output and in the files of its folder, until it reports one itself.
    """

    reports: str
    log: str
    pattern: str | None = None
    file: str | None = None
    column: str = "loss"
    #: Whether losses are looked for, the folder whose files are looked at, and the series that its owner named.
    search: bool = False
    folder: str | None = None
    series: str | None = None
    #: The number of its first loss, and the mark of its processes.
    first: int = 0
    mark: str = ""
    #: How far an earlier reader had come: in the reports, and in what the owner named; and how many items beyond
    #: that it had told.
    places: tuple[Place, Place | None] | None = None
    told: int = 0

    def encode(self) -> bytes:
        """Return the order as bytes; the inverse of `decode`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, payload: bytes) -> "WatchOrder":
        """Return the order in the bytes."""
        return cls(**json.loads(payload))


@dataclass(slots=True)
class _Watched:
    """One command that is read."""

    reports: LossSource
    #: The pattern or the file that its owner named, as long as it can be read.
    source: LossSource | None = None
    #: Whether its owner named one.
    named: bool = False
    finishing: bool = False
    #: Whether it has told a loss itself: then nothing is looked for.
    reported: bool = False
    #: Items that wait to be sent, and how many of the next ones an earlier reader has told.
    items: deque[Item] = field(default_factory=deque)
    told: int = 0
    #: Why the source cannot be read; told once.
    failure: str = ""

    @property
    def at_end(self) -> bool:
        """Whether all was read and sent that the command wrote."""
        return not self.items and self.reports.at_end and (self.source is None or self.source.at_end)

    @property
    def progress(self) -> int:
        """A number that changes whenever something is read."""
        return self.reports.progress + (0 if self.source is None else self.source.progress)

    @property
    def places(self) -> tuple[Place, Place | None] | None:
        """How far was read; None where another reader could not go on from there."""
        reports, source = self.reports.place, None if self.source is None else self.source.place
        if reports is None or (self.source is not None and source is None):
            return None
        return reports, source

    def read(self) -> None:
        """Read what has appeared since the last call, unless items wait."""
        if self.items:
            return
        found = self._poll(self.reports)
        if not self.named and any(isinstance(item, Reading) for item in found):
            if not self.reported and self.source is not None:
                found.insert(0, NewSource(series="loss", place="what it reports"))
            self.reported = True
            self._drop_source()
        if self.named:
            # Where the owner said where the losses are, reports of losses do not count; all others do.
            found = [item for item in found if not isinstance(item, Reading)]
        if self.source is not None:
            found += self._poll(self.source)
        self.items.extend(found[self.told :])
        self.told = max(self.told - len(found), 0)

    def close(self) -> None:
        """Close the files."""
        self.reports.close()
        self._drop_source()

    def _poll(self, source: LossSource) -> list[Item]:
        try:
            return list(source.poll(final=self.finishing))
        except LossSourceError as error:
            self._fail(str(error))
        except Exception as error:  # whatever a command wrote to cause it, it concerns this command alone
            self._fail(f"the losses cannot be read ({error}); check the files that the command writes")
        return []

    def _fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self._drop_source()

    def _drop_source(self) -> None:
        if self.source is not None:
            self.source.close()
            self.source = None


class LossReader:
    """Reads the commands of one user, and sends what they say to the supervisor."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._commands: dict[int, _Watched] = {}
        self._told: set[int] = set()
        self._credit = CREDIT
        self._progress_at = 0.0

    def run(self) -> NoReturn:
        """Serve until the supervisor hangs up."""
        due = 0.0
        while True:
            wait = max(due - time.monotonic(), 0.0)
            if select.select([self._channel], [], [], wait)[0] and self._hear():
                due = 0.0
            if time.monotonic() >= due:
                due = time.monotonic() + self._look()

    def _hear(self) -> bool:
        """Handle a message; return whether to look for losses at once."""
        head, payload = self._channel.receive()
        if head.kind == ReaderMessage.TAKEN:
            self._credit += head.a
        elif head.kind == ReaderMessage.OPEN:
            self._open(head.a, WatchOrder.decode(bytes(payload)))
        elif head.kind == ReaderMessage.FINISH and head.a in self._commands:
            self._commands[head.a].finishing = True
        elif head.kind == ReaderMessage.FORGET:
            self._forget(head.a)
        return head.kind == ReaderMessage.FINISH

    def _open(self, number: int, order: WatchOrder) -> None:
        try:
            self._commands[number] = watched = watch(order)
        except Exception as error:
            self._send(ReaderMessage.FAILED, number, f"its reports cannot be read ({error})".encode())
            self._send(ReaderMessage.READY, number)
            self._send(ReaderMessage.DONE, number)
            return
        self._tell_failure(number, watched)
        self._send(ReaderMessage.READY, number, json.dumps(watched.places).encode())

    def _look(self) -> float:
        """Read all commands and send what was found; return the seconds until the next look."""
        began = time.process_time()
        for number, watched in list(self._commands.items()):
            if self._credit:
                before = watched.progress
                watched.read()
                self._tell_failure(number, watched)
                if watched.finishing and watched.progress != before:
                    self._tell_progress()
            if watched.items and self._credit:
                # The others come first the next time: credit may not last for all.
                self._commands[number] = self._commands.pop(number)
            while watched.items and self._credit:
                self._send_items(number, watched)
            if watched.finishing and self._credit and watched.at_end:
                self._forget(number)
                self._send(ReaderMessage.DONE, number)
        last = any(watched.finishing for watched in self._commands.values())
        used = time.process_time() - began
        if last:
            return used / LAST_SHARE - used
        return max(READ_SECONDS, used / USUAL_SHARE - used)

    def _send_items(self, number: int, watched: _Watched) -> None:
        count = min(len(watched.items), MOST_ITEMS)
        items = [as_json(watched.items.popleft()) for _ in range(count)]
        # Until all of them are sent, the earlier place counts, and what was told beyond it.
        places = None if watched.items else watched.places
        self._credit -= 1
        self._send(ReaderMessage.ITEMS, number, json.dumps({"items": items, "places": places}).encode())

    def _tell_failure(self, number: int, watched: _Watched) -> None:
        if watched.failure and number not in self._told:
            self._told.add(number)
            self._send(ReaderMessage.FAILED, number, watched.failure.encode(errors="replace"))

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if now >= self._progress_at + PROGRESS_SECONDS:
            self._progress_at = now
            self._send(ReaderMessage.READING, 0)

    def _forget(self, number: int) -> None:
        self._told.discard(number)
        watched = self._commands.pop(number, None)
        if watched is not None:
            watched.close()

    def _send(self, kind: ReaderMessage, number: int, payload: bytes = b"") -> None:
        self._channel.send(Head(kind, a=number), [payload] if payload else ())


def watch(order: WatchOrder) -> _Watched:
    """Return a command that is read from now on, or from where an earlier reader had come."""
    reports_place, source_place = order.places or (None, None)
    watched = _Watched(
        Reported(Path(order.reports), reports_place),
        named=order.pattern is not None or order.file is not None,
        told=order.told,
    )
    make: Callable[[], LossSource] | None = None
    if order.pattern is not None:
        pattern = order.pattern
        make = lambda: LossPattern(pattern, Path(order.log), source_place)  # noqa: E731
    elif order.file is not None:
        file = order.file
        make = lambda: LossFile(Path(file), order.column, source_place)  # noqa: E731
    elif order.search:
        search = Search(
            log=Path(order.log),
            folder=None if order.folder is None else Path(order.folder),
            wanted=order.series,
            first=order.first,
            mark=order.mark,
        )
        make = lambda: DetectedLosses(search, source_place)  # noqa: E731
    try:
        watched.source = None if make is None else make()
    except LossSourceError as error:
        watched.failure = str(error)
    except Exception as error:  # its reports are read all the same
        watched.failure = f"losses cannot be looked for ({error}); check the folder that the command runs in"
    return watched


def start_reader(user: RunAs | None) -> tuple[int, socket.socket]:
    """Fork a reader that runs as the user; return its process id and the socket to it."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    with theirs:
        try:
            pid = fork()
        except OSError:
            ours.close()
            raise
        if pid == 0:
            _become_reader(theirs, user, parent)
    return pid, ours


def _become_reader(sock: socket.socket, user: RunAs | None, parent: int) -> NoReturn:
    try:
        die_with_parent(parent)
        reset_signals()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _close_all_but(sock.fileno())
        if user is not None:
            become_user(user)
            die_with_parent(parent)  # the kernel forgets it at a change of user
        os.chdir("/")
        with suppress(HangUpError):
            LossReader(Channel(sock)).run()
    finally:
        os._exit(0)


def _close_all_but(kept: int) -> None:
    """Close all descriptors that this fork of the supervisor has, but for the standard ones and that one."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def decode_items(payload: memoryview) -> tuple[Sequence[Any], Any]:
    """Return the items and places in a message, still unchecked."""
    said = json.loads(bytes(payload))
    return said["items"], said["places"]
