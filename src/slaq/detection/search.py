"""Looks for losses in the lines that a job prints and the points in its files, and keeps to one series of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from slaq.detection.choice import Candidate, SeriesChooser, SeriesKey, rank_in_file
from slaq.detection.output import Found, OutputParser
from slaq.detection.point import Point
from slaq.detection.steps import IterationCounter


class LossSearch:
    """Reads until a series is chosen, and from then on this series alone. Takes no time of its own.

    A job that is started again may begin anew, or at an earlier checkpoint: by the steps that it tells, its first
    losses are then known as repeated ones. `known` is the number of losses that its earlier starts have told.
    """

    def __init__(self, wanted: str | None = None, known: int = 0) -> None:
        self._known = known
        #: Whether the place of the first loss among the known ones was looked for, and whether it was found.
        self._compared, self._placed = known == 0, known == 0
        #: Losses to come that earlier starts have told.
        self.repeated = 0
        self._finished = False
        self._parser = OutputParser()
        self._chooser = SeriesChooser(wanted)
        #: The series that is read, once it is chosen.
        self.chosen: Candidate | None = None
        #: Lines read so far.
        self.lines = 0

    def read_line(self, line: bytes, at: float | None = None) -> list[Found]:
        """Take in a line of output; return the numbers that it names."""
        self.lines += 1
        found = self._parser.feed(line, "" if self.chosen is None else self.chosen.key.name)
        for one in found:
            series = self._series(SeriesKey("", one.name, one.place), one)
            if series is not None:
                series.take(series.counter.take(one), at)
        if self.chosen is None and found:
            self.chosen = self._chooser.choice()
        return found

    def read_points(self, file: str, points: Iterable[Point]) -> None:
        """Take in what was added to a file."""
        for point in points:
            key = SeriesKey(file, point.series)
            if self.chosen is None:
                series = self._chooser.see(key, rank_in_file(point.series, file))
            else:
                series = self.chosen if self.chosen.key == key else None
            if series is not None:
                series.take([point.value], point.at)
                if point.total is not None and point.step is not None:
                    series.counter.reach(point.step, point.total, series.count)
        if self.chosen is None:
            self.chosen = self._chooser.choice()

    def finish(self) -> None:
        """Choose the best there is: the job says no more."""
        self._finished = True
        for one in self._chooser.candidates() if self.chosen is None else (self.chosen,):
            one.take(one.counter.rest(), None)
        if self.chosen is None:
            self.chosen = self._chooser.choice(final=True)

    def losses(self) -> list[tuple[float, float | None]]:
        """Return the losses of the chosen series since the last call, and when each was seen, if that is known."""
        if self.chosen is None or not self._compare(self.chosen):
            return []
        losses = list(self.chosen.kept)
        self.chosen.kept.clear()
        return losses

    def total(self) -> int | None:
        """Return how many losses the job will have told in all, in all its starts, where that is known anew."""
        total = None if self.chosen is None or not self._compared else self.chosen.counter.total()
        return total if total is None or self._placed else total + self._known

    def _compare(self, chosen: Candidate) -> bool:
        """Find the place of the first loss among those of earlier starts; return False while more must be seen."""
        if self._compared:
            return True
        if chosen.count < 2 and not self._finished:
            return False
        self._compared = True
        earlier = chosen.counter.earlier(self._known)
        if earlier is not None:
            self._placed = True
            # A script may count from 0 or from 1: one that seems to be a step short goes on where it ended.
            begins_again = earlier == 0 or earlier < self._known - 1
            chosen.counter.before = earlier if begins_again else self._known
            self.repeated = self._known - chosen.counter.before
        return True

    def others(self) -> tuple[str, ...]:
        """Return the names of what else there was."""
        return self._chooser.others(None if self.chosen is None else self.chosen.key)

    def state(self) -> list[Any]:
        """Return all that matters once a series is chosen, as JSON can hold it."""
        assert self.chosen is not None
        key = self.chosen.key
        kept = [[repr(loss), at] for loss, at in self.chosen.kept]
        counted = [self.chosen.count, self.chosen.counter.state(), kept]
        starts = [self._known, self._compared, self._placed, self.repeated]
        return [[key.file, key.name, key.place], self._parser.state(), *counted, starts]

    @classmethod
    def of(cls, state: Sequence[Any]) -> "LossSearch":
        """Return a search that goes on with the series that another one chose."""
        key, parser, count, counter, kept, (known, compared, placed, repeated) = state
        search = cls(known=known)
        search._compared, search._placed, search.repeated = compared, placed, repeated
        search._parser = OutputParser.of(parser)
        search.chosen = Candidate(SeriesKey(*key), None, 0, IterationCounter.of(counter), count)
        search.chosen.kept.extend((float(loss), at) for loss, at in kept)
        return search

    def _series(self, key: SeriesKey, found: Found) -> Candidate | None:
        if self.chosen is not None:
            return self.chosen if self.chosen.key == key else None
        return self._chooser.see(key, found.rank)
