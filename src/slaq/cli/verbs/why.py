"""`slaq why`: explains the last decision about a job."""

from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.say import say
from slaq.cli.input.connection_options import JOB, JSON, connects, print_json

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("why")
@JOB
@JSON
@connects
def command(client: "Client", job: str, as_json: bool) -> None:
    """Explain why JOB holds its cores: the last decision about it, in numbers.

    The explanation gives the forecast, the gain from the job's cores, the gain that more cores would have
    brought to this job and to the job that got them, and the time when this job is expected to reach 90% and
    95% of its reduction. For a job that waits, it gives the reason.
    """
    found = client.why(job)
    if as_json:
        print_json(found)
    else:
        say(told(found))


def told(found: dict[str, Any]) -> str:
    """Return the explanation in sentences."""
    return str(found["text"])
