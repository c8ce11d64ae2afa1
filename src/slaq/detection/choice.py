"""Chooses the one series of losses that a job is judged by, from what it prints and writes."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from slaq.detection.names import Rank, is_series, rank, same_name
from slaq.detection.steps import IterationCounter

#: Losses of a series before it may be chosen, and those after which one that does not fall is passed over, or, for
#: the loss of training itself, taken all the same.
ENOUGH, PATIENCE = 3, 10
#: Series that are looked at, names of others that are told, and losses of a series that are kept until the choice.
MOST_SERIES, MOST_OTHERS, MOST_KEPT = 64, 12, 2000


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """Names a series: the file that holds it (nothing for the output), its name, and the words before it."""

    file: str
    name: str
    place: str = ""


@dataclass(slots=True)
class Candidate:
    """A series that may be chosen, and what its losses so far say of it."""

    key: SeriesKey
    rank: Rank | None
    order: int
    counter: IterationCounter = field(default_factory=IterationCounter)
    count: int = 0
    first: float = math.nan
    last: float = math.nan
    lowest: float = math.inf
    strange: bool = False
    #: Whether all losses so far are the same number.
    still: bool = True
    #: Losses that nobody has taken yet, and when each was seen.
    kept: deque[tuple[float, float | None]] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    def take(self, losses: Iterable[float], at: float | None) -> None:
        """Count losses."""
        for loss in losses:
            if self.count == 0:
                self.first = loss
            else:
                self.lowest = min(self.lowest, loss)
                self.still = self.still and loss == self.first
            self.last = loss
            self.count += 1
            self.strange = self.strange or not math.isfinite(loss)
            self.kept.append((loss, at))

    @property
    def falls(self) -> bool:
        """Whether a later loss lies below the first; one that is no number any more was a loss too."""
        return self.lowest < self.first or self.strange

    @property
    def risen(self) -> bool:
        """Whether it had its chance to fall, and did not; the loss of training may rise, but not stand still."""
        if self.count < PATIENCE or self.falls:
            return False
        return self.still or self.rank not in (Rank.LOSS, Rank.TRAINING_LOSS)


class SeriesChooser:
    """Watches all series and chooses one of them, for good.

    The rule, in this order: what the owner named; never what rises; exactly `loss` before the loss of training,
    before a known loss by another name, before one loss of several, before a loss on data held out; the series with
    more losses; the one seen first. A series is ripe once it has three losses and a later one lies below its first;
    the loss of training also after ten. The choice falls as soon as the best series with three losses is ripe, and
    at the end of the job on the best there is. It depends on nothing but the order of the losses.
    """

    def __init__(self, wanted: str | None = None) -> None:
        self._wanted = wanted
        self._candidates: dict[SeriesKey, Candidate] = {}
        #: What else there is, and how often it was seen.
        self._others: dict[str, int] = {}

    def see(self, key: SeriesKey, ranked: Rank | None) -> Candidate | None:
        """Return the candidate of a series; None for one that cannot be chosen, which is remembered by name."""
        found = self._candidates.get(key)
        if found is not None:
            return found
        eligible = ranked is not None if self._wanted is None else same_name(key.name, self._wanted)
        if not eligible or len(self._candidates) >= MOST_SERIES:
            if key.name in self._others or (len(self._others) < MOST_SERIES and is_series(key.name)):
                self._others[key.name] = self._others.get(key.name, 0) + 1
            return None
        found = self._candidates[key] = Candidate(key, ranked, len(self._candidates))
        return found

    def candidates(self) -> tuple[Candidate, ...]:
        """Return all series that may be chosen."""
        return tuple(self._candidates.values())

    def choice(self, *, final: bool = False) -> Candidate | None:
        """Return the series to read from now on; None while that is open."""
        least = 1 if final or self._wanted is not None else ENOUGH
        able = [
            one
            for one in self._candidates.values()
            if one.count >= least and (self._wanted is not None or not one.risen)
        ]
        if not able:
            return None
        best = min(able, key=lambda one: (_order(one.rank), -one.count, one.order))
        settled = final or self._wanted is not None or best.falls or best.count >= PATIENCE
        return best if settled else None

    def others(self, chosen: SeriesKey | None) -> tuple[str, ...]:
        """Return the names of what else there was, losses first."""
        names = dict.fromkeys(key.name for key in self._candidates)
        # What was printed once is no curve.
        names.update(dict.fromkeys(name for name, count in self._others.items() if count > 1))
        return tuple(name for name in names if chosen is None or name != chosen.name)[:MOST_OTHERS]


def _order(ranked: Rank | None) -> int:
    return len(Rank) if ranked is None else ranked


def rank_in_file(name: str, file: str) -> Rank | None:
    """Return how good a choice a series in a file is; the folders of the file may say of which data it tells."""
    folders = file.lower().replace("\\", "/").split("/")
    if folders[-1] in ("learn_error.tsv", "test_error.tsv") and rank(f"train {name}") is not None:
        return Rank.METRIC if folders[-1].startswith("learn") else Rank.HELD_OUT_METRIC
    held_out = any(one in ("val", "valid", "validation", "eval", "test") for one in folders[:-1])
    return rank(name, held_out=held_out, trained="train" in folders[:-1])
