"""`slaq logs`: what a job has printed, and goes on printing."""

import sys
import time
from typing import TYPE_CHECKING

import click

from slaq.cli.reach import JOB, LONG_PATIENCE, reaching

if TYPE_CHECKING:
    from slaq.client import Client

#: Bytes asked for at a time, and seconds between two looks for more.
PIECE, PAUSE = 2**18, 0.5
#: Bytes searched for the last lines, a line.
LONG_LINE = 400


@click.command("logs")
@JOB
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), help="Begin with the last so many lines.  [default: all]"
)
@reaching(LONG_PATIENCE)
def command(client: "Client", job: str, follow: bool, lines: int | None) -> None:
    """Print what JOB has printed, its errors included.

    \b
    slaq logs net -f
    slaq logs net -n 20
    """
    out = sys.stdout.buffer
    offset = 0 if lines is None else _last_lines(client, job, lines)
    while True:
        piece = client.log(job, offset=offset, limit=PIECE)
        out.write(piece.data)
        out.flush()
        offset = piece.next_offset
        if piece.data:
            continue
        if piece.ended or not follow:
            return
        time.sleep(PAUSE)


def _last_lines(client: "Client", job: str, lines: int) -> int:
    """Return where the last so many lines begin."""
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
