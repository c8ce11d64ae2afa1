"""Tables on stdout, and a progress bar on stderr if it is a terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from slaq.cli.display.say import say
from slaq.core.visible import visible

#: Width of tables if stdout is not a terminal.
UNLIMITED = 10_000


class PlainConsole(Console):
    """A console that takes no text for markup, and writes control characters in text as escapes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    @override
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=visible(segment.text, lines=True))


def cell(text: str, *, lines: bool = False, style: str = "") -> Text:
    """Return a text for a table, as wide as it will be shown."""
    return Text(visible(text, lines=lines), style=style)


def show(table: Table) -> None:
    """Print the table on stdout; if that is not a terminal, as plain text of any width without trailing blanks."""
    console = PlainConsole()
    if console.is_terminal:
        console.print(table)
        return
    plain = PlainConsole(width=UNLIMITED, no_color=True)
    with plain.capture() as captured:
        plain.print(table)
    say("\n".join(line.rstrip() for line in captured.get().splitlines()))


def say_columns(headings: Mapping[str, bool], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of many rows, which a console takes a millisecond each to lay out.

    `headings` says of each column whether it is numeric.
    """
    table = [list(headings), *([visible(text) for text in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            f"{' ' * (width - cell_len(text))}{text}"
            if numeric
            else f"{text}{' ' * (width - cell_len(text))}"
            for text, width, numeric in zip(row, widths, headings.values(), strict=True)
        )
        say("  ".join(cells).rstrip())


@contextmanager
def progress(stages: int) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Show a progress bar over several stages on stderr, if it is a terminal.

    Yields a function that begins a stage of the given name and returns the function to report its progress to.
    """
    console = PlainConsole(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=float(stages))
        begun = 0

        def begin(name: str) -> Callable[[float], None]:
            nonlocal begun
            before, begun = begun, begun + 1
            bar.update(task, description=name, completed=before)
            return lambda fraction: bar.update(task, completed=before + fraction)

        yield begin
