"""`slaq why`: the last decision about a job, in numbers."""

from typing import TYPE_CHECKING, Any

import click

from slaq.cli.reach import JOB, JSON, print_json, reaches

if TYPE_CHECKING:
    from slaq.client import Client


@click.command("why")
@JOB
@JSON
@reaches
def command(client: "Client", job: str, as_json: bool) -> None:
    """Tell why JOB holds what it holds: the last decision about it, in numbers.

    What was forecast, what that makes a unit worth, what one more would have bought here and at the job that
    got it, and when this job is expected to be good enough.
    """
    found = client.why(job)
    if as_json:
        print_json(found)
    else:
        click.echo(told(found))


def told(found: dict[str, Any]) -> str:
    """Return the explanation in sentences."""
    return str(found["text"])
