"""`slaq pause`: stops jobs in place until they are resumed."""

from slaq.cli.verbs.job_actions import command_for

command = command_for(
    "pause",
    """Take all cores from each JOB until `slaq resume`.

    The job stops in place. It keeps its memory and its loss history.
    """,
)
