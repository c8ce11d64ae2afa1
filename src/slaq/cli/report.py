"""`slaq report`: a page about how the jobs of the service went."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.outputs import output_path
from slaq.cli.reach import JSON, print_json, reaches
from slaq.cli.spans import SPAN, span

if TYPE_CHECKING:
    from slaq.client import Client

DAY = 86400.0


@click.command("report")
@click.argument("file", required=False, type=click.Path(path_type=Path), callback=output_path)
@click.option(
    "--since",
    type=SPAN,
    default=DAY,
    metavar="DURATION",
    help="About jobs submitted within that time.  [default: 1d]",
)
@click.option("--user", metavar="NAME", help="Only those of this user.")
@click.option("--tag", help="Only those with this tag.")
@JSON
@reaches
def command(
    client: "Client", file: Path | None, since: float, user: str | None, tag: str | None, as_json: bool
) -> None:
    """Write a page about how the jobs of the service went into FILE: one HTML file that needs nothing else.

    It shows mean loss over time, the times to reach each share of the reduction, who held the units, and one
    job's story with its forecasts, of the jobs that you may see and as far as decisions are still kept.

    \b
    slaq report today.html
    slaq report --since 1h --tag sweep --json
    """  # fmt: skip
    if file is None and not as_json:
        raise click.UsageError("name the FILE to write, or give --json")
    from slaq.bootstrap import Run
    from slaq.cli.chronicle import fetch
    from slaq.cli.comparison import Comparison
    from slaq.cli.terminal import progress
    from slaq.core.outcome import JobCurve, measure

    begin = time.time() - since
    views = [view for view in client.list_jobs(owner=user, tag=tag) if view["submitted_at"] >= begin]
    if not views:
        raise click.ClickException(f"no job was submitted within {span(since)}; give a longer --since")
    cluster = client.cluster()
    with progress(stages=1) as stage:
        chronicle = fetch(client, views, stage("fetching"))
    curves = [JobCurve.of(spec, chronicle.events(spec.id)) for spec in chronicle.jobs()]
    outcome = measure(cluster["policy"], curves, chronicle.decisions(), cluster["epoch_seconds"])
    if as_json:
        print_json({"policy": cluster["policy"], "jobs": [view["id"] for view in views], **outcome.as_json()})
    if file is not None:
        page = Comparison(runs={cluster["policy"]: Run(outcome=outcome, history=chronicle)})
        page.write_report(
            file, title=_title(views), facts=_facts(client, cluster, views), command=f"slaq report {file}"
        )


def _title(views: list[dict[str, Any]]) -> str:
    return f"{len(views)} {'job' if len(views) == 1 else 'jobs'} of the service"


def _facts(client: "Client", cluster: dict[str, Any], views: list[dict[str, Any]]) -> dict[str, str]:
    states = [view["state"] for view in views]
    owners = sorted({view["owner"] for view in views})
    return {
        "service": client.address,
        "jobs": ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))),
        "users": ", ".join(owners),
        "cores": str(cluster["cores"]),
        "capacity": f"{cluster['capacity']} units",
        "epoch": f"{cluster['epoch_seconds']:g} s",
    }
