"""The client of the supervisor process: starts commands, sets their CPU shares and receives their events."""

import logging
import math
import os
import secrets
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from slaq.core.errors import CommandError, DuplicateJobError, SupervisorStartError, UnknownNameError
from slaq.core.events import JobDelayed
from slaq.core.scarcity import scarce
from slaq.engines.node.commands.checks import checked
from slaq.engines.node.commands.keeper import main
from slaq.engines.node.commands.launch import NOT_EXECUTED
from slaq.engines.node.commands.marks import KEEPER, MARK, kill_marked, mark
from slaq.engines.node.commands.records import (
    CommandExited,
    CommandSpec,
    Launch,
    Ready,
    Record,
    SeatsTaken,
)
from slaq.engines.node.commands.shares import WAYS
from slaq.engines.node.peers import Peer
from slaq.engines.node.spawn import spawn
from slaq.engines.node.wire import Channel, HangUpError, Head
from slaq.engines.packing import pack, unpack
from slaq.engines.processes import send
from slaq.jobs import share, variables

_log = logging.getLogger(__name__)

#: A supervisor that does not get ready is started again, unless that happens so often in a row.
MOST_FAILED_STARTS = 5
#: The file in a job's directory that `slaq.report` appends to.
REPORTS = "reports.jsonl"
#: Seconds a command has to end once it is told to, unless it says otherwise.
GRACE = 30.0
#: Seconds a supervisor has to get ready, and to end.
PATIENCE = 30.0
#: Seconds between two tries to start what could not be started because this process is short of something.
TRY_SECONDS = 1.0


class SupervisorClient:
    """Runs commands in the care of a supervisor process, which is started with the first of them.

    To be used from one thread. Each command that was started ends once, in one CommandExited, and nothing is
    told of it afterwards; its id can then be used again. Whatever ends this process, even SIGKILL, ends the
    commands with all their descendants. Between this process and the supervisor there is the keeper (`keeper.py`),
    which ends what is left when the supervisor is killed.
    """

    def __init__(
        self, *, throttle: str | None = None, grace: float = GRACE, token: str | None = None
    ) -> None:
        """Take the best way to enforce CPU shares, or the named one.

        `grace` is the seconds between asking a tree to end and killing it, where a command gives none. `token` is
        the secret under which the processes are marked, so that whoever kept it can find what is left of them
        (`marks.clear_away`); a fresh one unless given.
        """
        if throttle is not None and throttle not in WAYS:
            raise UnknownNameError("way to enforce CPU shares", throttle, WAYS)
        #: How CPU shares are enforced; None until that is known.
        self.throttle: str | None = None
        #: What `poll` waits on; whoever else is registered is called with its events.
        self.selector = selectors.DefaultSelector()
        self._force = throttle
        self.grace = grace
        self._owner = os.getpid()
        #: The keeper; and the supervisor, by its process id and by a descriptor that holds on to it.
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = self._supervisor = -1
        self._peer: Peer | None = None
        #: How often in a row a supervisor did not get ready.
        self._failed_starts = 0
        #: When the keeper was found dead that was to outlive the supervisor.
        self._bereft_at = math.inf
        self._closing = False
        self._token = token or secrets.token_hex(32)
        self._count = 0
        self._running: set[str] = set()
        #: Those of them that were told to stop.
        self._stopping: set[str] = set()
        #: Commands that this process could not pass on yet, and the shares they are to have.
        self._waiting: dict[str, CommandSpec] = {}
        self._shares: dict[str, float | None] = {}
        self._try_at = 0.0
        self._records: list[Record] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process id of the supervisor, where there is one."""
        return None if self._process is None else self._pid

    @property
    def keeper(self) -> int | None:
        """The process id of the keeper, where there is one."""
        return None if self._process is None else self._process.pid

    def prepare(self) -> None:
        """Start the supervisor unless there is one; raises ThrottleError where the forced way does not work."""
        if self._process is not None:
            return
        if not sys.platform.startswith("linux"):
            raise CommandError(f"commands as jobs need Linux, and this is {sys.platform}", "submit a program")
        env = dict(os.environ) | {KEEPER: mark(self._token, "keeper")}
        process, sock = spawn(main, str(self.grace), self._force or "", env=env)
        sock.settimeout(PATIENCE)
        try:
            told = unpack(Channel(sock).receive().payload)
        except (HangUpError, OSError):
            told = SupervisorStartError()
            self._failed_starts += 1
        if not isinstance(told, Ready):
            sock.close()
            # Told to end, it ends the supervisor first.
            process.terminate()
            process.wait()
            raise told
        self._process, self._peer = process, Peer(sock, self.selector, self._ready)
        self._pid, self._supervisor = told.pid, _held(told.pid)
        self._bereft_at = math.inf
        self._failed_starts = 0
        self.throttle = told.throttle
        extra = {"throttle": told.throttle, "refused": dict(told.refused)}
        _log.info("cpu shares chosen", extra=extra)

    def start(self, job_id: str, spec: CommandSpec) -> None:
        """Start a command; it stands still until it gets a share.

        Where this process is short of descriptors, processes or memory, or a supervisor is killed before it is
        ready, the command waits, and `poll` tries again.
        """
        if job_id in self._running:
            raise DuplicateJobError(job_id)
        self._waiting[job_id] = spec
        reason = self._order(job_id)
        self._running.add(job_id)
        if reason:
            self._records.append(JobDelayed(job_id=job_id, at=0.0, reason=reason))

    def _order(self, job_id: str) -> str:
        """Order the start of a waiting command; return why it waits longer, if so; raises if it cannot run."""
        spec = self._waiting[job_id]
        try:
            cwd = checked(spec)
            self.prepare()
        except (OSError, CommandError) as error:
            killed = isinstance(error, SupervisorStartError) and self._failed_starts < MOST_FAILED_STARTS
            if killed or scarce(error):
                return str(error)
            del self._waiting[job_id]
            raise
        except BaseException:
            del self._waiting[job_id]
            raise
        del self._waiting[job_id]
        self._count += 1
        tree = str(self._count)
        made = mark(self._token, tree)
        directory = spec.directory.absolute()
        env = _environment(spec) | {
            variables.REPORTS: str(directory / REPORTS),
            variables.SHARE: str(directory / share.FILE),
            MARK: made,
        }
        self._tell(
            "start",
            Launch(
                job_id=job_id, tree=tree, mark=made, spec=spec, cwd=cwd, env=env, reports=directory / REPORTS
            ),
        )
        return ""

    def _order_waiting(self) -> None:
        """Order every waiting command again."""
        self._try_at = time.monotonic() + TRY_SECONDS
        for job_id in list(self._waiting):
            try:
                if self._order(job_id):
                    continue
                self._records.append(JobDelayed(job_id=job_id, at=0.0, reason=""))
                self._tell("share", job_id, self._shares.pop(job_id, None))
            except Exception as error:
                self._ended(CommandExited(job_id=job_id, status=NOT_EXECUTED, fault=str(error)))

    def grant(self, cores: Mapping[str, float], room: float) -> None:
        """Give every command its share of so many cores; one that is not named stands still.

        A share is what a command gets where others want the cores too. What some leave idle is lent to others, as
        long as all together use no more cores than the room.
        """
        for job_id in self._waiting:
            self._shares[job_id] = cores.get(job_id)
        self._tell("grant", dict(cores), room)

    def set_share(self, job_id: str, cores: float) -> None:
        """Change the share of one command's whole tree: 0 to stand still, infinity to run free.

        Until `grant` was called nothing is lent, and a share is the most that a command uses over some seconds. A
        command that has ended is left alone.
        """
        if not cores >= 0.0:
            raise ValueError(f"a share is 0 cores or more, not {cores}")
        if job_id in self._waiting:
            self._shares[job_id] = cores
        elif job_id in self._running:
            self._tell("share", job_id, cores or None)

    def stop(self, job_id: str) -> None:
        """Have a command and its tree ended; CommandExited follows. One that has ended is left alone."""
        if self._waiting.pop(job_id, None) is not None:
            self._ended(CommandExited(job_id=job_id, status=-signal.SIGTERM, stopped=True))
        elif job_id in self._running:
            self._stopping.add(job_id)
            self._tell("stop", job_id)

    def kill(self, job_id: str) -> None:
        """Have a command and its tree killed at once, also one that was told to end."""
        if job_id in self._waiting:
            self.stop(job_id)
        elif job_id in self._running:
            self._stopping.add(job_id)
            self._tell("kill", job_id)

    def poll(self, seconds: float | None = 0.0) -> list[Record]:
        """Return what has happened since the last call, in order for each command.

        Waits for so many seconds at most, or without end, unless something happens; by default not at all.
        """
        if self._waiting:
            seconds = TRY_SECONDS if seconds is None else min(seconds, TRY_SECONDS)
            if time.monotonic() >= self._try_at:
                self._order_waiting()
        self._pump(0.0 if self._records else seconds)
        records, self._records = self._records, []
        return records

    def close(self) -> None:
        """End everything and wait for it; the last records can still be polled."""
        for job_id in list(self._waiting):
            self.stop(job_id)
        if self._peer is None or self._process is None:
            return
        if os.getpid() != self._owner:
            # A fork of the node: neither the supervisor nor the commands are its own.
            self._peer.close()
            self._let_go()
            self._peer = self._process = None
            return
        self._closing = True
        self._tell("close")
        # The stream ends when the supervisor has seen the last tree out.
        deadline = time.monotonic() + PATIENCE
        while self.pid is not None:
            if time.monotonic() > deadline:
                self._lose("it did not end")
            self._pump(0.1)
        self._closing = False

    def _tell(self, method: str, *arguments: Any) -> None:
        if self._peer is not None:
            self._peer.send(Head(0), pack((method, arguments)))

    def _pump(self, seconds: float | None) -> None:
        for key, events in self.selector.select(seconds):
            key.data(events)
        if self._process is None or self._process.poll() is None:
            return
        if self._process.returncode >= 0:
            # The keeper ends last: whatever there was to tell is in the socket.
            while self._peer is not None:
                self._ready()
        elif time.monotonic() > self._bereft_at + PATIENCE:
            self._lose("its keeper was killed, and it did not end")
        else:
            # Without its keeper, the supervisor ends its trees by itself.
            self._bereft_at = min(self._bereft_at, time.monotonic())

    def _ready(self) -> None:
        """Take in a message, if one has come whole; a supervisor that has hung up is lost."""
        if self._peer is None:
            return
        try:
            message = self._peer.receive()
        except HangUpError:
            self._lose("it ended")
            return
        if message is not None:
            self._take(unpack(message.payload))
        elif self._process is not None and self._process.poll() is not None and self._process.returncode >= 0:
            self._lose("it ended")

    def _take(self, told: str | list[Record]) -> None:
        if isinstance(told, str):
            _log.error("command supervisor crashed", extra={"traceback": told})
            return
        for record in told:
            if not isinstance(record, CommandExited):
                self._records.append(record)
            elif not record.stopped or self._closing or record.job_id in self._stopping:
                self._ended(record)
            # One that was stopped without our asking: the supervisor is ending, and its commands count as lost.

    def _ended(self, record: CommandExited) -> None:
        """Record the end of a command."""
        self._records.append(record)
        for of_job in (self._running, self._stopping):
            of_job.discard(record.job_id)
        self._waiting.pop(record.job_id, None)
        self._shares.pop(record.job_id, None)

    def _lose(self, why: str) -> None:
        """Drop a lost supervisor; when this returns, none of its process trees is left."""
        status = self._drop()
        self._records.append(SeatsTaken(seats=0))
        lost = sorted(self._running - self._waiting.keys())
        if lost:
            _log.error("command supervisor lost", extra={"why": why, "status": status})
        if lost or status is None or status < 0:
            kill_marked(self._token)
        fault = f"the process that supervises commands was lost ({why}, status {status})"
        for job_id in lost:
            self._ended(CommandExited(job_id=job_id, status=-9, fault=fault, lost=True))

    def _drop(self) -> int | None:
        """Wait for the supervisor and its keeper; return the keeper's exit status, which is the supervisor's."""
        peer, process = self._peer, self._process
        self._peer = self._process = self.throttle = None
        if peer is not None:
            peer.close()
        if process is None:
            return None
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            # The supervisor stands still. Once it is killed, the keeper ends what is left.
            self._kill_supervisor()
            try:
                status = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        if status < 0:
            self._outwait_supervisor()
        self._let_go()
        return status

    def _outwait_supervisor(self) -> None:
        """Wait for a supervisor that has hung up and has no keeper; kill it where that takes too long."""
        if self._supervisor >= 0:
            ended = select.poll()
            ended.register(self._supervisor, select.POLLIN)
            ended.poll(PATIENCE * 1000)
        self._kill_supervisor()

    def _kill_supervisor(self) -> None:
        if self._supervisor >= 0:
            with suppress(OSError):
                signal.pidfd_send_signal(self._supervisor, signal.SIGKILL)
        else:
            send([self._pid], signal.SIGKILL)

    def _let_go(self) -> None:
        if self._supervisor >= 0:
            os.close(self._supervisor)
        self._pid = self._supervisor = -1


def _held(pid: int) -> int:
    """Return a pidfd, which never refers to a later process with the same id; -1 where there is none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def _environment(spec: CommandSpec) -> dict[str, str]:
    # A loss that waits in a buffer of output is a loss unseen. Whatever the user has set, stays.
    defaults = {"PYTHONUNBUFFERED": "1"}
    return defaults | (dict(os.environ) if spec.inherit_env else {}) | dict(spec.env)
