"""Starts one command, which waits at a gate until it is supervised, so that no child escapes."""

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from slaq.engines.node.commands.records import RunAs
from slaq.engines.processes import die_with_parent

#: What a process exits with when its command could not be executed, as in a shell.
NOT_EXECUTED = 127


@dataclass(slots=True)
class Child:
    """A process that waits at the gate, or has passed it."""

    pid: int
    _gate: int
    _complaint: int

    def release(self) -> None:
        """Open the gate: the command runs from here on."""
        os.write(self._gate, b"!")
        os.close(self._gate)

    def complaint(self) -> str:
        """Return why the command could not be executed, once the process has ended; empty where it was."""
        with suppress(OSError):
            os.set_blocking(self._complaint, False)
            text = os.read(self._complaint, 4096).decode(errors="replace")
            os.close(self._complaint)
            return text
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSetting:
    """What surrounds a command: where it runs, with what environment and limits, as whom; where its output goes."""

    cwd: Path
    env: Mapping[str, str]
    log: Path
    run_as: RunAs | None = None
    open_files: int | None = None


def launch(argv: Sequence[str], setting: LaunchSetting) -> Child:
    """Fork a process that becomes the command once released: in its own session, output to the log."""
    gate_out, gate_in = os.pipe()
    complaint_out, complaint_in = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(gate_in)
        _become(argv, setting, parent, gate_out, complaint_in)
    os.close(gate_out)
    os.close(complaint_in)
    return Child(pid, gate_in, complaint_out)


def become_user(user: RunAs) -> None:
    """Become that user for good; groups first, because only root can change them."""
    os.setgroups(user.groups)
    os.setgid(user.gid)
    os.setuid(user.uid)


def _become(argv: Sequence[str], setting: LaunchSetting, parent: int, gate: int, complaint: int) -> NoReturn:
    try:
        die_with_parent(parent)
        os.setsid()
        reset_signals()
        # When memory runs out, the kernel is to kill the job and not the service.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("500")
        if setting.open_files is not None:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (setting.open_files, most))
        null = os.open(os.devnull, os.O_RDONLY)
        output = os.open(setting.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        # The end of the stream means that the supervisor is gone.
        if os.read(gate, 1):
            if setting.run_as is not None:
                become_user(setting.run_as)
                die_with_parent(parent)  # the kernel forgets it at a change of user
            os.chdir(setting.cwd)
            os.execvpe(argv[0], list(argv), dict(setting.env))
    except BaseException as error:
        with suppress(OSError):
            os.write(complaint, f"{argv[0]} could not be executed ({error})".encode())
    finally:
        os._exit(NOT_EXECUTED)


def reset_signals() -> None:
    """Handle every signal as a fresh process does."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
