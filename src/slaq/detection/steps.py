"""Tells the iterations of one series from redraws of a progress bar, and how many there will be."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slaq.detection.output import LARGEST_STEP, Found

#: Losses after which a total is told, and how far off it may be before it is told anew; and the same where a bar
#: shows some steps only, so that the number of losses for a step is not exact.
TOTAL_AFTER, TOTAL_ERROR = 3, 0.02
BAR_AFTER, BAR_ERROR = 10, 0.15
#: One loss in so many steps or so is one in each step.
_ABOUT_ONE = (0.8, 1.25)


@dataclass(slots=True)
class IterationCounter:
    """Takes what was found of one series, in order, and returns its losses: one for each iteration.

    tqdm draws its bar anew with a stale loss when its count moves, and with a stale count when the loss changes.
    So a draw of the same loss with another count is no iteration where the bar has shown several losses with one
    count. Where that is not known yet, the draw waits for the next one. Other bars tell a step once; lines tell
    what they say.
    """

    count: int = 0
    last: float | None = None
    #: The pass and the step, or what tqdm showed as its count.
    passed: int | None = None
    at: str = ""
    #: Whether the bar has shown several losses with one count, and whether the last draw waits for the next one.
    refreshes: bool = False
    waits: bool = False
    #: Steps made and to be made, as far as the lines say; and the total that was last told.
    made: int = 0
    most: int = 0
    told: int = 0
    #: Whether passes are counted from 0, and whether a bar is read.
    from_zero: bool = False
    bar: bool = False
    #: The step that was told with the first loss, 0 if none was; and the losses before it, of earlier starts.
    first: int = 0
    before: int = 0
    #: The first step that a line told, and the losses for each step since then, counted where the step moves.
    began: int = -1
    each: float = 0.0
    #: Whether the steps began again: then what they count is a part of the training.
    again: bool = False

    def take(self, found: Found) -> list[float]:
        """Return the losses that are certain now."""
        losses = self._tqdm(found) if found.bar == "tqdm" else self._line(found)
        self.count += len(losses)
        self._reckon(found)
        if losses and self.count == len(losses):
            self.first = self.made
        return losses

    def rest(self) -> list[float]:
        """Return the loss that waits for a draw that does not come."""
        losses = [self.last] if self.waits and not self._at_end() and self.last is not None else []
        self.waits = False
        self.count += len(losses)
        return losses

    def reach(self, made: int, most: int, count: int) -> None:
        """Take note of a step and the number of steps that a file tells with its losses, so many so far."""
        if 0 <= made <= most < LARGEST_STEP:
            self.made, self.most, self.count = made, most, count
            if count == 1:
                self.first = made

    def earlier(self, known: int) -> int | None:
        """Return how many of the known losses came before the first one, as far as steps tell that; else None.

        Where the steps began again, or fewer losses are to come in all than are known, the steps are those of a
        part, such as a pass.
        """
        if self.again:
            return None
        if self.first == 1 and self.count == 1:
            steps_for_a_loss = 1.0
        elif self.count > 1 and 1 <= self.first < self.made:
            steps_for_a_loss = (self.made - self.first) / (self.count - 1)
        else:
            return None
        if round(self.most / steps_for_a_loss) < known:
            return None
        return max(round(self.first / steps_for_a_loss) - 1, 0)

    def total(self) -> int | None:
        """Return how many losses there will be in all, where that is known anew; else None."""
        exact = self.refreshes or not self.bar
        if (
            self.count < (TOTAL_AFTER if exact else BAR_AFTER)
            or not 1 <= self.made <= self.most
            or self.again
        ):
            return None
        total = self._expected()
        if total is None:
            return None
        total = max(total, self.count + self.before)
        if self.told and abs(total - self.told) <= (TOTAL_ERROR if exact else BAR_ERROR) * self.told:
            return None
        self.told = total
        return total

    def _expected(self) -> int | None:
        if self.bar or self.began < 0:
            each = self.each or (self.count + self.before) / self.made
            one = self.refreshes or _ABOUT_ONE[0] <= each <= _ABOUT_ONE[1]
            return self.most if one else round(self.most * each)
        if not self.each:
            return None
        # The last step has a loss, or where a step has several, as many as the others; and counts from 0 end early.
        several, early = max(self.each - 1, 0.0), self.each if self.began == 0 else 0.0
        return self.before + round(1 + self.each * (self.most - self.began) + several - early)

    def state(self) -> list[object]:
        """Return where it stands, as JSON can hold it."""
        last = None if self.last is None else repr(self.last)
        drawn = [self.passed, self.at, self.refreshes, self.waits]
        reckoned = [self.made, self.most, self.told, self.from_zero, self.bar]
        places = [self.first, self.before, self.began, self.each, self.again]
        return [self.count, last, *drawn, *reckoned, *places]

    @classmethod
    def of(cls, state: Sequence[object]) -> "IterationCounter":
        """Return a counter that goes on from a state."""
        count, last, *others = state
        return cls(count, None if last is None else float(str(last)), *others)  # type: ignore[arg-type]

    def _tqdm(self, found: Found) -> list[float]:
        value, same = found.value, _same(found.value, self.last)
        moved = found.count != self.at or found.passed != self.passed
        losses: list[float] = []
        if self.last is None:
            losses = [value]
        elif moved:
            if self.waits and not self.refreshes and not self._at_end():
                losses.append(self.last)
            # A bar that is full is drawn once more.
            full = found.step is not None and found.step == found.steps
            self.waits = same and not self.refreshes and not full
            if not same:
                losses.append(value)
        elif same:
            if self.refreshes and not (found.step is not None and found.step == found.steps):
                losses = [value]
        else:
            self.waits, self.refreshes = False, True
            losses = [value]
        self._remember(found, found.count)
        return losses

    def _line(self, found: Found) -> list[float]:
        at = "" if found.step is None else str(found.step)
        again = at == self.at and found.passed == self.passed and self.last is not None
        if found.bar:
            redrawn = again
        else:
            redrawn = again and bool(at or found.passed is not None) and _same(found.value, self.last)
        self._remember(found, at)
        return [] if redrawn else [found.value]

    def _remember(self, found: Found, at: str) -> None:
        self.last, self.at, self.passed = found.value, at, found.passed

    def _at_end(self) -> bool:
        return 0 < self.most <= self.made

    def _reckon(self, found: Found) -> None:
        """Take note of how far the training is, and how far it goes."""
        self.bar = self.bar or bool(found.bar) or found.near is not None
        self.from_zero = self.from_zero or found.passed == 0
        made, most = _reckoned(found, first=0 if self.from_zero else 1)
        if not 0 < most < LARGEST_STEP:
            return
        if made < self.made:
            self.again = True
            return
        if found.near is not None:
            # The bar was drawn after the loss before this one.
            self.each = (self.before + self.count - 1) / made if made > self.made else self.each
        elif self.began < 0:
            self.began = made
        elif made > self.made and not self.bar:
            self.each = (self.count - 1) / (made - self.began)
        self.made, self.most = made, max(most, self.most if self.made else 0)


def _reckoned(found: Found, *, first: int) -> tuple[int, int]:
    """Return the steps made and to be made, given the number of the first pass; 0 for what is not known."""
    if found.passes is not None and found.passed is not None:
        if found.steps is not None and found.step is not None:
            return (found.passed - first) * found.steps + found.step, found.passes * found.steps
        return found.passed + 1 - first, found.passes
    if found.near is not None:
        return found.near
    if found.passed is not None or found.steps is None or found.step is None:
        return 0, 0
    return found.step, found.steps


def _same(value: float, other: float | None) -> bool:
    return other is not None and (value == other or (math.isnan(value) and math.isnan(other)))
