"""Looks for losses in the lines that a job prints and the points in its files, and keeps to one series of them."""

from collections.abc import Iterable, Sequence
from typing import Any

from slaq.detection.choice import Candidate, SeriesChooser, SeriesKey, rank_in_file
from slaq.detection.output import Found, OutputParser
from slaq.detection.point import Point
from slaq.detection.steps import IterationCounter


class LossSearch:
    """Reads until a series is chosen, and from then on this series alone. Takes no time of its own."""

    def __init__(self, wanted: str | None = None) -> None:
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
        for one in self._chooser.candidates() if self.chosen is None else (self.chosen,):
            one.take(one.counter.rest(), None)
        if self.chosen is None:
            self.chosen = self._chooser.choice(final=True)

    def losses(self) -> list[tuple[float, float | None]]:
        """Return the losses of the chosen series since the last call, and when each was seen, if that is known."""
        if self.chosen is None:
            return []
        losses = list(self.chosen.kept)
        self.chosen.kept.clear()
        return losses

    def total(self) -> int | None:
        """Return how many losses the chosen series will have in all, where that is known anew."""
        return None if self.chosen is None else self.chosen.counter.total()

    def others(self) -> tuple[str, ...]:
        """Return the names of what else there was."""
        return self._chooser.others(None if self.chosen is None else self.chosen.key)

    def state(self) -> list[Any]:
        """Return all that matters once a series is chosen, as JSON can hold it."""
        assert self.chosen is not None
        key = self.chosen.key
        kept = [[repr(loss), at] for loss, at in self.chosen.kept]
        counted = [self.chosen.count, self.chosen.counter.state(), kept]
        return [[key.file, key.name, key.place], self._parser.state(), *counted]

    @classmethod
    def of(cls, state: Sequence[Any]) -> "LossSearch":
        """Return a search that goes on with the series that another one chose."""
        key, parser, count, counter, kept = state
        search = cls()
        search._parser = OutputParser.of(parser)
        search.chosen = Candidate(SeriesKey(*key), None, 0, IterationCounter.of(counter), count)
        search.chosen.kept.extend((float(loss), at) for loss, at in kept)
        return search

    def _series(self, key: SeriesKey, found: Found) -> Candidate | None:
        if self.chosen is not None:
            return self.chosen if self.chosen.key == key else None
        return self._chooser.see(key, found.rank)
