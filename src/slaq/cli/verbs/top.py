"""`slaq top`: shows the jobs of the service on a full screen, and refreshes it."""

import sys
from pathlib import Path

import click

from slaq.cli.display.job_columns import COLUMNS
from slaq.cli.input.connection_options import TOKEN, URL, client_for
from slaq.core.extras import needs


@click.command("top")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two refreshes.",
)
@click.option(
    "--sort",
    type=click.Choice(list(COLUMNS)),
    default="cores",
    show_default=True,
    help="The column to sort by at the start.",
)
@click.option("--all", "-a", "ended", is_flag=True, help="Show jobs that have ended too.")
@URL
@TOKEN
def command(interval: float, sort: str, ended: bool, url: str | None, token_file: Path | None) -> None:
    """Watch the jobs of the service on a full screen, and control them by keys.

    \b
    up, down    select a job              s, S        sort by the next, previous column
    p           pause or resume the job   r           reverse the order
    c           cancel the job            /           filter; escape shows all jobs
    w           change its weight         a           show or hide ended jobs
    y, enter    explain its cores         q           quit

    A refresh starts only after the reply to the one before, so a slow connection only makes it less frequent.
    If the service stops, the screen waits for it to come back.
    """
    with needs("client"):
        from slaq.cli.top.feed import ClientFeed
        from slaq.cli.top.screen import Top
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("slaq top needs a terminal; use `slaq ls` here")
    with client_for(url, token_file, patience=0.0) as client:
        client.cluster()  # fails here with one sentence if there is no service, before the screen opens
        Top(ClientFeed(client), interval=interval, sort=sort, ended=ended).run()
