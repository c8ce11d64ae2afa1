"""The progress of a batch on stderr: a live table on a terminal, else one line per event."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slaq.cli.batch import Moment, Row
from slaq.cli.display.job_columns import done, in_short
from slaq.cli.display.say import say
from slaq.cli.display.terminal import PlainConsole, cell
from slaq.core.admission import NOT_REVIEWED
from slaq.core.job import JobState
from slaq.core.progress import GOOD_ENOUGH, reached

BLOCKS = "▁▂▃▄▅▆▇█"
#: Width of a loss curve in characters.
CURVE = 14
#: The most losses that are averaged into one character of the curve.
FEW = 16
#: Numbers whose range is a smaller part of them than this are drawn as equal.
ROUNDING = 1e-12
#: The largest widths of the columns of names and of algorithms, and the width of the numbers beside them.
NAME, KIND, NUMBERS = 28, 24, 47
#: The algorithm's column is left out on terminals narrower than this.
WIDE = 92
#: Lines of the terminal that do not show jobs.
AROUND = 4
STOPPING = "stopping; press Ctrl-C again to stop at once"

_STYLES = {
    JobState.QUEUED: "dim",
    JobState.RUNNING: "",
    JobState.COMPLETED: "green",
    JobState.DIVERGED: "magenta",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
    JobState.BEATEN: "yellow",
}
#: Which jobs are shown first if not all of them fit.
_ORDER = (
    JobState.RUNNING,
    JobState.FAILED,
    JobState.DIVERGED,
    JobState.QUEUED,
    JobState.CANCELLED,
    JobState.BEATEN,
    JobState.COMPLETED,
)


class View(Protocol):
    """Shows the progress of a batch."""

    def show(self, moment: Moment) -> None:
        """Show the batch at this moment."""
        ...


class Nothing(View):
    """Shows nothing."""

    @override
    def show(self, moment: Moment) -> None:
        pass


class EventLines(View):
    """Prints one line when a job has to wait, starts, reaches 90% of its reduction, diverges or ends."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._stopping = False

    @override
    def show(self, moment: Moment) -> None:
        if moment.stopping and not self._stopping:
            self._stopping = True
            say(f"{moment.seconds:8.1f} s  {STOPPING}", err=True)
        for row in moment.rows:
            if row.state is JobState.QUEUED or (row.reason and not row.state.ended):
                if row.reason not in ("", NOT_REVIEWED):
                    self._tell(moment, row, row.reason, row.reason)
                continue
            if row.losses or not row.state.ended:
                self._tell(moment, row, "started", "started")
            if reached(GOOD_ENOUGH, row.reduction) and len(row.losses) > 1:
                loss = number(row.losses[-1])
                self._tell(moment, row, "reached", f"90% of its forecast reduction, loss {loss}")
            if row.losses and not math.isfinite(row.losses[-1]):
                self._tell(
                    moment,
                    row,
                    "diverged",
                    f"its loss is {number(row.losses[-1])}, so it gets the smallest share",
                )
            if row.state.ended:
                self._tell(moment, row, "ended", _ending(row))

    def _tell(self, moment: Moment, row: Row, event: str, text: str) -> None:
        if (row.name, event) not in self._told:
            self._told.add((row.name, event))
            say(f"{moment.seconds:8.1f} s  {row.name}: {text}", err=True)


class LiveTable(View):
    """A table that is redrawn in place, and removed at the end."""

    def __init__(self, live: Live, heading: str) -> None:
        self._live = live
        self._heading = heading

    @override
    def show(self, moment: Moment) -> None:
        console = self._live.console
        self._live.update(
            draw(moment, self._heading, width=console.width, height=console.height), refresh=True
        )


@contextmanager
def view(heading: str, *, quiet: bool) -> Iterator[View]:
    """Yield the view that suits stderr: none if quiet, a table on a terminal, else lines."""
    console = PlainConsole(stderr=True)
    if quiet:
        yield Nothing()
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True, screen=False) as live:
            yield LiveTable(live, heading)
    else:
        say(heading, err=True)
        yield EventLines()


def draw(moment: Moment, heading: str, *, width: int, height: int) -> RenderableType:
    """Return the table of a moment, at most `width` characters wide and `height` lines high."""
    shown = _fitting(moment.rows, max(1, height - AROUND))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("job", no_wrap=True, overflow="ellipsis", max_width=NAME)
    if width >= WIDE:
        table.add_column("algorithm", no_wrap=True, overflow="ellipsis", max_width=KIND)
    table.add_column("state", no_wrap=True, min_width=9)
    for name, least in (("loss", 7), ("done", 4), ("forecast", 8), ("cores", 5)):
        table.add_column(name, justify="right", no_wrap=True, min_width=least)
    table.add_column("losses", no_wrap=True, min_width=CURVE, max_width=_room(shown, width))
    for row in shown:
        cells = [row.name, row.kind] if width >= WIDE else [row.name]
        table.add_row(*(cell(text) for text in cells), *_cells(row), style=_STYLES[row.state])
    parts: list[RenderableType] = [Text(heading, style="bold", no_wrap=True, overflow="ellipsis"), table]
    hidden = len(moment.rows) - len(shown)
    if hidden:
        parts.append(Text(f"and {hidden} more", style="dim"))
    return Group(*parts, _progress(moment, width))


def sparkline(losses: Sequence[float], width: int = CURVE) -> str:
    """Return a loss curve as a row of blocks, each the mean of some losses; a cross if none of them is finite."""
    count = min(len(losses), width)
    edges = [place * len(losses) // count for place in range(count + 1)] if count else []
    means = [_mean(losses, start, stop) for start, stop in pairwise(edges)]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Use halves, because the difference of two finite losses may overflow.
    extent = high / 2 - low / 2
    # The means of equal numbers differ in their last digits.
    flat = extent <= ROUNDING * max(abs(high), abs(low))
    scale = 0.0 if flat else (len(BLOCKS) - 1) / extent
    return "".join(
        BLOCKS[round((mean / 2 - low / 2) * scale)] if math.isfinite(mean) else "×" for mean in means
    )


def _mean(losses: Sequence[float], start: int, stop: int) -> float:
    """Return the mean of the finite losses in a range, of a sample if it is long; NaN if there are none."""
    sound = [loss for loss in losses[start : stop : (stop - start) // FEW + 1] if math.isfinite(loss)]
    return sum(loss / len(sound) for loss in sound) if sound else math.nan


def number(value: float | None) -> str:
    """Return a loss with four digits; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def duration(seconds: float) -> str:
    """Return seconds as minutes:seconds or hours:minutes:seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def _cells(row: Row) -> list[Text]:
    loss = number(row.losses[-1]) if row.losses else "–"
    share = done(row.reduction, len(row.losses) - 1)
    # A forecast needs two losses.
    forecast = number(row.expected) if math.isfinite(row.expected) and len(row.losses) > 1 else ""
    cores = "" if row.state.ended or row.state is JobState.QUEUED else f"{row.cores:.2f}"
    last = sparkline(row.losses) if row.state.ended else row.reason or sparkline(row.losses)
    cells = (str(row.state), loss, share, forecast, cores, last)
    return [Text(cell, overflow="ellipsis") for cell in cells]


def _room(rows: Sequence[Row], width: int) -> int:
    """Return the width of the last column: what the others leave, so that long reasons do not shorten names."""
    taken = NUMBERS + min(NAME, max((len(row.name) for row in rows), default=0))
    if width >= WIDE:
        taken += 2 + min(KIND, max((len(row.kind) for row in rows), default=0))
    return max(CURVE, width - taken)


def _fitting(rows: Sequence[Row], room: int) -> list[Row]:
    """Return at most `room` rows in the order of the file; running jobs are kept first."""
    if len(rows) <= room:
        return list(rows)
    ranked = sorted(range(len(rows)), key=lambda place: _ORDER.index(rows[place].state))
    return [rows[place] for place in sorted(ranked[: max(1, room - 1)])]


def _progress(moment: Moment, width: int) -> RenderableType:
    """Return the last line: the progress bar, the number of jobs in each state, and the time."""
    count = len(moment.rows)
    made = sum(1.0 if row.state.ended else max(0.0, min(row.reduction, 1.0)) for row in moment.rows)
    states = [str(row.state) for row in moment.rows]
    told = ", ".join(f"{states.count(state)} {state}" for state in JobState if states.count(state))
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=max(10, min(30, width // 4)))
    line.add_column(no_wrap=True, overflow="ellipsis")
    text = STOPPING if moment.stopping else told
    line.add_row(ProgressBar(total=float(count), completed=made), Text(f"{duration(moment.seconds)}  {text}"))
    return line


def _ending(row: Row) -> str:
    last = f", loss {number(row.losses[-1])} after {len(row.losses) - 1} iterations" if row.losses else ""
    why = f" ({in_short(row.reason)})" if row.reason.strip() else ""
    return f"{row.state}{last}{why}"
