"""Commands as jobs, as an engine sees them: start, share, stop, and what has happened since the last look."""

import json
import logging
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Self

from slaq.core.errors import CommandError, DuplicateJobError, LossSourceError, ThrottleError, UnknownNameError
from slaq.core.job import Observation
from slaq.engines.processes.records import (
    CommandExited,
    CommandSpec,
    LearningRateSeen,
    LossSeen,
    LossSourceFailed,
    Record,
)
from slaq.engines.processes.shares import WAYS
from slaq.engines.processes.sources import checked_pattern
from slaq.engines.processes.supervisor import Message
from slaq.engines.processes.tree import MARK, kill_marked
from slaq.reporting import VARIABLE as REPORTS_VARIABLE

_LOG = logging.getLogger(__name__)

#: The file in a job's directory that `slaq.report` appends to.
REPORTS = "reports.jsonl"
#: Each number library reads one of these to size its pool of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
#: Seconds a warden has to get ready, and to take a message.
PATIENCE = 30.0

# Isolated from the user's environment and directory, in which a `json.py` may lie; finds what we find.
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from slaq.engines.processes.warden import main; main(sys.argv[1:])"
)


class Commands:
    """Runs commands in the care of a warden process, which is started with the first of them.

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
        self._force = throttle
        self._grace = grace
        self._owner = os.getpid()
        self._warden: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._given_token = token
        self._token = ""
        self._count = 0
        self._incoming = b""
        self._trees: dict[str, str] = {}
        self._jobs: dict[str, str] = {}
        self._cpu: dict[str, float] = {}
        self._losses: dict[str, int] = {}
        self._records: list[Record] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The process number of the warden, where there is one."""
        return None if self._warden is None else self._warden.pid

    def prepare(self) -> None:
        """Start the warden unless there is one; raises ThrottleError where the forced way does not work."""
        if self._warden is not None:
            return
        if not sys.platform.startswith("linux"):
            raise CommandError(f"commands as jobs need Linux, and this is {sys.platform}", "submit a program")
        ours, theirs = socket.socketpair()
        self._token = self._given_token or secrets.token_hex(6)
        self._incoming = b""
        arguments = [str(theirs.fileno()), str(os.getpid()), str(self._grace), self._force or ""]
        with theirs:
            self._warden = subprocess.Popen(
                [sys.executable, "-I", "-c", _BOOT, json.dumps(sys.path), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the engine to deal with
            )
        self._channel = ours
        ours.settimeout(PATIENCE)
        self._greet()

    def start(self, job_id: str, spec: CommandSpec) -> None:
        """Start a command; it stands still until it gets a share."""
        if job_id in self._trees:
            raise DuplicateJobError(job_id)
        cwd = checked(spec)
        self.prepare()
        self._count += 1
        tree = f"{self._token}.{self._count}"
        reports = spec.directory.absolute() / REPORTS
        env = _environment(spec) | {REPORTS_VARIABLE: str(reports), MARK: tree}
        self._trees[job_id] = tree
        self._jobs[tree] = job_id
        self._cpu[tree] = 0.0
        self._losses[tree] = 0
        self._tell(
            {
                "do": "start",
                "tree": tree,
                "argv": list(spec.argv),
                "cwd": str(cwd),
                "env": env,
                "log": str(spec.log.absolute()),
                "reports": str(reports),
                "loss_pattern": spec.loss_pattern,
                "loss_file": None if spec.loss_file is None else str(cwd / spec.loss_file),
                "loss_column": spec.loss_column,
                "first_iteration": spec.first_iteration,
                "run_as": None if spec.run_as is None else asdict(spec.run_as),
            }
        )

    def set_share(self, job_id: str, cores: float) -> None:
        """Cap the command's whole tree at so many cores: 0 to stand still, infinity to run free.

        A command that has ended is left alone.
        """
        if not cores >= 0.0:
            raise ValueError(f"a share is 0 cores or more, not {cores}")
        if job_id in self._trees:
            self._tell({"do": "share", "tree": self._trees[job_id], "cores": cores})

    def stop(self, job_id: str) -> None:
        """Have a command and its tree ended; CommandExited follows. One that has ended is left alone."""
        if job_id in self._trees:
            self._tell({"do": "stop", "tree": self._trees[job_id]})

    def poll(self) -> list[Record]:
        """Return what has happened since the last call, in order for each command. Never waits."""
        if self._channel is not None:
            self._channel.setblocking(False)
            self._receive()
            if self._channel is not None:
                self._channel.settimeout(PATIENCE)
        records, self._records = self._records, []
        return records

    def cpu_seconds(self, job_id: str) -> float:
        """Return the CPU seconds of a command's tree, as of the last poll; 0 for one that has ended."""
        return self._cpu.get(self._trees.get(job_id, ""), 0.0)

    def close(self) -> None:
        """End everything and wait for it; the last records can still be polled."""
        channel, warden = self._channel, self._warden
        if channel is None or warden is None:
            return
        if os.getpid() != self._owner:
            channel.close()  # a fork of the engine: neither the warden nor the commands are its own
            self._channel = self._warden = None
            return
        with suppress(OSError):
            channel.settimeout(PATIENCE)
            channel.sendall(b'{"do": "close"}\n')
        # Ends with the stream, when the warden has seen the last tree out.
        while self._channel is not None:
            self._receive()

    def _greet(self) -> None:
        while True:
            message = self._next()
            if message is None:
                self._lose("it did not start")
                raise CommandError(
                    "the process that supervises commands did not start", "see the log for why; report it"
                )
            if message["is"] == "refused":
                self._drop()
                raise ThrottleError(**{name: message["error"][name] for name in ("name", "reason", "usable")})
            if message["is"] == "ready":
                self.throttle = message["throttle"]
                _LOG.info(
                    "cpu shares chosen",
                    extra={"throttle": message["throttle"], "refused": message["refused"]},
                )
                return

    def _tell(self, message: Message) -> None:
        if self._channel is None:
            return
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            self._lose(str(error))

    def _next(self) -> Message | None:
        """Return one message, waiting as the channel is set to; None at the end."""
        while b"\n" not in self._incoming:
            if self._channel is None:
                return None
            try:
                received = self._channel.recv(1 << 16)
            except OSError:
                received = b""
            if not received:
                return None
            self._incoming += received
        line, _, self._incoming = self._incoming.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def _receive(self) -> None:
        """Take in what there is; on a channel that waits, at least something or the end of the stream."""
        if self._channel is None:
            return
        try:
            received = self._channel.recv(1 << 20)
        except BlockingIOError:
            if self._warden is not None and self._warden.poll() is not None:
                self._lose("it ended")
            return
        except OSError as error:
            self._lose(str(error))
            return
        *lines, self._incoming = (self._incoming + received).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if not received:
            self._lose("it ended")

    def _take(self, message: Message) -> None:
        kind = message["is"]
        if kind == "usage":
            self._cpu.update({tree: cpu for tree, cpu in message["cpu"].items() if tree in self._jobs})
        elif kind == "crash":
            _LOG.error("command supervisor crashed", extra={"traceback": message["traceback"]})
        elif message.get("tree") in self._jobs:
            self._take_news(kind, message, message["tree"])

    def _take_news(self, kind: str, message: Message, tree: str) -> None:
        job_id, at = self._jobs[tree], message["at"]
        record: Record
        if kind == "loss":
            self._losses[tree] += 1
            record = LossSeen(
                job_id=job_id,
                at=at,
                observation=Observation(**message["observation"]),
                metrics=message["metrics"],
            )
        elif kind == "rate":
            record = LearningRateSeen(job_id=job_id, at=at, learning_rate=message["learning_rate"])
        elif kind == "silent":
            record = LossSourceFailed(job_id=job_id, at=at, reason=message["reason"])
        else:
            names = ("status", "stopped", "cpu_seconds", "losses", "tail", "fault")
            record = CommandExited(job_id=job_id, at=at, **{name: message[name] for name in names})
            self._forget(job_id, tree)
        self._records.append(record)

    def _forget(self, job_id: str, tree: str) -> None:
        del self._trees[job_id], self._jobs[tree], self._cpu[tree], self._losses[tree]

    def _lose(self, why: str) -> None:
        """The warden is gone: whether asked to or not, nothing may be left of its trees."""
        warden = self._drop()
        status = None if warden is None else warden.returncode
        if self._trees:
            _LOG.error("command supervisor lost", extra={"why": why, "status": status})
            kill_marked(f"{self._token}.")
        for job_id, tree in list(self._trees.items()):
            self._records.append(
                CommandExited(
                    job_id=job_id,
                    at=time.monotonic(),
                    status=-9,
                    stopped=False,
                    cpu_seconds=self._cpu[tree],
                    losses=self._losses[tree],
                    tail="",
                    fault=f"the process that supervised the command was lost ({why}, status {status})",
                )
            )
            self._forget(job_id, tree)

    def _drop(self) -> subprocess.Popen[bytes] | None:
        channel, warden = self._channel, self._warden
        self._channel = self._warden = self.throttle = None
        if channel is not None:
            channel.close()
        if warden is not None:
            try:
                warden.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                warden.kill()
                warden.wait()
        return warden


def _environment(spec: CommandSpec) -> dict[str, str]:
    cores = os.cpu_count() or 1
    threads = max(1, math.ceil(min(spec.max_cores or cores, cores)))
    # More threads than cores cost more than any way to enforce shares; and a loss that waits in a buffer of
    # output is a loss unseen. Whatever the user has set, stays.
    defaults = {name: str(threads) for name in THREAD_VARIABLES} | {"PYTHONUNBUFFERED": "1"}
    return defaults | (dict(os.environ) if spec.inherit_env else {}) | dict(spec.env)


def checked(spec: CommandSpec) -> Path:
    """Return where the command is to run; raises where it cannot."""
    if not spec.argv or not spec.argv[0]:
        raise CommandError("the command is empty", "name a program, as in ['python', 'train.py']")
    if any("\0" in text for text in (*spec.argv, *spec.env, *spec.env.values())):
        raise CommandError("the command or its environment holds a NUL character", "remove it")
    if any("=" in name or not name for name in spec.env):
        raise CommandError("a variable of the environment has '=' in its name, or no name", "correct it")
    cwd = Path.cwd() if spec.cwd is None else spec.cwd.absolute()
    # What another user can see and run, only that user can tell.
    if spec.run_as is None:
        if not cwd.is_dir():
            raise CommandError(f"{cwd} is not a directory", "create it, or give another cwd")
        _check_program(spec.argv[0], cwd, {**(os.environ if spec.inherit_env else {}), **spec.env})
    if spec.loss_pattern is not None and spec.loss_file is not None:
        raise LossSourceError("there is both a loss pattern and a loss file", "give one of them")
    if spec.loss_pattern is not None:
        checked_pattern(spec.loss_pattern)
    try:
        spec.directory.mkdir(parents=True, exist_ok=True)
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        spec.log.open("ab").close()
    except OSError as error:
        raise CommandError(
            f"the job's files cannot be written ({error})", "check directory and log"
        ) from None
    return cwd


def _check_program(program: str, cwd: Path, env: Mapping[str, str]) -> None:
    if os.sep in program:
        path = cwd / program
        if not path.is_file():
            raise CommandError(f"there is no file {path}", "check the command")
        if not os.access(path, os.X_OK):
            raise CommandError(
                f"{path} is not executable", f"run chmod +x {path}, or put its interpreter first"
            )
    elif shutil.which(program, path=env.get("PATH", os.defpath)) is None:
        raise CommandError(
            f"there is no program {program!r} on the PATH", "check the command, or give its path"
        )
