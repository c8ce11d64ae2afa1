"""`slaq best`: ranks the jobs of a group by their best loss."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.job_selection import GROUP_OF, complete_groups, jobs_of
from slaq.core.visible import visible

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("best")
@click.argument("group", shell_complete=complete_groups)
@GROUP_OF
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV on stdout instead of a table.")
@JSON
@connects
def command(
    client: "Client", group: str, user: str | None, top: int | None, as_csv: bool, as_json: bool
) -> None:
    """Rank the jobs of GROUP by their best loss, the best first, with their parameters.

    Jobs that have diverged, and those without a loss, come last. While jobs of the group have not ended, a line
    on stderr says how many.

    \b
    slaq best lr
    slaq best lr --top 1 --json
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other; give only one of them")
    from slaq.jobs.ranking import ranked, unfinished

    jobs = jobs_of(client, group, user)
    left = unfinished(jobs)
    shown, now = ranked(jobs)[:top], time.time()
    if as_json:
        print_json([_row(job, place, now) for place, job in enumerate(shown, start=1)])
    elif as_csv:
        from slaq.cli.display.job_rows import ranking_fields
        from slaq.cli.display.tabular import csv_pieces

        for piece in csv_pieces(ranking_fields(jobs, now), shown):
            say(piece.decode(), nl=False)
    else:
        _print_table(shown, now)
    beaten = sum(job["state"] == "beaten" for job in jobs)
    if beaten:
        say(
            f"slaq: {beaten} of {len(jobs)} jobs were ended as beaten, at the losses they had reached",
            err=True,
        )
    if left:
        have = "has" if left == 1 else "have"
        say(f"slaq: {left} of {len(jobs)} jobs {have} not ended, so that the order may change", err=True)


def _row(job: Mapping[str, Any], place: int, now: float) -> dict[str, Any]:
    """Return the documented fields."""
    from slaq.cli.display.job_rows import iterations, seconds
    from slaq.jobs.ranking import diverged

    return {
        "rank": place,
        "id": job["id"],
        "state": job["state"],
        "parameters": job["parameters"],
        "best_loss": job["best_loss"],
        "iterations": iterations(job),
        "seconds": seconds(job, now),
        "cpu_seconds": job["cpu_seconds"],
        "diverged": diverged(job),
        "standing": job["standing"],
    }


def _ends_at(job: Mapping[str, Any]) -> str:
    """Return between which losses a job of a search is expected to end; a dash where that is not known."""
    from slaq.cli.display.job_columns import number

    standing = job["standing"]
    if standing is None or standing["low"] is None or standing["high"] is None:
        return "–"
    return f"{number(standing['low'])} to {number(standing['high'])}"


def _print_table(jobs: Sequence[Mapping[str, Any]], now: float) -> None:
    from rich.table import Table

    from slaq.cli.display.job_columns import STYLES, number
    from slaq.cli.display.job_rows import iterations, seconds
    from slaq.cli.display.spans import span
    from slaq.cli.display.terminal import cell, show
    from slaq.jobs.ranking import diverged

    names = list(dict.fromkeys(name for job in jobs for name in job["parameters"]))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("job", "state"):
        table.add_column(heading, no_wrap=True)
    searching = any(job["standing"] for job in jobs)
    ends = ("will end",) if searching else ()
    for heading in (*map(visible, names), "best loss", *ends, "iterations", "time", "CPU"):
        table.add_column(heading, justify="right", no_wrap=True)
    for job in jobs:
        state = "diverged" if diverged(job) else job["state"]
        done, ran = iterations(job), seconds(job, now)
        facts = (
            *(str(job["parameters"].get(name, "–")) for name in names),
            number(job["best_loss"]),
            *((_ends_at(job),) if searching else ()),
            "–" if done is None else str(done),
            "–" if ran is None else span(ran),
            span(job["cpu_seconds"]),
        )
        table.add_row(*map(cell, (job["id"], state, *facts)), style=STYLES.get(job["state"], ""))
    show(table)
