"""A job's driver as the dispatcher sees it: its process, its turns, and what they cost.

A turn begins when the driver is resumed and lasts to its next map or report. In a long turn it holds a core.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from slaq.engines.node.programs.fork_client import ForkedChild
from slaq.engines.node.programs.messages import MessageKind
from slaq.engines.node.wire import Head
from slaq.engines.packing import Buffer
from slaq.engines.processes import cpu_seconds

#: A driver whose turns take less CPU than this needs no core of its own for them.
SHORT = 0.002
#: A driver whose turns last less than this comes back so soon that a core is kept for its job.
MOMENT = 0.005
#: A driver that uses less than this share of the core it holds is waiting for something else.
BUSY = 0.2
#: Seconds between two looks at a driver from which they can tell what it uses.
APART = 0.025
#: How fast the usual cost of a turn follows the last one.
RATE = 0.2


class Turn(Enum):
    """What a driver does."""

    #: Its process is not there, or not any more.
    ABSENT = auto()
    #: It waits to be resumed.
    WAITS = auto()
    #: It runs its program.
    RUNS = auto()
    #: It waits for the results of a map.
    MAPS = auto()


@dataclass(slots=True)
class DriverHandle:
    """One job's driver, through all its restarts."""

    child: ForkedChild | None = None
    turn: Turn = Turn.ABSENT
    #: Counts its processes, and those of them that were started because one before had died by itself.
    number: int = 0
    restarts: int = 0
    #: Whether it holds a core in this turn.
    holds_core: bool = False
    #: When it was last resumed, and when it was first.
    resumed_at: float = 0.0
    began_at: float | None = None
    #: Seconds and CPU seconds that its turns usually take.
    usual_seconds: float = 0.0
    usual_cpu: float = 0.0
    #: CPU seconds of its process that are accounted for, and those at the start of its turn.
    _cpu: float = 0.0
    _cpu_at_start: float = 0.0
    #: CPU seconds at the last look during this turn, and when that was.
    _looked: tuple[float, float] = (0.0, 0.0)

    def attach(self, child: ForkedChild) -> None:
        """Take a new process."""
        self.child = child
        self.number += 1
        self._cpu = self._cpu_at_start = 0.0

    def detach(self) -> None:
        """Drop a process that has exited."""
        self.child = None
        self.turn, self.holds_core = Turn.ABSENT, False

    def send(
        self, head: Head, payload: Sequence[Buffer] = (), files: tuple[int, ...] = (), *, more: bool = False
    ) -> None:
        """Send a message, if there is a process to read it."""
        if self.child is not None:
            self.child.peer.send(head, payload, files, more=more)

    def resume(self, *, holds_core: bool) -> None:
        """Let the driver run, on a core of its own or on whatever is free."""
        self.run_on()
        self.holds_core = holds_core
        self.resumed_at = time.monotonic()
        if self.began_at is None:
            self.began_at = self.resumed_at
        self.send(Head(MessageKind.GO))

    def run_on(self) -> None:
        """Record that the driver runs."""
        self.turn = Turn.RUNS
        self._cpu_at_start = self._cpu
        self._looked = (0.0, 0.0)

    def rest(self, turn: Turn) -> None:
        """Record that the driver's turn is over, and what the driver waits for."""
        self.turn, self.holds_core = turn, False
        self.usual_cpu += RATE * (self._cpu - self._cpu_at_start - self.usual_cpu)
        seconds = min(time.monotonic() - self.resumed_at, 2 * MOMENT)
        self.usual_seconds += RATE * (seconds - self.usual_seconds)

    def account(self, so_far: float) -> float:
        """Return the CPU seconds not accounted for yet, given all that its process has used so far."""
        used = max(so_far - self._cpu, 0.0)
        self._cpu += used
        return used

    def look(self, now: float) -> float:
        """Return the CPU used so far by a long turn; a driver that is idle gives up its core."""
        cpu = cpu_seconds(self.child.pid) if self.child is not None and self.child.pid else None
        if cpu is None:
            # Where CPU time cannot be read, a driver gives up its core after a second.
            self.holds_core = self.holds_core and now - self.resumed_at < 1.0
            return 0.0
        before, at = self._looked
        self._looked = (cpu, now)
        if at and now - at > APART:
            self.holds_core = self.holds_core and cpu - before > BUSY * (now - at)
        return self.account(cpu)
