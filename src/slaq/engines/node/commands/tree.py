"""The process trees of the commands: their members, their CPU time, and their end.

Descendants are found by one listing of /proc for all trees, of which only the processes not seen before are
looked at: cheaper than following `children` files as soon as a tree has a few processes, and it finds those
that were given a new parent. A process once in a tree stays in it, whatever session or parent it takes later.

An orphan whose parents died before they were seen belongs, in this order, to the tree whose control group holds
it, whose mark it bears, whose session it is in, or, of its user's trees, to the newest. So whatever a process does
to hide where it comes from, it ends up with its own user's jobs.
"""

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from resource import struct_rusage

from slaq.engines.node.commands.marks import mark_of
from slaq.engines.processes import (
    CHILD_SYSTEM,
    CHILD_USER,
    PARENT,
    SESSION,
    STARTED,
    children,
    cpu_seconds,
    read_of,
    send,
    send_exactly,
    stat_fields,
    user_of,
)

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: One of so many scans also reads the CPU time of children that have exited, and whether a member's number has
#: become that of another process.
_SCANS_PER_READING = 5
#: One of so many scans is thorough by itself.
_SCANS_PER_CHECK = 50
#: Looks that `catch` takes at most, and how many of them in a row find nothing new once all are caught.
_MOST_LOOKS, _QUIET_LOOKS = 300, 3


class ProcessTable:
    """The trees of all commands started by this process, which inherits their orphans (`adopt_orphans`).

    CPU time of a tree: of every live process its own and that of the children it waited for, and what those
    had used that were waited for here. Left out are children of a process that ignores SIGCHLD, once gone.
    """

    def __init__(self) -> None:
        self._me = os.getpid()
        self._session = os.getsid(0)
        self._known: set[int] = set()
        self._tree_of: dict[int, str] = {}
        self._members: dict[str, set[int]] = {}
        #: By tree, the newest last: the process at its root, and the user it runs as.
        self._root: dict[str, int] = {}
        self._user: dict[str, int] = {}
        self._by_mark: dict[str, str] = {}
        #: When each member began, which tells it from a later process of the same number.
        self._began: dict[int, bytes] = {}
        #: Orphans that belong to no tree, and when each began.
        self.strays: dict[int, bytes] = {}
        #: Trees of which a process came and went without being seen alive, since `take_hidden` was last called.
        self._hidden: set[str] = set()
        #: Returns the tree whose control group holds a process, where groups are used.
        self.locate: Callable[[int], str | None] = lambda pid: None
        #: Waits for the children that have exited.
        self.reap: Callable[[], object] = lambda: None
        #: CPU seconds of exited children, per live process.
        self._children: dict[int, float] = {}
        #: CPU seconds of the processes waited for here, per tree; and the most ever read.
        self._reaped: dict[str, float] = {}
        self._most: dict[str, float] = {}
        self._scans = 0

    def plant(self, tree: str, root: int, *, mark: str = "", user: int | None = None) -> None:
        """Begin a tree with the process at its root, which has that mark and is to run as that user, or as ours."""
        row = stat_fields(root)
        self._root[tree] = root
        self._user[tree] = os.getuid() if user is None else user
        if mark:
            self._by_mark[mark] = tree
        self._members[tree] = set()
        self._reaped[tree] = self._most[tree] = 0.0
        self._join(root, tree, row)

    def forget(self, tree: str) -> None:
        """Drop a tree that has ended."""
        for pid in tuple(self._members.get(tree, ())):
            self._leave(pid)
        self._members.pop(tree, None)
        for of_tree in (self._root, self._user, self._reaped, self._most):
            of_tree.pop(tree, None)
        self._by_mark = {mark: other for mark, other in self._by_mark.items() if other != tree}
        self._hidden.discard(tree)

    def members(self, tree: str) -> set[int]:
        """Return the processes of the tree as last scanned, those that wait to be reaped included."""
        return self._members.get(tree, set())

    def send(self, pids: Iterable[int], *signals: int) -> None:
        """Send each signal to each of these members, and never to another process that took a number over."""
        for pid in pids:
            if pid in self._began:
                send_exactly(pid, self._began[pid], *signals)

    def kill_strays(self) -> None:
        """Kill the orphans that belong to no tree: nobody answers for them."""
        for pid, began in self.strays.items():
            send_exactly(pid, began, signal.SIGKILL)

    def scan(self, *, thorough: bool = False) -> None:
        """Find processes that came and went; if thorough, check known ones too, because process ids are reused."""
        # Where descriptors are short, all stays as it was, and a later scan finds it.
        with suppress(OSError):
            self._scan(thorough=thorough or self._scans % _SCANS_PER_CHECK == 0)

    def _scan(self, *, thorough: bool) -> None:
        listed = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        self._scans += 1
        reading = thorough or self._scans % _SCANS_PER_READING == 0
        known = {pid: stat_fields(pid) for pid in self._tree_of} if reading else {}
        fresh = listed if thorough else listed - self._known
        rows = {pid: row for pid in fresh if pid not in self._tree_of and (row := stat_fields(pid))}
        for pid in tuple(self._tree_of):
            row = known.get(pid, [])
            if pid not in listed or (reading and (not row or row[STARTED] != self._began[pid])):
                self._leave(pid)
                if row:
                    rows[pid] = row
            elif reading:
                self._children[pid] = (int(row[CHILD_USER]) + int(row[CHILD_SYSTEM])) / _TICKS
        self.strays = {pid: began for pid, began in self.strays.items() if pid in listed}
        for pid in rows:
            self._place(pid, rows)
        self._known = listed

    def catch(self) -> set[int]:
        """Stop processes that fork and exit faster than a scan can see them alive; return them.

        At any moment the last of such a chain is our child: its parent has just exited.
        """
        caught: set[int] = set()
        quiet = 0
        for _ in range(_MOST_LOOKS):
            self.reap()
            fresh = [pid for pid in children() if pid not in self._tree_of and pid not in caught]
            fresh = [pid for pid in fresh if not self._is_ours(pid)]
            send(fresh, signal.SIGSTOP)
            caught.update(fresh)
            quiet = 0 if fresh else quiet + 1
            if quiet == _QUIET_LOOKS:
                break
        self.scan()
        return caught & self._tree_of.keys()

    def take_hidden(self, tree: str) -> bool:
        """Return whether a process of the tree came and went unseen since the last call."""
        hidden = tree in self._hidden
        self._hidden.discard(tree)
        return hidden

    def tree_of(self, pid: int) -> str | None:
        """Return the tree that a process belongs to, or None."""
        return self._tree_of.get(pid)

    def place_exited(self, pid: int, user: int) -> None:
        """Place a child of that user that is about to be waited for here, if no scan has seen it alive."""
        if pid in self._tree_of or not self._root:
            return
        with suppress(OSError):
            row = stat_fields(pid)
            if row and int(row[SESSION]) != self._session:
                tree = self._tree_of_session(int(row[SESSION])) or self._newest_of(user)
                if tree is not None:
                    self._join(pid, tree, row)
                    self._hidden.add(tree)

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

    def memory(self, tree: str) -> int:
        """Return the bytes of memory that the tree takes up now; what its processes share counts once."""
        own = shared = 0
        for pid in self._members.get(tree, ()):
            with suppress(OSError):
                pages = read_of(pid, "statm").split()
                if len(pages) > 2:
                    own += int(pages[1]) - int(pages[2])
                    shared = max(shared, int(pages[2]))
        return (own + shared) * _PAGE

    def _join(self, pid: int, tree: str, row: list[bytes]) -> None:
        self._began[pid] = row[STARTED] if row else b""
        self._tree_of[pid] = tree
        self._members[tree].add(pid)
        self._known.add(pid)
        self.strays.pop(pid, None)

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
            parent = int(rows[pid][PARENT])
            if parent == self._me:
                tree = self._orphan_of(pid, rows[pid])
                break
            pid = parent
        else:
            tree = self._tree_of.get(pid)
        for member in line:
            if tree is not None and member not in self._tree_of:
                self._join(member, tree, rows[member])

    def _orphan_of(self, pid: int, row: list[bytes]) -> str | None:
        """Return the tree of a child of ours that was not started here as the root of one."""
        if pid in self._tree_of:
            return self._tree_of[pid]
        if int(row[SESSION]) == self._session:
            # No process can enter the session it is not in: this one serves the supervisor itself.
            return None
        located = self.locate(pid)
        tree = located if located in self._root else self._by_mark.get(mark_of(pid) or "")
        tree = tree or self._tree_of_session(int(row[SESSION]))
        if tree is None and (user := user_of(pid)) is not None:
            tree = self._newest_of(user)
        if tree is None and row[0] not in (b"Z", b"X"):
            self.strays[pid] = row[STARTED]
        return tree

    def _tree_of_session(self, session: int) -> str | None:
        by_root = (tree for tree, root in self._root.items() if session == root)
        return next(by_root, None) or self._tree_of.get(session)

    def _newest_of(self, user: int) -> str | None:
        return next((tree for tree in reversed(self._user) if self._user[tree] == user), None)

    def _is_ours(self, pid: int) -> bool:
        with suppress(OSError):
            row = stat_fields(pid)
            return not row or int(row[SESSION]) == self._session
        return True
