"""Processes of the operating system: how they live and die together, the CPU they use, how they ended."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

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

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit at once if the parent is gone already.

    Linux only: elsewhere children notice the end of a pipe. A change of user makes the kernel forget it.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


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


def _prctl(option: int, value: int) -> None:
    if LINUX and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
