"""The marks of process trees: in the environment of their processes, and unguessable.

A mark is the number of a tree with its HMAC under a secret, which only the node that starts the trees knows.
Whoever knows the mark of one tree cannot make that of another.
"""

import hmac
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from slaq.engines.processes import STARTED, read_of, send_exactly, stat_fields

#: The environment variable that holds the mark.
MARK = "SLAQ_TREE"
#: The environment variable that holds the mark of a node's keeper and of its supervisor.
KEEPER = "SLAQ_KEEPER"
#: Bytes of an environment that are searched for a mark.
_MOST_ENVIRONMENT = 1 << 20
#: Seconds after which processes that cannot be killed are left alone; and those that a keeper is given to end.
_PATIENCE, _KEEPER_PATIENCE = 5.0, 20.0


def mark(secret: str, tree: str) -> str:
    """Return the mark of a tree."""
    return f"{tree}.{hmac.digest(secret.encode(), tree.encode(), 'sha256').hex()}"


def mark_of(pid: int, variable: str = MARK) -> str | None:
    """Return the mark in the environment the process began with, or None."""
    start = f"{variable}=".encode()
    for entry in read_of(pid, "environ", _MOST_ENVIRONMENT).split(b"\0"):
        if entry.startswith(start):
            return entry.removeprefix(start).decode(errors="replace")
    return None


def clear_away(secret: str) -> None:
    """Return once every process of a killed node is gone: those that its keeper ends, and those with its marks."""
    deadline = time.monotonic() + _KEEPER_PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):
            if not _marked(secret, KEEPER):
                break
        time.sleep(0.01)
    kill_marked(secret)


def kill_marked(secret: str) -> None:
    """Kill every process with a mark made from the secret, until none is left.

    For processes whose supervisor, and whose supervisor's keeper, were killed.
    """
    _kill_all(lambda: _marked(secret, MARK))


def kill_bearing(made: str) -> None:
    """Kill every process with this one mark, until none is left."""
    _kill_all(lambda: _live(lambda pid: mark_of(pid) == made))


def _kill_all(find: Callable[[], Mapping[int, bytes]]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):  # short of descriptors: looked at again
            marked = find()
            if not marked:
                return
            # Stopped first, so that none forks while the others are being killed.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid, started in marked.items():
                    send_exactly(pid, started, number)
        time.sleep(0.01)


def _marked(secret: str, variable: str) -> dict[int, bytes]:
    """Return the live processes whose marks were made with the secret, and when each began."""
    return _live(lambda pid: _is_genuine(mark_of(pid, variable), secret))


def _live(wanted: Callable[[int], bool]) -> dict[int, bytes]:
    """Return the other live processes that are wanted, and when each began."""
    found = {}
    for name in os.listdir("/proc"):
        pid = int(name) if name.isdecimal() else os.getpid()
        if pid == os.getpid():
            continue
        row = stat_fields(pid)
        if row and row[0] not in (b"Z", b"X") and wanted(pid):
            found[pid] = row[STARTED]
    return found


def _is_genuine(found: str | None, secret: str) -> bool:
    if found is None:
        return False
    tree = found.partition(".")[0]
    return hmac.compare_digest(found.encode(), mark(secret, tree).encode())
