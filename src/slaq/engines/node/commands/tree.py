"""The process trees of the commands: their members, their CPU time, and their end.

Descendants are found by one listing of /proc for all trees, of which only the processes not seen before are
looked at: cheaper than following `children` files as soon as a tree has a few processes, and it finds those
that were given a new parent. A process once in a tree stays in it, whatever session or parent it takes later.
"""

import os
import signal
import time
from resource import struct_rusage

from slaq.engines.processes import cpu_seconds, send

#: The environment variable that marks the processes of a tree, for those whose parents died before they were seen.
MARK = "SLAQ_TREE"

_TICKS = os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat, counted after the name in brackets.
_PARENT, _SESSION, _CHILD_USER, _CHILD_SYSTEM, _STARTED = 1, 3, 13, 14, 19
#: One of so many scans also reads the CPU time of children that have exited.
_SCANS_PER_READING = 5


class ProcessTable:
    """The trees of all commands started by this process, which inherits their orphans (`adopt_orphans`).

    CPU time of a tree: of every live process its own and that of the children it waited for, and what those
    had used that were waited for here. Left out are children of a process that ignores SIGCHLD, once gone.
    """

    def __init__(self) -> None:
        self._me = os.getpid()
        self._known: set[int] = set()
        #: Children of this process that belong to no tree.
        self._exempt: set[int] = set()
        self._tree_of: dict[int, str] = {}
        self._members: dict[str, set[int]] = {}
        self._root: dict[str, int] = {}
        #: When each member began, which tells it from a later process of the same number.
        self._began: dict[int, bytes] = {}
        #: Orphans of no known tree.
        self.strays: set[int] = set()
        #: CPU seconds of exited children, per live process.
        self._children: dict[int, float] = {}
        #: CPU seconds of the processes waited for here, per tree; and the most ever read.
        self._reaped: dict[str, float] = {}
        self._most: dict[str, float] = {}
        self._scans = 0

    def exempt(self, pid: int) -> None:
        """Take note that a child of this process belongs to no tree."""
        self._exempt.add(pid)

    def plant(self, tree: str, root: int) -> None:
        """Begin a tree with the process at its root."""
        self._root[tree] = root
        self._members[tree] = set()
        self._reaped[tree] = self._most[tree] = 0.0
        self._join(root, tree, _stat(root))

    def forget(self, tree: str) -> None:
        """Drop a tree that has ended."""
        for pid in tuple(self._members.get(tree, ())):
            self._leave(pid)
        self._members.pop(tree, None)
        for of_tree in (self._root, self._reaped, self._most):
            of_tree.pop(tree, None)

    def members(self, tree: str) -> set[int]:
        """Return the processes of the tree as last scanned, those that wait to be reaped included."""
        return self._members.get(tree, set())

    def scan(self, *, thorough: bool = False) -> None:
        """Find processes that came and went; if thorough, check known ones too, because process ids are reused."""
        listed = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        for pid in tuple(self._tree_of):
            if pid not in listed or (thorough and self._is_another(pid)):
                self._leave(pid)
        self.strays &= listed
        fresh = listed if thorough else listed - self._known
        self._known = listed
        self._exempt &= listed
        rows = {
            pid: row
            for pid in fresh
            if pid not in self._tree_of and pid not in self._exempt and (row := _stat(pid))
        }
        for pid in rows:
            self._place(pid, rows)
        self._scans += 1
        if thorough or self._scans % _SCANS_PER_READING == 0:
            for pid in self._tree_of:
                self._read_children(pid)

    def waited(self, pid: int, usage: struct_rusage) -> None:
        """Count the CPU time of a process that was waited for here."""
        tree = self._tree_of.get(pid)
        if tree is not None:
            self._reaped[tree] += usage.ru_utime + usage.ru_stime
            self._leave(pid)

    def cpu_seconds(self, tree: str) -> float:
        """Return the CPU seconds the tree has used; never less than before."""
        used = self._reaped.get(tree, 0.0)
        for pid in self._members.get(tree, ()):
            own = cpu_seconds(pid)
            if own is not None:
                used += own + self._children.get(pid, 0.0)
        self._most[tree] = max(used, self._most.get(tree, 0.0))
        return self._most[tree]

    def _is_another(self, pid: int) -> bool:
        row = _stat(pid)
        return not row or row[_STARTED] != self._began[pid]

    def _join(self, pid: int, tree: str, row: list[bytes]) -> None:
        self._began[pid] = row[_STARTED] if row else b""
        self._tree_of[pid] = tree
        self._members[tree].add(pid)
        self._known.add(pid)

    def _leave(self, pid: int) -> None:
        self._members[self._tree_of.pop(pid)].discard(pid)
        self._children.pop(pid, None)
        self._began.pop(pid, None)
        self._known.discard(pid)

    def _place(self, pid: int, rows: dict[int, list[bytes]]) -> None:
        """Find the tree of a new process through its parents, as far as those are new too."""
        line: list[int] = []
        while pid in rows and pid not in line:
            line.append(pid)
            parent = int(rows[pid][_PARENT])
            if parent == self._me:
                tree = self._orphan_of(pid, int(rows[pid][_SESSION]))
                break
            pid = parent
        else:
            tree = self._tree_of.get(pid)
        for member in line:
            if tree is not None:
                self._join(member, tree, rows[member])

    def _orphan_of(self, pid: int, session: int) -> str | None:
        """Return the tree of an orphan: by its mark, else by its session, else the only tree there is."""
        mark = mark_of(pid)
        if mark in self._root:
            return mark
        for tree, root in self._root.items():
            if session == root:
                return tree
        if len(self._root) == 1:
            return next(iter(self._root))
        self.strays.add(pid)
        return None

    def _read_children(self, pid: int) -> None:
        row = _stat(pid)
        if row:
            self._children[pid] = (int(row[_CHILD_USER]) + int(row[_CHILD_SYSTEM])) / _TICKS


def kill_marked(prefix: str) -> None:
    """Kill every process whose mark begins with the prefix, until none is left.

    For processes whose supervisor was killed.
    """
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        marked = [int(name) for name in os.listdir("/proc") if name.isdecimal() and _bears(int(name), prefix)]
        if not marked:
            return
        send(marked, signal.SIGKILL)
        time.sleep(0.01)


def mark_of(pid: int) -> str | None:
    """Return the mark in the environment the process began with, or None."""
    content = _read(pid, "environ", 1 << 20)
    start = f"{MARK}=".encode()
    for entry in content.split(b"\0"):
        if entry.startswith(start):
            return entry.removeprefix(start).decode(errors="replace")
    return None


def _bears(pid: int, prefix: str) -> bool:
    row = _stat(pid)
    if not row or row[0] in (b"Z", b"X"):
        return False
    mark = mark_of(pid)
    return mark is not None and mark.startswith(prefix) and pid != os.getpid()


def _stat(pid: int) -> list[bytes]:
    # The name in brackets may itself hold brackets and blanks.
    return _read(pid, "stat", 4096).rpartition(b")")[2].split()


def _read(pid: int, name: str, size: int) -> bytes:
    try:
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, size)
    except OSError:
        return b""
    finally:
        os.close(fd)
