"""The node's side of the supervisor: starts commands, shares out CPU, and hears what becomes of them."""

import logging
import math
import os
import secrets
import selectors
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

from slaq.core.errors import CommandError, DuplicateJobError, UnknownNameError
from slaq.engines.node.commands.checks import checked
from slaq.engines.node.commands.records import CommandExited, CommandSpec, Launch, Ready, Record
from slaq.engines.node.commands.shares import WAYS
from slaq.engines.node.commands.supervisor_process import main
from slaq.engines.node.commands.tree import MARK, kill_marked
from slaq.engines.node.peers import Peer
from slaq.engines.node.spawn import spawn
from slaq.engines.node.wire import Channel, HangUpError, Head
from slaq.engines.packing import pack, unpack
from slaq.engines.processes import thread_limits
from slaq.jobs import share, variables

_log = logging.getLogger(__name__)

#: The file in a job's directory that `slaq.report` appends to.
REPORTS = "reports.jsonl"
#: Seconds a supervisor has to get ready, and to end.
PATIENCE = 30.0


class SupervisorClient:
    """Runs commands in the care of a supervisor process, which is started with the first of them.

    To be used from one thread. Each command that was started ends once, in one CommandExited, and nothing is
    told of it afterwards; its id can then be used again. Whatever ends this process, even SIGKILL, ends the
    commands with all their descendants.
    """

    def __init__(self, *, throttle: str | None = None, grace: float = 3.0, token: str | None = None) -> None:
        """Take the best way to enforce CPU shares, or the named one.

        `grace` is the seconds between asking a tree to end and killing it. `token` marks the processes, so
        that whoever kept it can find what is left of them (`tree.kill_marked`); a fresh one unless given.
        """
        if throttle is not None and throttle not in WAYS:
            raise UnknownNameError("way to enforce CPU shares", throttle, WAYS)
        #: How CPU shares are enforced; None until that is known.
        self.throttle: str | None = None
        #: What `poll` waits on; whoever else is registered is called with its events.
        self.selector = selectors.DefaultSelector()
        self._force = throttle
        self._grace = grace
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: Peer | None = None
        self._token = token or secrets.token_hex(6)
        self._count = 0
        self._running: set[str] = set()
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
        return None if self._process is None else self._process.pid

    def prepare(self) -> None:
        """Start the supervisor unless there is one; raises ThrottleError where the forced way does not work."""
        if self._process is not None:
            return
        if not sys.platform.startswith("linux"):
            raise CommandError(f"commands as jobs need Linux, and this is {sys.platform}", "submit a program")
        process, sock = spawn(main, str(self._grace), self._force or "")
        sock.settimeout(PATIENCE)
        try:
            told = unpack(Channel(sock).receive().payload)
        except (HangUpError, OSError):
            told = CommandError(
                "the process that supervises commands did not start", "see the log for why; report it"
            )
        if not isinstance(told, Ready):
            sock.close()
            process.kill()
            process.wait()
            raise told
        self._process, self._peer = process, Peer(sock, self.selector, self._ready)
        self.throttle = told.throttle
        extra = {"throttle": told.throttle, "refused": dict(told.refused)}
        _log.info("cpu shares chosen", extra=extra)

    def start(self, job_id: str, spec: CommandSpec) -> None:
        """Start a command; it stands still until it gets a share."""
        if job_id in self._running:
            raise DuplicateJobError(job_id)
        cwd = checked(spec)
        self.prepare()
        self._count += 1
        tree = f"{self._token}.{self._count}"
        directory = spec.directory.absolute()
        env = _environment(spec) | {
            variables.REPORTS: str(directory / REPORTS),
            variables.SHARE: str(directory / share.FILE),
            MARK: tree,
        }
        self._running.add(job_id)
        self._tell(
            "start",
            Launch(job_id=job_id, tree=tree, spec=spec, cwd=cwd, env=env, reports=directory / REPORTS),
        )

    def set_share(self, job_id: str, cores: float) -> None:
        """Cap the command's whole tree at so many cores: 0 to stand still, infinity to run free.

        A command that has ended is left alone.
        """
        if not cores >= 0.0:
            raise ValueError(f"a share is 0 cores or more, not {cores}")
        if job_id in self._running:
            self._tell("share", job_id, cores)

    def stop(self, job_id: str) -> None:
        """Have a command and its tree ended; CommandExited follows. One that has ended is left alone."""
        if job_id in self._running:
            self._tell("stop", job_id)

    def poll(self, seconds: float | None = 0.0) -> list[Record]:
        """Return what has happened since the last call, in order for each command.

        Waits for so many seconds at most, or without end, unless something happens; by default not at all.
        """
        self._pump(0.0 if self._records else seconds)
        records, self._records = self._records, []
        return records

    def close(self) -> None:
        """End everything and wait for it; the last records can still be polled."""
        if self._peer is None or self._process is None:
            return
        if os.getpid() != self._owner:
            # A fork of the node: neither the supervisor nor the commands are its own.
            self._peer.close()
            self._peer = self._process = None
            return
        self._tell("close")
        # The stream ends when the supervisor has seen the last tree out.
        deadline = time.monotonic() + PATIENCE
        while self._process is not None:
            if time.monotonic() > deadline:
                self._lose("it did not end")
            self._pump(0.1)

    def _tell(self, method: str, *arguments: Any) -> None:
        if self._peer is not None:
            self._peer.send(Head(0), pack((method, arguments)))

    def _pump(self, seconds: float | None) -> None:
        for key, events in self.selector.select(seconds):
            key.data(events)
        # Its socket may be held open by a command that was being started when it died.
        if self._process is not None and self._process.poll() is not None:
            while self._peer is not None:
                self._ready()

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
        elif self._process is not None and self._process.poll() is not None:
            self._lose("it ended")

    def _take(self, told: str | list[Record]) -> None:
        if isinstance(told, str):
            _log.error("command supervisor crashed", extra={"traceback": told})
        else:
            self._records += told
            self._running -= {record.job_id for record in told if isinstance(record, CommandExited)}

    def _lose(self, why: str) -> None:
        """Give up the supervisor: whether asked to or not, nothing may be left of its trees."""
        status = self._drop()
        if self._running:
            _log.error("command supervisor lost", extra={"why": why, "status": status})
            kill_marked(f"{self._token}.")
        fault = f"the process that supervises commands was lost ({why}, status {status})"
        self._records += (
            CommandExited(job_id=job_id, status=-9, fault=fault, lost=True)
            for job_id in sorted(self._running)
        )
        self._running.clear()

    def _drop(self) -> int | None:
        peer, process = self._peer, self._process
        self._peer = self._process = self.throttle = None
        if peer is not None:
            peer.close()
        if process is None:
            return None
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _environment(spec: CommandSpec) -> dict[str, str]:
    cores = os.cpu_count() or 1
    threads = max(1, math.ceil(min(spec.max_cores or cores, cores)))
    # More threads than cores cost more than any way to enforce shares; and a loss that waits in a buffer of
    # output is a loss unseen. Whatever the user has set, stays.
    defaults = thread_limits(threads) | {"PYTHONUNBUFFERED": "1"}
    return defaults | (dict(os.environ) if spec.inherit_env else {}) | dict(spec.env)
