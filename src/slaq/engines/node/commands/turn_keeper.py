"""Carries out the turns of process trees: measures their CPU time, lets them run and rest."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from slaq.engines.node.commands.shares import Throttle
from slaq.engines.node.commands.turns import Turns
from slaq.engines.processes import cores_here


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What a tree has had up to a moment of `time.monotonic()`."""

    at: float
    cpu_seconds: float = 0.0
    #: Seconds in which it was let run, and those times the cores that it had then.
    run_seconds: float = 0.0
    seat_seconds: float = 0.0


class TurnKeeper:
    """The turns of all trees of a supervisor, on this machine's processes."""

    def __init__(self, throttle: Throttle, clock: Callable[[], float] = time.monotonic) -> None:
        self._throttle = throttle
        self._clock = clock
        self._turns = Turns(cores=cores_here())
        #: What is in force: the seats of the trees that run.
        self._running: dict[str, int] = {}
        self._tend_at = 0.0

    @property
    def cores(self) -> int:
        """The cores that are shared out in turns."""
        return self._turns.seats

    @property
    def taken(self) -> int:
        """The cores that trees occupy now."""
        return self._turns.taken

    @property
    def jobs(self) -> int:
        """How many trees there are."""
        return len(self._turns.trees)

    def add(self, tree: str, pid: int, limit: float | None) -> None:
        """Take charge of a process and all its descendants to come; they rest until they are granted something.

        `limit` is the number of cores that its owner allows it at most.
        """
        self._throttle.add(tree, pid)
        self._turns.add(tree, self._clock())
        if limit is not None and limit < cores_here():
            self._turns.trees[tree].limit = limit

    def remove(self, tree: str) -> None:
        """Drop a tree."""
        self._turns.remove(tree)
        self._running.pop(tree, None)
        with suppress(OSError):
            self._throttle.remove(tree)

    def lend(self, room: float | None) -> None:
        """Let all trees together use so many cores, whatever their shares; None to hold each to its share."""
        self._turns.room = room

    def grant(self, tree: str, cores: float | None) -> None:
        """Change the share of a tree, in cores; None to let it stand still at once, infinity to let it run free."""
        self._turns.grant(tree, cores)
        if cores is None:
            self._rest(tree)
        elif cores == math.inf:
            self._run(tree)

    def widen(self, tree: str, threads: int, *, squeezable: bool) -> None:
        """Set the number of threads that a tree was started with."""
        self._turns.widen(tree, threads, squeezable=squeezable)

    def bar(self, tree: str, *, barred: bool) -> None:
        """Keep a tree from having its first turn, or keep it no longer."""
        self._turns.trees[tree].barred = barred

    def has_begun(self, tree: str) -> bool:
        """Return whether a tree has had its first turn."""
        return self._turns.trees[tree].begun

    def seats(self, tree: str) -> int:
        """Return the cores that a tree occupies when it runs."""
        return self._turns.trees[tree].seats

    def usage(self, tree: str) -> TreeUsage:
        """Return what a tree has had up to now."""
        now = self._clock()
        taker = self._turns.trees[tree]
        self._turns.settle(tree, self._throttle.cpu_seconds(tree), now)
        return TreeUsage(now, taker.used, taker.run_seconds, taker.seat_seconds)

    def tick(self) -> float:
        """Do what is due; return the seconds until the next call is due, perhaps infinity."""
        now = self._clock()
        for tree in self._running:
            self._turns.settle(tree, self._throttle.cpu_seconds(tree), now)
        chosen = self._turns.choose(now)
        for tree in self._running.keys() - set(chosen):
            self._rest(tree)
        for tree in chosen:
            self._run(tree)
        if now >= self._tend_at:
            self._tend_at = now + self._throttle.tend()
        return min(self._turns.due(), self._tend_at - now)

    def _run(self, tree: str) -> None:
        seats = self._turns.trees[tree].seats
        if self._running.get(tree) != seats:
            self._running[tree] = seats
            # Fails where someone else has removed the group; the job then runs as it can.
            with suppress(OSError):
                self._throttle.run(tree, seats)

    def _rest(self, tree: str) -> None:
        self._running.pop(tree, None)
        with suppress(OSError):
            self._throttle.rest(tree)
