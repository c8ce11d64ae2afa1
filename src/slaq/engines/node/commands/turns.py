"""Decides whose turn it is: which process trees run now, on how many cores each, and which rest.

A crowded machine is shared in turns of whole cores, because slivers cost a third of the work: caches go cold,
and threads spin at barriers while their partners have no core. Each tree earns credit at the rate of its share, and
pays the CPU it uses. Of the trees that fit the free cores, those with the most credit run, for `TURN` seconds at
least.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Seconds that a turn lasts at least.
TURN = 0.5
#: A tree that runs and uses less than this part of a core, over so many seconds, is idle and lends its seats.
IDLE, WINDOW = 0.1, 0.1
#: Seconds between two looks at the trees that run, and between those while there is a core for every one of them:
#: each look takes a core from somebody for a moment.
TICK, CALM_TICK = 0.05, 0.2
#: The most credit, and the deepest debt, in seconds for each seat of a tree.
MOST_CREDIT, DEEPEST_DEBT = 2.0, 4.0
#: A tree that has not run yet begins when it holds so many cores, has the credit of a turn, or a seat is left over.
FIRST_SHARE = 0.5
#: Seconds after which what an idle tree lends counts as free.
LOAN = 2.0
#: How fast the measured parallelism of a tree follows the last window, and what part of another core it may use
#: without a seat for that core.
PARALLEL_RATE, TOLERATED = 0.3, 0.3
# The rounding error of shares.
DUST = 1e-6


@dataclass(slots=True)
class TurnTaker:
    """One process tree: its credit, and whether it runs."""

    #: Position in the order of arrival, which breaks ties.
    order: int
    #: CPU seconds it had used, and when that was last settled.
    used: float
    settled_at: float
    #: Cores it earns; None while it is to stand still.
    cores: float | None = None
    #: Cores that its owner allows it at most, whatever is idle.
    limit: float = math.inf
    #: Whether it runs without turns: it was told to end.
    free: bool = False
    #: CPU seconds that it may use beyond what it earns from now on.
    credit: float = 0.0
    #: Cores that it occupies while it runs: its threads, until more is known.
    seats: int = 1
    #: Whether its threads wait at barriers without a core, so that it may run with fewer cores than seats.
    squeezable: bool = True
    #: Whether it has had a turn, and whether something else keeps it from having its first.
    begun: bool = False
    barred: bool = False
    #: Since when it runs; None while it rests.
    runs_since: float | None = None
    #: Whether it is idle in its turn, and since when.
    idle: bool = False
    idle_since: float = 0.0
    #: Seconds in which it was let run, up to the last settlement, and those times its seats.
    run_seconds: float = 0.0
    seat_seconds: float = 0.0
    #: Where the present window of measurement began: time and CPU seconds; and the cores it was seen to use.
    window: tuple[float, float] = (0.0, 0.0)
    parallel: float = 1.0

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return self.runs_since is not None


@dataclass(slots=True)
class Turns:
    """The turns of all trees of one node. Time and CPU use are arguments, and the caller runs and stops trees.

    Without a room nothing is lent: each tree is held to its share. With one, cores that some leave idle are for the
    others, as long as all together use no more than the room.
    """

    #: Cores that all trees may use together; None if none is lent.
    room: float | None = None
    #: The most cores that trees can run on at a time.
    cores: float = 1.0
    trees: dict[str, TurnTaker] = field(default_factory=dict)
    #: Core seconds of the room that nobody has used.
    _left: float = 0.0
    _left_at: float = 0.0
    _added: int = 0
    #: Whether the trees that run have more seats than there are cores, so that they hold each other up.
    _overfull: bool = False
    #: The trees that were chosen last, and whether trees or shares have changed since.
    _chosen: list[str] = field(default_factory=list)
    _changed: bool = True

    def add(self, job: str, now: float, used: float = 0.0) -> None:
        """Take in a tree, which stands still until it is granted something."""
        self._added, self._changed = self._added + 1, True
        self.trees[job] = TurnTaker(order=self._added, used=used, settled_at=now, window=(now, used))

    def remove(self, job: str) -> None:
        """Drop a tree; one that is unknown is left alone."""
        self.trees.pop(job, None)
        self._changed = True

    def widen(self, job: str, threads: int, *, squeezable: bool) -> None:
        """Set the number of threads that a tree was started with."""
        tree = self.trees[job]
        tree.seats, tree.parallel, tree.squeezable = threads, float(threads), squeezable

    def grant(self, job: str, cores: float | None) -> None:
        """Change what a tree earns from now on; None lets it stand still at once, infinity run without turns."""
        tree = self.trees[job]
        self._changed = self._changed or cores is None or math.inf in (cores, tree.cores)
        tree.free = cores == math.inf
        tree.cores = cores
        if cores is None:
            tree.credit = min(tree.credit, 0.0)

    def settle(self, job: str, used: float, now: float) -> None:
        """Credit what a tree has earned since the last time, debit what it has used, and measure it if it runs."""
        tree = self.trees[job]
        passed, spent = max(now - tree.settled_at, 0.0), max(used - tree.used, 0.0)
        earned = 0.0 if tree.cores is None or tree.free else tree.cores * passed
        deepest, most = -DEEPEST_DEBT * tree.seats, MOST_CREDIT * tree.seats
        tree.credit = min(max(tree.credit + earned - spent, deepest), most)
        tree.settled_at, tree.used = now, used
        # A core that was occupied is used up, whatever else kept the tree from using all of it; what a tree may use
        # without a seat is not: else one that runs alone and is granted what it keeps busy would be stopped for it.
        sits = tree.runs and self._sits(tree)
        occupied = passed * min(tree.seats, self.seats) if sits else 0.0
        tolerated = occupied + TOLERATED * passed if sits else 0.0
        self._left -= occupied if spent <= tolerated else spent
        if tree.runs:
            tree.run_seconds += passed
            tree.seat_seconds += passed * min(tree.seats, self.seats)
            self._measure(tree, now)

    def choose(self, now: float) -> list[str]:
        """Return the trees that run from now on, those that are to begin included; all others rest.

        Trees that run are settled before.
        """
        if self._nothing_to_decide(now):
            return self._chosen
        for job, tree in self.trees.items():
            if not tree.runs:
                self.settle(job, tree.used, now)
        self._earn(now)
        self._forgive()
        total = self.seats
        running = {
            job
            for job, tree in self.trees.items()
            if tree.free
            or (tree.cores is not None and (self._amid_turn(tree, now) or self._stays_idle(tree)))
        }
        free = total - sum(self.trees[job].seats for job in running if self._sits(self.trees[job]))
        # What idle trees lend is not for those that have not earned a turn, because a start outlasts a short loan.
        lent = sum(self.trees[job].seats for job in running if self._returns_soon(self.trees[job], now))
        blocked = begins = False
        for job in sorted(self.trees.keys() - running, key=self._precedence):
            tree = self.trees[job]
            room = free if self._ready(tree) else free - lent
            if not self._may_run(tree) or room <= 0 or (begins and not tree.begun):
                continue
            seats = min(tree.seats, total)
            # Whoever has the most credit and does not fit yet is next: until then no other turn begins.
            if seats > room and not (tree.squeezable and 2 * room >= seats):
                blocked = blocked or tree.begun
                continue
            if blocked and not tree.runs:
                continue
            running.add(job)
            free -= seats
            # One at a time begins, so that the caller can look again whether there is room for another.
            begins = begins or not tree.begun
        self._overfull = free < 0
        self._switch(running, now)
        self._changed = False
        self._chosen = sorted(running, key=lambda job: self.trees[job].order)
        return self._chosen

    @property
    def taken(self) -> int:
        """The cores that trees occupy now."""
        return min(sum(tree.seats for tree in self.trees.values() if tree.runs and not tree.idle), self.seats)

    def due(self) -> float:
        """Return the seconds until there may be something to decide."""
        if any(tree.runs for tree in self.trees.values()):
            return CALM_TICK if self._calm else TICK
        # Nobody runs: somebody has to earn a credit first.
        waits = [
            -tree.credit / tree.cores
            for tree in self.trees.values()
            if tree.cores is not None and tree.cores > 0.0
        ]
        return min(max(min(waits, default=math.inf), TICK / 2), TURN) if waits else math.inf

    @property
    def seats(self) -> int:
        """The cores that are shared out in turns."""
        return max(math.ceil((self.cores if self.room is None else self.room) - DUST), 1)

    @property
    def _calm(self) -> bool:
        """Whether all trees run that may, none is held to a limit, and together they use no more than the room."""
        earning = [tree for tree in self.trees.values() if tree.cores is not None]
        if self.room is None or any(not tree.runs or tree.limit < math.inf for tree in earning):
            return False
        return sum(max(tree.parallel, tree.seats) for tree in earning) <= self.room + TOLERATED

    def _nothing_to_decide(self, now: float) -> bool:
        """Whether all cores are taken by trees amid their turns, and nobody's share has changed."""
        running = [self.trees[job] for job in self._chosen] if not self._changed else []
        full = sum(tree.seats for tree in running) >= self.seats
        return full and all(self._amid_turn(tree, now) for tree in running)

    def _earn(self, now: float) -> None:
        if self.room is not None:
            most = TURN * self.seats
            self._left = min(max(self._left + self.room * (now - self._left_at), -DEEPEST_DEBT), most)
        self._left_at = now

    def _forgive(self) -> None:
        """Move all credits so that the best of those who want to run is at zero: nobody can make up for more.

        Credit towards a first turn stays.
        """
        earning = [tree for tree in self.trees.values() if tree.begun and (tree.cores or 0.0) > 0.0]
        wanting = [tree for tree in earning if not tree.free and not tree.idle and tree.limit == math.inf]
        if self.room is None or not wanting:
            return
        best = max(tree.credit / _rate(tree) for tree in wanting)
        least = min(tree.credit / _rate(tree) for tree in wanting)
        # Debts are forgiven as far as the room allows: else all of them together ran ahead of it.
        shift = -best if best < 0.0 and self._has_room else -least if least > 0.0 else 0.0
        for tree in earning if shift else ():
            tree.credit += shift * _rate(tree)

    def _measure(self, tree: TurnTaker, now: float) -> None:
        """At the end of each window, note whether the tree was idle in it, and on how many cores it ran."""
        began, used = tree.window
        if now - began < WINDOW:
            return
        rate = (tree.used - used) / (now - began)
        tree.window = (now, tree.used)
        if rate < IDLE:
            tree.idle_since = tree.idle_since if tree.idle else now
            tree.idle = True
            return
        if tree.idle:
            tree.idle = False
            # With credit its turn begins again: it is not interrupted as soon as it has something to do.
            if tree.credit > 0.0:
                tree.runs_since = now
        elif rate > tree.parallel or not self._overfull:
            tree.parallel += PARALLEL_RATE * (rate - tree.parallel)
            tree.seats = max(math.ceil(tree.parallel - TOLERATED), 1)

    def _amid_turn(self, tree: TurnTaker, now: float) -> bool:
        return tree.runs_since is not None and not tree.idle and now < tree.runs_since + TURN

    def _stays_idle(self, tree: TurnTaker) -> bool:
        return tree.runs and tree.idle

    @property
    def _has_room(self) -> bool:
        """Whether all together have not used up the room, so that trees without credit may run."""
        return self.room is not None and self._left > -TICK

    @staticmethod
    def _returns_soon(tree: TurnTaker, now: float) -> bool:
        return tree.idle and now < tree.idle_since + LOAN

    @staticmethod
    def _sits(tree: TurnTaker) -> bool:
        return not tree.free and not tree.idle

    def _may_run(self, tree: TurnTaker) -> bool:
        if tree.cores is None or (tree.cores <= 0.0 and tree.credit <= 0.0):
            return False
        if tree.barred and not tree.begun:
            return False
        earned = tree.credit > 0.0 if tree.runs else tree.credit >= 0.0
        if self.room is None:
            return earned
        return self._has_room and (earned or tree.limit == math.inf)

    def _precedence(self, job: str) -> tuple[bool, float, int]:
        """Return the sorting key: first those that have begun or earned a first turn, by credit for each seat."""
        tree = self.trees[job]
        return not self._ready(tree), -tree.credit / tree.seats, tree.order

    @staticmethod
    def _ready(tree: TurnTaker) -> bool:
        return tree.begun or tree.credit >= TURN or (tree.cores or 0.0) >= FIRST_SHARE

    def _switch(self, running: Iterable[str], now: float) -> None:
        for job, tree in self.trees.items():
            if job not in running:
                tree.runs_since, tree.idle = None, False
            elif not tree.runs:
                tree.runs_since, tree.begun = now, True
                tree.window = (now, tree.used)


def _rate(tree: TurnTaker) -> float:
    return max(tree.cores or 0.0, 1e-3)
