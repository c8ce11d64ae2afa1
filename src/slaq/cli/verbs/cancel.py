"""`slaq cancel`: ends jobs."""

from slaq.cli.verbs.job_actions import command_for

command = command_for(
    "cancel",
    """End each JOB and all of its processes. A cancelled job cannot be resumed.

    The files in the job's folder stay. The exit status is 1 if a job is unknown or has already ended; the
    other jobs are cancelled all the same.
    """,
)
