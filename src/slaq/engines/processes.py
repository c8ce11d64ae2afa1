"""Processes of the operating system: how they live and die together, the CPU they use, how they ended."""

import ctypes
import errno
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from slaq.core.scarcity import SCARCE

LINUX = sys.platform == "linux"
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

#: By how much less nice a process is that must not be kept waiting by those it watches.
PRECEDENCE = 10
#: The parent, the session and the start time among the fields that `stat_fields` returns; and the CPU time, in
#: ticks, of children that were waited for.
PARENT, SESSION, STARTED = 1, 3, 19
CHILD_USER, CHILD_SYSTEM = 13, 14

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends; exit at once if the parent is gone already.

    Linux only: elsewhere children notice the end of a pipe. A change of user makes the kernel forget it.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def raise_descriptor_limit() -> int:
    """Let this process and its children open as many files as the system allows; return the limit before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a hard limit that they do not grant.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def precede() -> int:
    """Run before others on a busy machine, where the system allows that; return the niceness before."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, before - PRECEDENCE)
    return before


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends. Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> list[int]:
    """Return the children of this process; none where the system does not list them."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def send(pids: Iterable[int], *signals: int) -> None:
    """Send each signal to each process; skip processes that are gone or belong to somebody else."""
    for pid in pids:
        for number in signals:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def read_of(pid: int, name: str, size: int = 4096) -> bytes:
    """Return the beginning of a file in a process's folder of /proc; empty where it is gone or not ours to read.

    Raises OSError where this process is short of descriptors or memory: that says nothing about the other one.
    """
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return b""
    try:
        return os.read(fd, size)
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return b""
    finally:
        os.close(fd)


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; none where there is no such process."""
    # The name in brackets may itself hold brackets and blanks.
    return read_of(pid, "stat").rpartition(b")")[2].split()


def user_of(pid: int) -> int | None:
    """Return the user who started a process, whatever user it acts as; None where the process is gone."""
    for line in read_of(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def send_exactly(pid: int, started: bytes, *signals: int) -> None:
    """Send each signal to the process that began at that time, and never to a later one of the same number.

    Do nothing where that process is gone, or is not ours to signal, or where descriptors are short.
    """
    try:
        process = os.pidfd_open(pid)
    except OSError as error:
        # An old kernel, or a sandbox: the moment between the check and the signal is left to chance.
        if error.errno in (errno.ENOSYS, errno.EPERM) and _began(pid, started):
            send([pid], *signals)
        return
    try:
        # From here on the number cannot lead to another process: the descriptor holds on to this one.
        if _began(pid, started):
            for number in signals:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def kill_group(pid: int) -> None:
    """Kill what is left of a process's group; the process itself may be gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Kill a process that was not waited for yet, and its whole group."""
    kill_group(pid)
    send([pid], signal.SIGKILL)


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of all threads of another process; None where the system does not tell.

    Costs 2 µs. The number is the kernel's name for that process's CPU clock: see clock_getcpuclockid(3).
    """
    if not LINUX:
        return None
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def cores_here() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_limits(threads: int) -> dict[str, str]:
    """Return the environment variables that keep number libraries to so many threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def how_it_ended(status: int) -> str:
    """Return an exit status in words; below zero it is the signal that ended the process."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _began(pid: int, started: bytes) -> bool:
    try:
        row = stat_fields(pid)
    except OSError:
        return False
    return bool(row) and row[STARTED] == started


def _prctl(option: int, value: int) -> None:
    if LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
