"""`slaq users`: lists the users of the service, and sets their weights and limits."""

from typing import TYPE_CHECKING, Any

import click

from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.option_types import NONE, OptionValue
from slaq.jobs.options import LIMITS

if TYPE_CHECKING:
    from slaq.client import Client


@click.group("users")
def command() -> None:
    """List users with their jobs and cores, and set their weights and limits."""


@command.command("ls")
@JSON
@connects
def ls(client: "Client", as_json: bool) -> None:
    """List all users if you are an admin, else only yourself."""
    users = client.users()
    if as_json:
        print_json(users)
    else:
        _print_table(users)


def _limits(function: Any) -> Any:
    """Give a verb an option for each limit; those that can be lifted take the word none."""
    for option in reversed(list(LIMITS.options.values())):
        can_lift = option.default is None
        function = click.option(
            option.flag,
            type=OptionValue(option, none=can_lift),
            metavar=f"{option.type.metavar}|{NONE}" if can_lift else option.type.metavar,
            help=option.help,
        )(function)
    return function


@command.command("set")
@click.argument("user")
@_limits
@JSON
@connects
def set_user(client: "Client", user: str, as_json: bool, **limits: Any) -> None:
    """Set the weight and limits of USER, also after restarts. For admins.

    An option that is not given leaves its value unchanged.

    \b
    slaq users set ann --weight 2 --max-cores 6
    slaq users set bob --max-jobs none
    """
    given = {name: value for name, value in limits.items() if value is not None}
    changes: Any = {name: None if value == NONE else value for name, value in given.items()}
    if not changes:
        flags = [option.flag for option in LIMITS.options.values()]
        raise click.UsageError(f"nothing to set; give {', '.join(flags[:-1])} or {flags[-1]}")
    view = client.set_user(user, **changes)
    if as_json:
        print_json(view)
    else:
        _print_table([view])


def _print_table(users: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from slaq.cli.display.terminal import cell, show

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("user")
    headings = ("weight", "running", "queued", "paused", "most jobs", "most running", "cores", "most cores")
    for heading in headings:
        table.add_column(heading, justify="right")
    for user in users:
        counts = [str(user[key]) for key in ("running", "queued", "paused")]
        most_jobs, most_running, most_cores = (
            "–" if user[key] is None else f"{user[key]:g}" for key in ("max_jobs", "max_running", "max_cores")
        )
        held = f"{user['cores']:.2f}"
        table.add_row(
            cell(user["user"]), f"{user['weight']:g}", *counts, most_jobs, most_running, held, most_cores
        )
    show(table)
