"""`slaq ls`: lists the jobs of the service."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN
from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.job_selection import complete_groups
from slaq.core.errors import UnknownNameError
from slaq.core.job import JobState

if TYPE_CHECKING:
    from slaq.cli.display.job_columns import Column
    from slaq.client import Client

STATES = tuple(map(str, JobState))
#: The columns of a table, which `job_columns` defines.
NAMES = (
    *("job", "user", "group", "state", "weight", "cores", "iteration", "loss", "best", "done"),
    *("90% in", "chance", "CPU", "age", "parameters", "reason", "command", "tags", "starts", "submitted"),
    *("started", "ended"),
)
#: Seconds for which a job that has ended is still listed.
RECENT = 86400.0
#: Ended jobs that a table shows, those that ended last.
SHOWN = 50
#: Marked jobs whose trouble is told.
TOLD = 5
#: Rows above which a table is printed without colours.
LONG = 500


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
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=complete_groups,
    help="Only jobs of this group, whenever they ended.",
)
@click.option(
    "--columns",
    metavar="NAME,...",
    help="Show these columns, in this order: " + ", ".join(NAMES) + ". The beginning of a name will do.",
)
@click.option("--sort", metavar="NAME", help="Sort by this column: the best, most or latest first.")
@click.option("--reverse", "-r", is_flag=True, help="Sort the other way round.")
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
    group: str | None,
    quiet: bool,
    as_json: bool,
    **table: Any,
) -> None:
    """List the jobs that you may see, in the order of their submission.

    Without options these are the jobs that have not ended, and those that ended within a day. The table shows
    only the last ended ones of them, and says how many more there are; --all and --ended-within show all of theirs.

    \b
    slaq ls
    slaq ls --sort best --columns job,best,done,command
    slaq ls --state failed --json
    slaq cancel $(slaq ls --active --quiet --tag sweep)
    """
    if sum((everything, active, ended_within is not None)) > 1:
        raise click.UsageError("--all, --active and --ended-within exclude each other; give only one of them")
    layout = _layout(**table)
    now = time.time()
    wanted = _Wanted(
        states=_asked(states, active=active),
        owner=user,
        tag=tag,
        group=group,
        ended_since=None if everything or (group and not ended_within) else now - (ended_within or RECENT),
    )
    whole = everything or group is not None or ended_within is not None or as_json or quiet
    jobs, more = (wanted.every(client), 0) if whole else wanted.latest(client)
    jobs = layout.ordered(jobs)
    if as_json:
        print_json(jobs)
    elif quiet:
        for job in jobs:
            say(job["id"])
    else:
        _print_table(jobs, layout, now)
        _tell_troubles(jobs)
        if more:
            say(f"and {more:,} more that ended within a day; slaq ls --ended-within 1d shows them", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which jobs are listed."""

    states: tuple[str, ...]
    owner: str | None
    tag: str | None
    group: str | None
    ended_since: float | None

    def every(self, client: "Client") -> list[dict[str, Any]]:
        """Return all of them."""
        return client.list_jobs(**self._filters(self.states))

    def latest(self, client: "Client") -> tuple[list[dict[str, Any]], int]:
        """Return those that have not ended and the last ended ones, and how many are left out."""
        from slaq.cli.display.job_columns import ACTIVE, ENDED

        active = tuple(state for state in self.states if state in ACTIVE)
        ended = tuple(state for state in self.states if state in ENDED)
        jobs = client.list_jobs(**self._filters(active)) if active else []
        if not ended:
            return jobs, 0
        known = {job["id"] for job in jobs}
        last, total = client.last_jobs(SHOWN, **self._filters(ended))
        # A job may end between the two answers.
        jobs += [job for job in last if job["id"] not in known]
        return sorted(jobs, key=lambda job: float(job["submitted_at"])), max(total - len(last), 0)

    def _filters(self, states: tuple[str, ...]) -> dict[str, Any]:
        owned = {"owner": self.owner, "tag": self.tag, "group": self.group}
        return {"states": states, **owned, "ended_since": self.ended_since}


def _asked(states: tuple[str, ...], *, active: bool) -> tuple[str, ...]:
    """Return the states to request."""
    from slaq.cli.display.job_columns import ACTIVE

    return tuple(state for state in states or STATES if not active or state in ACTIVE)


def _tell_troubles(jobs: list[dict[str, Any]]) -> None:
    """Say what is wrong with the losses of marked jobs that have not ended."""
    from slaq.cli.display.job_columns import ACTIVE, TROUBLED

    marked = [job for job in jobs if job["loss_trouble"] and job["state"] in ACTIVE]
    for job in marked[:TOLD]:
        say(f"{TROUBLED} {job['id']}: {job['loss_trouble']}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Which columns a table has, and in which order its rows come."""

    #: None for those that suit the jobs.
    columns: "Sequence[Column] | None"
    #: None for the order of submission.
    sort: "Column | None"
    reverse: bool

    def ordered(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the jobs in the order that is asked for; equal ones in the order of submission."""
        found = jobs if self.sort is None else sorted(jobs, key=self.sort.key)
        return found[::-1] if self.reverse else found


def _layout(columns: str | None, sort: str | None, *, reverse: bool) -> _Layout:
    """Return how the table is to be laid out; a column that there is not is a usage error."""
    from slaq.cli.display.job_columns import chosen

    try:
        shown = None if columns is None else chosen(columns)
        by = None if sort is None else chosen(sort)
    except UnknownNameError as error:
        raise click.UsageError(str(error)) from None
    if by is not None and len(by) > 1:
        raise click.UsageError("--sort takes one column; give only one name")
    return _Layout(columns=shown, sort=None if by is None else by[0], reverse=reverse)


def _print_table(jobs: list[dict[str, Any]], layout: _Layout, now: float) -> None:
    from rich.table import Table

    from slaq.cli.display.job_columns import STYLES, suited
    from slaq.cli.display.terminal import cell, say_columns, show

    if not jobs:
        say("no jobs", err=True)
        return
    by = "" if layout.sort is None else layout.sort.name
    columns = suited(jobs, by) if layout.columns is None else layout.columns
    if len(jobs) > LONG:
        headings = {column.name: column.numeric for column in columns}
        say_columns(headings, [[column.text(job, now) for column in columns] for job in jobs])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.name, justify="right" if column.numeric else "left", no_wrap=True)
    for job in jobs:
        cells = (cell(column.text(job, now)) for column in columns)
        table.add_row(*cells, style=STYLES.get(job["state"], ""))
    show(table)
