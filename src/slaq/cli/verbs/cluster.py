"""`slaq cluster`: shows the state of the service, or changes its policy."""

from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.spans import span
from slaq.cli.input.connection_options import JSON, connects, print_json

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("cluster")
@click.option("--policy", metavar="NAME", help="Change the policy that divides the cores. For admins.")
@JSON
@connects
def command(client: "Client", policy: str | None, as_json: bool) -> None:
    """Show the state of the service: its policy, cores, epoch, jobs and problems."""
    view = client.cluster() if policy is None else client.set_policy(policy)
    if as_json:
        print_json(view)
        return
    from rich.table import Table

    from slaq.cli.display.terminal import cell, show

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in _facts(view).items():
        table.add_row(name, cell(text))
    show(table)


def _facts(view: dict[str, Any]) -> dict[str, str]:
    return {
        "version": f"slaq {view['version']}",
        "up": span(view["now"] - view["started_at"]),
        "policy": view["policy"],
        "cores": f"{view['granted']:.2f} of {view['capacity']:g} in use",
        "epoch": f"number {view['epoch']}, {view['epoch_seconds']:g} s each",
        "jobs": f"{view['running']} running, {view['queued']} queued, {view['paused']} paused",
        "shares by": view["throttle"] or "unknown until the first job starts",
        "problems": "; ".join(view["troubles"]) or "none",
    }
