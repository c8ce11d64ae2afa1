"""The verbs that act on each of several jobs: pause, resume, cancel."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.job_selection import check_selection, jobs_or_group
from slaq.core.errors import SlaqError

if TYPE_CHECKING:
    from slaq.client import Client


def command_for(verb: str, text: str, *options: Callable[[Any], Any]) -> click.Command:
    """Return the command that requests `verb` of the service for one job after another.

    What the verb's own options say is passed on by name.
    """

    @click.command(verb, help=text)
    @jobs_or_group
    @JSON
    @click.pass_context
    @connects
    def command(
        ctx: click.Context,
        client: "Client",
        jobs: tuple[str, ...],
        group: str | None,
        user: str | None,
        as_json: bool,
        **given: Any,
    ) -> None:
        check_selection(jobs, group, user)
        views = [] if group is None else getattr(client, f"{verb}_group")(group, owner=user)
        failed = False
        if any(given.values()):
            # One by one: what a group as a whole is asked for says less.
            jobs, views = (*jobs, *(view["id"] for view in views if view["ended_at"] is None)), []
        for job in jobs:
            try:
                views.append(getattr(client, verb)(job, **given))
            except SlaqError as error:
                if len(jobs) == 1:
                    raise
                # Report the error and go on with the other jobs.
                say(f"slaq: {error}", err=True)
                failed = True
        if as_json:
            print_json(views)
        if failed:
            ctx.exit(1)

    for option in options:
        command = option(command)
    return command
