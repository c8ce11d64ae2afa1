"""`slaq weight`: changes the weight of a job."""

from typing import TYPE_CHECKING

import click

from slaq.cli.input.connection_options import JOB, JSON, connects, print_json
from slaq.cli.input.option_types import OptionValue
from slaq.jobs.options import CHANGES

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("weight")
@JOB
@click.argument("weight", type=OptionValue(CHANGES.options["weight"]))
@JSON
@connects
def command(client: "Client", job: str, weight: float, as_json: bool) -> None:
    """Count JOB WEIGHT times as much as a job of weight 1, from the next decision on.

    \b
    slaq weight net 2
    """
    view = client.change(job, weight=weight)
    if as_json:
        print_json(view)
