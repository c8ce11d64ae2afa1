"""`slaq wait`: waits for jobs to end, or to be good enough."""

import time
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.finite import finite
from slaq.cli.reach import JOBS, JSON, LONG_PATIENCE, print_json, reaching
from slaq.cli.spans import SPAN

if TYPE_CHECKING:
    from slaq.client import Client

#: Exit statuses: a job failed or was cancelled; the time was up.
ENDED_SHORT, TIMED_OUT = 4, 5
#: Seconds between two looks.
PAUSE = 0.5


@click.command("wait")
@JOBS
@click.option(
    "--reduction",
    type=click.FloatRange(min=0, max=1, min_open=True),
    callback=finite,
    metavar="SHARE",
    help="Wait until this share of its whole reduction is done, such as 0.9, rather than for its end.",
)
@click.option("--timeout", type=SPAN, help="Wait no longer, such as 10m.")
@click.option("--any", "any_one", is_flag=True, help="Wait for one of the jobs rather than for all.")
@JSON
@click.pass_context
@reaching(LONG_PATIENCE)
def command(
    ctx: click.Context,
    client: "Client",
    jobs: tuple[str, ...],
    reduction: float | None,
    timeout: float | None,
    any_one: bool,
    as_json: bool,
) -> None:
    """Wait for each JOB to end, or to have done a share of its reduction.

    The exit status is 0 when it has come to that, or the job has completed; 4 when a job failed or was cancelled
    before; 5 when the time was up. It survives a restart of the service.

    \b
    slaq wait net && echo trained
    slaq wait net --reduction 0.9 --timeout 1h
    """
    give_up = None if timeout is None else time.monotonic() + timeout
    while True:
        views = [client.show_job(job) for job in jobs]
        outcomes = [_outcome(view, reduction) for view in views]
        come = any if any_one else all
        if come(outcome == "reached" for outcome in outcomes):
            status = 0
        elif any(outcome == "short" for outcome in outcomes) and not (any_one and "waiting" in outcomes):
            status = ENDED_SHORT
        elif give_up is not None and time.monotonic() >= give_up:
            status = TIMED_OUT
        else:
            time.sleep(PAUSE if give_up is None else min(PAUSE, max(0.0, give_up - time.monotonic())))
            continue
        break
    if as_json:
        print_json(views)
    for view, outcome in zip(views, outcomes, strict=True):
        if status and outcome != "reached":
            click.echo(f"slaq: {_told(view, reduction)}", err=True)
    ctx.exit(status)


def _outcome(view: dict[str, Any], reduction: float | None) -> str:
    """Return whether it is "reached", or ended "short" of it, or "waiting"."""
    from slaq.cli.jobs_shown import ENDED

    if reduction is not None and view["iteration"] >= 0 and view["reduction"] >= reduction:
        return "reached"
    if view["state"] not in ENDED:
        return "waiting"
    # One that completed has come as far as it ever will.
    return "reached" if view["state"] == "completed" else "short"


def _told(view: dict[str, Any], reduction: float | None) -> str:
    from slaq.cli.jobs_shown import ENDED, share

    why = f": {view['reason'].strip().splitlines()[-1]}" if view["reason"].strip() else ""
    done = f", {share(view['reduction'])} of its reduction done" if reduction is not None else ""
    still = "" if view["state"] in ENDED else "still "
    return f"job {view['id']!r} is {still}{view['state']}{done}{why}"
