"""Finds the losses of a command whose owner does not say where they are: in its output and in files it writes."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from slaq.detection.lines import LONGEST_LINE
from slaq.detection.search import LossSearch
from slaq.engines.node.commands.folder_files import catboost_rounds
from slaq.engines.node.commands.loss_folder import LossFolder
from slaq.engines.node.commands.loss_sources import LossSource, Place
from slaq.engines.node.commands.tail import Tail
from slaq.engines.node.reports import Item, NewSource, NewTotal, Reading

#: CPU seconds that one look at the output may take.
LOOK_SECONDS = 0.05
#: Lines of output without a loss after which a job counts as other work, and its owner is told; and those of a job
#: that has ended, below which it hardly was a training.
SILENT_LINES, SILENT_AT_END = 500, 10
OUTPUT = "the output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where to look for losses."""

    log: Path
    #: The folder that the command runs in, where its files are looked at too.
    folder: Path | None = None
    #: The series that the owner named.
    wanted: str | None = None
    #: The number that the first loss gets.
    first: int = 0
    #: The mark of the command's processes, by which their files are told from those of others.
    mark: str = ""


class DetectedLosses(LossSource):
    """Reads the series that `LossSearch` chooses.

    What it chose is told before its losses, alone, so that a reader that goes on from `place` reads the same.
    """

    def __init__(self, search: Search, place: Place | None = None) -> None:
        self._order = search
        self._search = LossSearch(search.wanted, search.first)
        self._waiting: deque[bytes] = deque()
        self._searched = 0
        #: Whether the choice was told, and what was told to be wrong.
        self._told = False
        self._trouble = ""
        self._finished = self._asked_rounds = False
        start, skip = None, (0, 0.0)
        if place is not None:
            kind, offset, state, skip = place
            start = int(offset)
            if kind == "chosen":
                self._search, self._told = LossSearch.of(state), True
        self._tail = Tail(search.log, longest=LONGEST_LINE, start=start)
        #: Where the output of this start of the command begins, for a reader that has to search again.
        self._began = self._tail.place
        file = "" if self._search.chosen is None else self._search.chosen.key.file
        since = None if place is None or not place[3] else float(place[3][1])
        folder = search.folder
        self._folder = None if folder is None else LossFolder(folder, mark=search.mark, since=since)
        self._began_at = [0, time.time() if since is None else since]
        if self._folder is not None and self._search.chosen is not None:
            if file:
                self._folder.keep_to(file, skip, self._search.chosen.key.name)
            else:
                self._folder = None

    @override
    def poll(self, *, final: bool = False) -> Sequence[Item]:
        if final:
            self._tail.finish()
        if not self._told:
            self._read_output(final=final)
            self._read_files(final=final)
        elif self._folder is None:
            self._read_output(final=final)
        else:
            self._read_files(final=final)
        if final and self.at_end and not self._finished:
            self._finished = True
            self._search.finish()
        return self._items(final=final)

    @property
    @override
    def at_end(self) -> bool:
        files_read = self._folder is None or self._folder.at_end
        output_read = self._tail.at_end and not self._waiting
        if self._told and self._folder is not None:
            return files_read and self._nothing_kept
        return output_read and files_read and self._nothing_kept

    @property
    @override
    def place(self) -> Place | None:
        if not self._told:
            return ["search", self._began, None, self._began_at]
        if self._folder is not None:
            return ["chosen", self._began, self._search.state(), self._folder.told]
        return None if self._waiting else ["chosen", self._tail.place, self._search.state(), (0, 0.0)]

    @property
    @override
    def progress(self) -> int:
        return self._tail.taken + self._searched + (0 if self._folder is None else self._folder.taken)

    @override
    def close(self) -> None:
        self._tail.close()
        if self._folder is not None:
            self._folder.close()

    @property
    def _nothing_kept(self) -> bool:
        return self._search.chosen is None or (self._told and not self._search.chosen.kept)

    def _read_output(self, *, final: bool) -> None:
        if not self._waiting:
            self._waiting.extend(self._tail.read())
            if final and self._tail.at_end and (rest := self._tail.rest()):
                self._waiting.append(rest)
        enough, now = time.thread_time() + LOOK_SECONDS, time.time()
        while self._waiting and time.thread_time() < enough and (self._told or self._search.chosen is None):
            self._search.read_line(self._waiting.popleft(), now)
            self._searched += 1

    def _read_files(self, *, final: bool) -> None:
        if self._folder is None or (not self._told and self._search.chosen is not None):
            return
        for file, points in self._folder.read(final=final):
            self._search.read_points(file, points)

    def _items(self, *, final: bool) -> Sequence[Item]:
        chosen = self._search.chosen
        if chosen is None:
            return self._complaints(final=final)
        if not self._told:
            return [self._tell(chosen.key.file, chosen.key.name)]
        items: list[Item] = [self._reading(loss, at) for loss, at in self._search.losses()]
        if (total := self._total()) is not None and total > 1:
            items.append(NewTotal(iterations=total - 1, at=time.time()))
        return items

    def _reading(self, loss: float, at: float | None) -> Reading:
        """Return a loss, with the number that it had in an earlier start of the job if it is a repeated one."""
        repeated = self._search.repeated
        if not repeated:
            return Reading(loss=loss, at=at)
        self._search.repeated -= 1
        return Reading(loss=loss, at=at, iteration=self._order.first - repeated)

    def _total(self) -> int | None:
        """Return how many losses there will be in all, in all starts of the job, where that is known anew."""
        chosen, folder = self._search.chosen, self._order.folder
        # CatBoost prints its rounds without their number, and tells that in a file.
        if (
            chosen is not None
            and chosen.key.name == "learn"
            and folder is not None
            and not self._asked_rounds
        ):
            self._asked_rounds = True
            rounds = catboost_rounds(folder / "catboost_info", self._began_at[1])
            return None if rounds is None else self._order.first + rounds
        return self._search.total()

    def _tell(self, file: str, name: str) -> Item:
        """Tell the choice, and read nothing but it from now on."""
        self._told = True
        if self._folder is not None:
            if file:
                assert self._search.chosen is not None
                self._folder.drop_all_but(file, name, self._search.chosen.count)
                self._waiting.clear()
            else:
                self._folder.close()
                self._folder = None
        return NewSource(series=name, place=file or OUTPUT, others=self._search.others())

    def _complaints(self, *, final: bool) -> Sequence[Item]:
        """Tell what is wrong, each thing once."""
        lines = self._search.lines
        if self._order.wanted is not None and (self._search.others() or final):
            others = ", ".join(self._search.others()) or "nothing"
            trouble = (
                f"no series is called {self._order.wanted!r} so far; there is {others}: name one with --loss"
            )
            trouble = trouble if lines >= SILENT_LINES or final else ""
        elif lines >= (SILENT_AT_END if final else SILENT_LINES):
            trouble = nothing_found(lines)
            if self._folder is not None and self._folder.ambiguous:
                trouble += (
                    "; files in its folder may be of other jobs that run there: give each job its own --cwd"
                )
        else:
            trouble = ""
        if not trouble or self._trouble:
            return []
        self._trouble = trouble
        return [NewSource(others=self._search.others(), trouble=trouble)]


def nothing_found(lines: int) -> str:
    """Return what to tell an owner in whose job's output no loss was found."""
    return (
        f"no loss was found in {lines:,} lines of output, nor in files in its folder; print 'loss: 0.5', call "
        "slaq.report(loss), or name what to read with --loss-pattern or --loss-file (`slaq detect` tries it out)"
    )
