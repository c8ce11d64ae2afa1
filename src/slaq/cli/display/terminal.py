"""Tables on stdout, and a progress bar on stderr if it is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

#: Width of tables if stdout is not a terminal.
UNLIMITED = 10_000


def show(table: Table) -> None:
    """Print the table on stdout; if that is not a terminal, as plain text of any width without trailing blanks."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    plain = Console(highlight=False, width=UNLIMITED, no_color=True)
    with plain.capture() as captured:
        plain.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


@contextmanager
def progress(stages: int) -> Iterator[Callable[[str], Callable[[float], None]]]:
    """Show a progress bar over several stages on stderr, if it is a terminal.

    Yields a function that begins a stage of the given name and returns the function to report its progress to.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
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
