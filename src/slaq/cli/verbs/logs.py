"""`slaq logs`: prints the output of a job."""

import sys
import time
from typing import TYPE_CHECKING

import click

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
@connecting(LONG_PATIENCE)
def command(client: "Client", job: str, follow: bool, lines: int | None) -> None:
    """Print the output of JOB, both stdout and stderr.

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
