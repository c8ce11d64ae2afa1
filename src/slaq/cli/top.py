"""`slaq top`: the jobs of the service on a full screen, live."""

import sys
from pathlib import Path

import click

from slaq.cli.jobs_shown import COLUMNS
from slaq.cli.reach import TOKEN, URL, client_for


@click.command("top")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="From one look to the next.",
)
@click.option(
    "--sort",
    type=click.Choice(list(COLUMNS)),
    default="cores",
    show_default=True,
    help="The column to sort by at first.",
)
@click.option("--all", "-a", "ended", is_flag=True, help="Show jobs that have ended too.")
@URL
@TOKEN
def command(interval: float, sort: str, ended: bool, url: str | None, token_file: Path | None) -> None:
    """Watch the jobs of the service on a full screen, and steer them by keys.

    \b
    up, down    choose a job              s, S, r     sort by the next column, the one
    p           pause or resume it                    before, the other way round
    c           cancel it, if you are     /           show only what matches; escape
                sure                                  shows all again
    w           change its weight         a           show ended jobs too
    y, enter    why it has what it has    q           quit

    A look begins only once the one before has come, so that a slow link is no trouble; a service that is lost
    is waited for.
    """
    from slaq.core.errors import MissingExtraError

    try:
        from slaq.cli.top_feed import ClientFeed
        from slaq.cli.top_screen import Top
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "textual", "client") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("slaq top needs a terminal; use `slaq ls` here")
    with client_for(url, token_file, patience=0.0) as client:
        client.cluster()  # told in one sentence where there is no service, rather than on an empty screen
        Top(ClientFeed(client), interval=interval, sort=sort, ended=ended).run()
