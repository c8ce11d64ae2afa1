"""`slaq cancel`: ends jobs for good."""

from slaq.cli.acting import acting

command = acting(
    "cancel",
    """End each JOB for good, and all processes of it.

    What it left in its folder stays there. The exit status is 1 where a job is unknown or has ended already;
    the others are cancelled all the same.
    """,
)
