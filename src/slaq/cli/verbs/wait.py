"""`slaq wait`: waits for jobs to end, or to reach a share of their reduction."""

import time
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN
from slaq.cli.input.connection_options import JSON, LONG_PATIENCE, connecting, print_json
from slaq.cli.input.finite import finite
from slaq.cli.input.job_selection import check_selection, jobs_of, jobs_or_group
from slaq.core.job import JobState

if TYPE_CHECKING:
    from slaq.client import Client

#: Exit statuses: a job diverged, failed or was cancelled; the timeout passed.
ENDED_SHORT, TIMED_OUT = 4, 5
#: Seconds between two polls.
PAUSE = 0.5


@click.command("wait")
@jobs_or_group
@click.option(
    "--reduction",
    type=click.FloatRange(min=0, max=1, min_open=True),
    callback=finite,
    metavar="SHARE",
    help="Wait until this share of the job's reduction is reached, such as 0.9, instead of its end.",
)
@click.option("--timeout", type=SPAN, help="Stop waiting after this time, such as 10m.")
@click.option("--any", "any_one", is_flag=True, help="Wait for any one of the jobs instead of all.")
@JSON
@click.pass_context
@connecting(LONG_PATIENCE)
def command(
    ctx: click.Context,
    client: "Client",
    jobs: tuple[str, ...],
    group: str | None,
    user: str | None,
    reduction: float | None,
    timeout: float | None,
    any_one: bool,
    as_json: bool,
) -> None:
    """Wait for each JOB to end, or to reach a share of its reduction.

    All of them are waited for, also where one has failed. The exit status is 0 if each job has reached the share,
    completed, or was beaten in its search, 4 if a job diverged, failed or was cancelled before, 5 if the timeout
    passed. Waiting continues over a restart of the service.

    \b
    slaq wait net && echo trained
    slaq wait net --reduction 0.9 --timeout 1h
    slaq wait --group lr
    """
    check_selection(jobs, group, user)
    give_up = None if timeout is None else time.monotonic() + timeout
    while True:
        views = [client.show_job(job) for job in jobs] if group is None else jobs_of(client, group, user)
        outcomes = [_outcome(view, reduction) for view in views]
        come = any if any_one else all
        if come(outcome == "reached" for outcome in outcomes):
            status = 0
        elif "waiting" not in outcomes:
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
            say(f"slaq: {_told(view, reduction)}", err=True)
    ctx.exit(status)


def _outcome(view: dict[str, Any], reduction: float | None) -> str:
    """Return "reached", "short" (the job ended without reaching it) or "waiting"."""
    from slaq.cli.display.job_columns import ENDED

    if reduction is not None and view["iteration"] >= 0 and view["reduction"] >= reduction:
        return "reached"
    if view["state"] not in ENDED:
        return "waiting"
    # A completed job will not improve any further, and a beaten one was ended as its owner asked.
    return "reached" if view["state"] in ("completed", "beaten") else "short"


def _told(view: dict[str, Any], reduction: float | None) -> str:
    from slaq.cli.display.job_columns import in_short, share

    why = f": {in_short(view['reason'])}" if view["reason"].strip() else ""
    done = f", {share(view['reduction'])} of its reduction reached" if reduction is not None else ""
    state = JobState(view["state"])
    stands = f"has {state.perfect}" if state.ended else f"is still {state}"
    return f"job {view['id']!r} {stands}{done}{why}"
