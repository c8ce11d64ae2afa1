"""`slaq pause`: takes all capacity from jobs, until they are resumed."""

from slaq.cli.acting import acting

command = acting(
    "pause",
    """Take all capacity from each JOB, until it is resumed.

    It stands still where it is and keeps its memory, its curve and its place.
    """,
)
