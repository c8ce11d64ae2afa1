"""`slaq cancel`: ends jobs."""

import click

from slaq.cli.verbs.job_actions import command_for

command = command_for(
    "cancel",
    """End each JOB and all of its processes. A cancelled job cannot be resumed.

    A job is told to end first (SIGTERM), and killed once its grace is over: 30 seconds, or what its `--grace` says.
    --now kills it at once, also while its grace runs.

    The files in the job's folder stay. The exit status is 1 if a job is unknown or has already ended; the
    other jobs are cancelled all the same.
    """,
    click.option("--now", "--force", "now", is_flag=True, help="Kill the job at once, without its grace."),
)
