"""`slaq logs`: prints the output of a job."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from slaq.cli.display.say import LogText
from slaq.cli.input.connection_options import JOB, LONG_PATIENCE, connecting

if TYPE_CHECKING:
    from slaq.client import Client

#: Bytes per request, and seconds between two polls for more.
PIECE, PAUSE = 2**18, 0.5
#: Bytes assumed per line when searching for the last lines.
LONG_LINE = 400


@click.command("logs")
@JOB
@click.option("--follow", "-f", is_flag=True, help="Continue until the job has ended.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), help="Print only the last N lines.  [default: all]"
)
@click.option("--raw", is_flag=True, help="Print the bytes as they are, also on a terminal.")
@connecting(LONG_PATIENCE)
def command(client: "Client", job: str, follow: bool, lines: int | None, raw: bool) -> None:
    """Print the output of JOB, both stdout and stderr.

    On a terminal, control characters are printed as escapes, such as \\x1b, because a job can print what a
    terminal obeys. A pipe or a file gets the bytes as they are.

    \b
    slaq logs net -f
    slaq logs net -n 20
    """
    write = _write_bytes if raw or not sys.stdout.isatty() else _write_text(LogText())
    offset = 0 if lines is None else _last_lines(client, job, lines)
    while True:
        piece = client.log(job, offset=offset, limit=PIECE)
        over = not piece.data and (piece.ended or not follow)
        write(piece.data, over)
        if over:
            return
        offset = piece.next_offset
        if not piece.data:
            time.sleep(PAUSE)


def _write_bytes(data: bytes, over: bool) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write_text(text: LogText) -> Callable[[bytes, bool], None]:
    def write(data: bytes, over: bool) -> None:
        sys.stdout.write(text.feed(data, final=over))
        sys.stdout.flush()

    return write


def _last_lines(client: "Client", job: str, lines: int) -> int:
    """Return the offset at which the last `lines` lines begin."""
    reach = max(lines, 1) * LONG_LINE
    while True:
        piece = client.log(job, offset=-reach, limit=reach)
        data, end = piece.data, piece.offset + len(piece.data)
        if lines == 0:
            return end
        breaks = [place for place, byte in enumerate(data[:-1]) if byte == 10]
        if len(breaks) >= lines:
            return piece.offset + breaks[-lines] + 1
        if piece.offset == 0:
            return 0
        reach *= 4
