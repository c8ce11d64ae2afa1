"""`slaq users`: who uses the service, and what each may have."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from slaq.cli.finite import finite
from slaq.cli.reach import JSON, print_json, reaches

if TYPE_CHECKING:
    from slaq.client import Client

#: What lifts a limit.
NONE = "none"


@click.group("users")
def command() -> None:
    """List users with what they hold, and set what each may have."""


@command.command("ls")
@JSON
@reaches
def ls(client: "Client", as_json: bool) -> None:
    """List users: everyone for admins, else yourself."""
    users = client.users()
    if as_json:
        print_json(users)
    else:
        _print_table(users)


class _Limit(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.5 only
    """A number, or none."""

    name = "limit"

    def __init__(self, number: click.IntRange | click.FloatRange) -> None:
        self._number = number

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NONE if value == NONE else self._number.convert(value, param, ctx)


@command.command("set")
@click.argument("user")
@click.option(
    "--weight",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    help="Their part in the sharing between users.",
)
@click.option(
    "--max-jobs", type=_Limit(click.IntRange(min=0)), metavar="N|none", help="Jobs that have not ended."
)
@click.option(
    "--max-cores",
    type=_Limit(click.FloatRange(min=0, min_open=True)),
    metavar="N|none",
    help="Cores held at once.",
)
@JSON
@reaches
def set_user(
    client: "Client", user: str, weight: float | None, max_jobs: Any, max_cores: Any, as_json: bool
) -> None:
    """Set what USER may have, from now on and over restarts; what is not given stays. For admins.

    \b
    slaq users set ann --weight 2 --max-cores 6
    slaq users set bob --max-jobs none
    """
    given = {"weight": weight, "max_jobs": max_jobs, "max_cores": max_cores}
    changes = {name: None if value == NONE else value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("say what to set: --weight, --max-jobs or --max-cores")
    view = client.set_user(user, **changes)
    if as_json:
        print_json(view)
    else:
        _print_table([view])


def _print_table(users: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from slaq.cli.terminal import show

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("user")
    headings = ("weight", "running", "queued", "paused", "most jobs", "cores", "most cores")
    for heading in headings:
        table.add_column(heading, justify="right")
    for user in users:
        most_jobs, most_cores = (
            "–" if user[key] is None else f"{user[key]:g}" for key in ("max_jobs", "max_cores")
        )
        counts = (str(user[key]) for key in ("running", "queued", "paused"))
        table.add_row(
            user["user"], f"{user['weight']:g}", *counts, most_jobs, f"{user['cores']:.2f}", most_cores
        )
    show(table)
