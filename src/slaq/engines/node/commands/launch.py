"""Starts one command, which waits at a gate until it is supervised, so that no child escapes."""

import json
import os
import resource
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from slaq.engines.node.commands.records import RunAs
from slaq.engines.processes import die_with_parent

#: What a process exits with when its command could not be executed, as in a shell.
NOT_EXECUTED = 127
# Bytes of the variables that a command is released with: a few short ones.
_LONGEST_RELEASE = 65536


@dataclass(slots=True)
class Child:
    """A process that waits at the gate, or has passed it."""

    pid: int
    #: Our end of a pair of sockets, of which the command's execution closes the other; -1 once that is known.
    _line: int
    #: Why the command could not be executed, as far as `hear` has heard; empty where it was.
    complaint: str = ""

    def release(self, variables: Mapping[str, str] | None = None) -> None:
        """Open the gate: the command runs from here on, with these variables added to its environment."""
        # A process that was killed at the gate is reaped like any other.
        with suppress(OSError):
            os.write(self._line, json.dumps(dict(variables or {})).encode())

    def hear(self) -> None:
        """Record whether the command was executed, if that is known by now."""
        if self._line < 0:
            return
        try:
            self.complaint = os.read(self._line, 4096).decode(errors="replace")
        except BlockingIOError:
            return
        except OSError:
            pass  # killed at the gate
        self.close()

    def close(self) -> None:
        """Close the pipe; a command that was not released is never executed."""
        if self._line >= 0:
            os.close(self._line)
            self._line = -1


@dataclass(frozen=True, slots=True)
class Inherited:
    """What commands get from the supervisor's own parent, as the supervisor itself has other values."""

    #: Files that a command may have open, unless it is given a number of its own; None for as many as we.
    open_files: int | None = None
    niceness: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSetting:
    """What surrounds a command: where it runs, with what environment and limits, as whom; where its output goes."""

    cwd: Path
    env: Mapping[str, str]
    log: Path
    run_as: RunAs | None = None
    inherited: Inherited = Inherited()


def launch(argv: Sequence[str], setting: LaunchSetting) -> Child:
    """Fork a process that becomes the command once released: in its own session, output to the log."""
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    with ours, theirs:
        pid = fork()
        if pid == 0:
            ours.close()
            _become(argv, setting, parent, theirs.fileno())
        ours.setblocking(False)
        return Child(pid, ours.detach())


def become_user(user: RunAs) -> None:
    """Become that user for good; groups first, because only root can change them."""
    os.setgroups(user.groups)
    os.setgid(user.gid)
    os.setuid(user.uid)


def _become(argv: Sequence[str], setting: LaunchSetting, parent: int, line: int) -> NoReturn:
    try:
        die_with_parent(parent)
        os.setsid()
        reset_signals()
        # When memory runs out, the kernel is to kill the job and not the service.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")
        _inherit(setting.inherited)
        null = os.open(os.devnull, os.O_RDONLY)
        output = os.open(setting.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # The end of the stream means that the supervisor is gone.
        if released := os.read(line, _LONGEST_RELEASE):
            env = {**setting.env, **json.loads(released)}
            if setting.run_as is not None:
                become_user(setting.run_as)
                die_with_parent(parent)  # the kernel forgets it at a change of user
            os.chdir(setting.cwd)
            os.execvpe(argv[0], list(argv), env)
    except BaseException as error:
        with suppress(OSError):
            os.write(line, f"{argv[0]} could not be executed ({error})".encode())
    finally:
        os._exit(NOT_EXECUTED)


def _inherit(what: Inherited) -> None:
    if what.open_files is not None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(what.open_files, most), most))
    if what.niceness is not None:
        os.setpriority(os.PRIO_PROCESS, 0, what.niceness)


def fork() -> int:
    """Fork while signals are held back; the child lets them through with `reset_signals`.

    Otherwise one that comes too early would run the supervisor's own handler in the child, which ends all commands.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def reset_signals() -> None:
    """Handle every signal as a fresh process does, and let all of them through."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
