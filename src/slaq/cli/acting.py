"""The verbs that do one thing to each of some jobs: pause, resume, cancel."""

from typing import TYPE_CHECKING

import click

from slaq.cli.reach import JOBS, JSON, print_json, reaches
from slaq.core.errors import SlaqError

if TYPE_CHECKING:
    from slaq.client import Client


def acting(verb: str, text: str) -> click.Command:
    """Return the verb that asks the service for that, for one job after another."""

    @click.command(verb, help=text)
    @JOBS
    @JSON
    @click.pass_context
    @reaches
    def command(ctx: click.Context, client: "Client", jobs: tuple[str, ...], as_json: bool) -> None:
        views, failed = [], False
        for job in jobs:
            try:
                views.append(getattr(client, verb)(job))
            except SlaqError as error:
                if len(jobs) == 1:
                    raise
                # One that cannot be does not keep the others from it.
                click.echo(f"slaq: {error}", err=True)
                failed = True
        if as_json:
            print_json(views)
        if failed:
            ctx.exit(1)

    return command
