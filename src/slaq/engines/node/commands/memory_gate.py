"""Decides whether a command may begin now, by the memory that it and those that run are expected to take."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

#: How many commands are remembered for what a command usually takes.
MOST_PEAKS = 20
#: Seconds after its first turn in which a command is expected to grow to what commands usually take.
GROWS_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTaker:
    """A command that has begun: its memory in bytes, what its owner declared (0 if nothing), and its age."""

    measured: int
    declared: int
    seconds: float


@dataclass(slots=True)
class MemoryGate:
    """The memory of a node. Commands that take little, or of which nothing is known, are not held back."""

    #: Bytes that commands may take in all.
    there_are: int
    _peaks: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_PEAKS))

    def learn(self, peak: int) -> None:
        """Remember the most bytes that a command took."""
        if peak > 0:
            self._peaks.append(peak)

    def reason(self, declared: int, begun: Iterable[MemoryTaker], available: int | None) -> str:
        """Return why a command that declared so much has to wait; empty if it may begin.

        `available` is what the machine has left, whoever took the rest; None if unknown. Without another command
        that could end and make room, a command begins in any case.
        """
        takers = list(begun)
        usual = self._usual(takers)
        wanted = declared or usual
        taken = sum(_expected(taker, usual) for taker in takers)
        free = self.there_are - taken
        if available is not None:
            free = min(free, available - (taken - sum(taker.measured for taker in takers)))
        if not takers or wanted <= free:
            return ""
        source = "it declared" if declared else "commands here usually take"
        return f"waits for memory: {source} {_gigabytes(wanted)}, and {_gigabytes(max(free, 0))} are free"

    def _usual(self, takers: Iterable[MemoryTaker]) -> int:
        grown = [taker.measured for taker in takers if taker.seconds >= GROWS_SECONDS]
        known = [*self._peaks, *grown]
        return int(median(known)) if known else 0


def _expected(taker: MemoryTaker, usual: int) -> int:
    grows_to = taker.declared or (usual if taker.seconds < GROWS_SECONDS else 0)
    return max(taker.measured, grows_to)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
