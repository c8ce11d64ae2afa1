"""`slaq cluster`: the service at a glance, and its policy."""

from typing import TYPE_CHECKING, Any

import click

from slaq.cli.reach import JSON, print_json, reaches
from slaq.cli.spans import span

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("cluster")
@click.option("--policy", metavar="NAME", help="Who gets the units from now on. For admins.")
@JSON
@reaches
def command(client: "Client", policy: str | None, as_json: bool) -> None:
    """Show the service at a glance: its cores and who gets them, jobs, and what is wrong, if anything."""
    view = client.cluster() if policy is None else client.set_policy(policy)
    if as_json:
        print_json(view)
        return
    from rich.table import Table

    from slaq.cli.terminal import show

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in _facts(view).items():
        table.add_row(name, text)
    show(table)


def _facts(view: dict[str, Any]) -> dict[str, str]:
    held = view["granted"] / view["units_per_core"]
    return {
        "version": f"slaq {view['version']}",
        "up": span(view["now"] - view["started_at"]),
        "policy": view["policy"],
        "cores": f"{held:.2f} of {view['cores']} held ({view['granted']} of {view['capacity']} units)",
        "epoch": f"number {view['epoch']}, one every {view['epoch_seconds']:g} s",
        "jobs": f"{view['running']} running, {view['queued']} queued, {view['paused']} paused",
        "shares by": view["throttle"] or "not known yet: no job was started",
        "troubles": "; ".join(view["troubles"]) or "none",
    }
