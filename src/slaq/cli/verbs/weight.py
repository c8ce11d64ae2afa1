"""`slaq weight`: changes the weight of jobs."""

from typing import TYPE_CHECKING

import click

from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.job_selection import GROUP, GROUP_OF, JOBS_OR_GROUP, check_selection
from slaq.cli.input.option_types import OptionValue
from slaq.jobs.options import CHANGES

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("weight")
@JOBS_OR_GROUP
@click.argument("weight", type=OptionValue(CHANGES.options["weight"]))
@GROUP
@GROUP_OF
@JSON
@connects
def command(
    client: "Client", jobs: tuple[str, ...], weight: float, group: str | None, user: str | None, as_json: bool
) -> None:
    """Count each JOB WEIGHT times as much as a job of weight 1, from the next decision on.

    \b
    slaq weight net 2
    slaq weight --group lr 0.5
    """
    check_selection(jobs, group, user)
    if group is not None:
        views = client.change_group(group, owner=user, weight=weight)
    else:
        views = [client.change(job, weight=weight) for job in jobs]
    if as_json:
        print_json(views[0] if len(jobs) == 1 else views)
