"""The keeper: a process between a node and its supervisor that kills whatever an ended supervisor leaves behind.

The keeper does nothing that could fail: it holds no socket, reads nothing that a job writes, and waits. When
the supervisor is gone, all that descends from it descends from the keeper, whatever its session, parent and
environment, and the keeper kills it. When the node is gone, the keeper has the supervisor end its trees in order;
when the keeper itself is gone, the supervisor does that by itself.
"""

import os
import signal
import time
from contextlib import suppress

from slaq.engines.node.spawn import inherited
from slaq.engines.processes import (
    PARENT,
    STARTED,
    adopt_orphans,
    children,
    die_with_parent,
    precede,
    send,
    send_exactly,
    stat_fields,
)

#: Seconds between two checks that the node lives.
CHECK_SECONDS = 1.0
#: Seconds that the supervisor has to end once it was told to; then it is killed.
PATIENCE = 30.0
#: Seconds after which processes that cannot be killed, as they wait for a broken disk, are left to the system.
ABANDON_SECONDS = 10.0
#: Rounds in which new processes are stopped before all are killed: those that fork faster go into the next round.
_ROUNDS = 200
#: Seconds between two rounds.
_ROUND_SECONDS = 0.005
#: How often the supervisor is tried to be forked.
_TRIES = 20

_TOLD = (signal.SIGTERM, signal.SIGHUP)
_WAITED_FOR = (signal.SIGCHLD, *_TOLD)


def main(descriptor: str, node: str, grace: str, force: str) -> None:
    """Fork the supervisor, which gets the socket and these arguments, and outlive it.

    Exit with the supervisor's status: 128 and the signal's number where a signal ended it.
    """
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    keeper = os.getpid()
    supervisor = _fork()
    if supervisor == 0:
        _supervise(descriptor, keeper, grace, force)
        return
    inherited(descriptor).close()
    precede()
    status = _outlive(supervisor, int(node))
    end_descendants(ABANDON_SECONDS)
    os._exit(status if status >= 0 else 128 - status)


def end_descendants(patience: float) -> None:
    """Kill all that descends from this process, and wait for it; for so many seconds at most."""
    deadline = time.monotonic() + patience
    while _reap() and time.monotonic() < deadline:
        # Stopped first, so that none forks while the others are being killed. Children before all others, and at
        # once: of processes that fork and exit the last is always our child, and alive for a moment only.
        stopped: set[int] = set()
        for _ in range(_ROUNDS):
            _reap()
            fresh = set(children()) - stopped
            fresh = fresh or _descendants().keys() - stopped
            if not fresh:
                break
            send(fresh, signal.SIGSTOP)
            stopped |= fresh
        for pid, started in _descendants().items():
            send_exactly(pid, started, signal.SIGKILL)
        signal.sigtimedwait((signal.SIGCHLD,), _ROUND_SECONDS)


def _fork() -> int:
    """Fork, again and again where the system is short of processes or memory."""
    for _ in range(_TRIES):
        with suppress(OSError):
            return os.fork()
        time.sleep(CHECK_SECONDS)
    return os.fork()


def _supervise(descriptor: str, keeper: int, grace: str, force: str) -> None:
    """Become the supervisor. The keeper itself imports nothing of it, and so stays small."""
    from slaq.engines.node.commands.supervisor_process import main as supervise

    die_with_parent(keeper, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
    supervise(descriptor, str(keeper), grace, force)


def _outlive(supervisor: int, node: int) -> int:
    """Wait for the supervisor and return its exit status; have it end once the node is gone or a signal says so."""
    kill_at: float | None = None
    while True:
        told = signal.sigtimedwait(_WAITED_FOR, CHECK_SECONDS)
        with suppress(ChildProcessError):
            pid, status = os.waitpid(supervisor, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        gone = os.getppid() != node
        if kill_at is None and (gone or (told is not None and told.si_signo in _TOLD)):
            kill_at = time.monotonic() + PATIENCE
            os.kill(supervisor, signal.SIGTERM)
        elif kill_at is not None and time.monotonic() > kill_at:
            os.kill(supervisor, signal.SIGKILL)


def _reap() -> bool:
    """Wait for all children that have exited; return whether any is left."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def _descendants() -> dict[int, bytes]:
    """Return the processes that descend from this one, and when each began; zombies included."""
    below: dict[int, dict[int, bytes]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            row = stat_fields(int(name)) if name.isdecimal() else []
            if row:
                below.setdefault(int(row[PARENT]), {})[int(name)] = row[STARTED]
    found: dict[int, bytes] = {}
    line = [os.getpid()]
    while line:
        new = {pid: began for pid, began in below.get(line.pop(), {}).items() if pid not in found}
        found |= new
        line += new
    return found
