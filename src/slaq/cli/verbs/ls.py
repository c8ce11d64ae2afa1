"""`slaq ls`: lists the jobs of the service."""

import time
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN
from slaq.cli.input.connection_options import JSON, connects, print_json

if TYPE_CHECKING:
    from slaq.client import Client

STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")
#: Seconds for which a job that has ended is still listed.
RECENT = 86400.0


@click.command("ls")
@click.option(
    "--all", "-a", "everything", is_flag=True, help="List all jobs in the store, whenever they ended."
)
@click.option("--active", is_flag=True, help="List only jobs that have not ended.")
@click.option(
    "--ended-within",
    type=SPAN,
    metavar="DURATION",
    help="List ended jobs that ended within this time.  [default: 1d]",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only jobs in this state; repeatable.",
)
@click.option("--user", metavar="NAME", help="Only jobs of this user.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option("--quiet", "-q", is_flag=True, help="Print ids only, one a line.")
@JSON
@connects
def command(
    client: "Client",
    everything: bool,
    active: bool,
    ended_within: float | None,
    states: tuple[str, ...],
    user: str | None,
    tag: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the jobs that you may see, in the order of their submission.

    Without options these are the jobs that have not ended, and those that ended within a day.

    \b
    slaq ls
    slaq ls --state failed --json
    slaq cancel $(slaq ls --active --quiet --tag sweep)
    """
    from slaq.cli.display.job_columns import ENDED, suited

    if sum((everything, active, ended_within is not None)) > 1:
        raise click.UsageError("--all, --active and --ended-within exclude each other; give only one of them")
    now = time.time()
    since = now - (ended_within or RECENT)
    jobs = [
        job
        for job in client.list_jobs(states=_asked(states, active=active), owner=user, tag=tag)
        if everything or job["state"] not in ENDED or (job["ended_at"] or now) >= since
    ]
    if as_json:
        print_json(jobs)
    elif quiet:
        for job in jobs:
            say(job["id"])
    else:
        _print_table(jobs, suited(jobs), now)


def _asked(states: tuple[str, ...], *, active: bool) -> tuple[str, ...] | None:
    """Return the states to request; None for all."""
    from slaq.cli.display.job_columns import ACTIVE

    if states:
        return tuple(state for state in states if not active or state in ACTIVE)
    return ACTIVE if active else None


def _print_table(jobs: list[dict[str, Any]], columns: Any, now: float) -> None:
    from rich.table import Table

    from slaq.cli.display.job_columns import STYLES
    from slaq.cli.display.terminal import cell, show

    if not jobs:
        say("no jobs", err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.name, justify="right" if column.numeric else "left", no_wrap=True)
    for job in jobs:
        cells = (cell(column.text(job, now)) for column in columns)
        table.add_row(*cells, style=STYLES.get(job["state"], ""))
    show(table)
