"""`slaq weight`: changes how much a job counts against others."""

from typing import TYPE_CHECKING

import click

from slaq.cli.finite import finite
from slaq.cli.reach import JOB, JSON, print_json, reaches

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("weight")
@JOB
@click.argument("weight", type=click.FloatRange(min=0, min_open=True), callback=finite)
@JSON
@reaches
def command(client: "Client", job: str, weight: float, as_json: bool) -> None:
    """Let JOB count WEIGHT times as much as a job of weight 1, from the next decision on.

    \b
    slaq weight net 2
    """
    view = client.change(job, weight=weight)
    if as_json:
        print_json(view)
