"""`slaq report`: writes an HTML page about the jobs of the service."""

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.outputs import page_path
from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN, span
from slaq.cli.input.connection_options import JSON, connects, print_json
from slaq.cli.input.job_selection import complete_groups

if TYPE_CHECKING:
    from slaq.client import Client

DAY = 86400.0
#: Jobs that a report covers unless another number is asked for.
MOST = 1000


@click.command("report")
@click.argument("file", required=False, type=click.Path(path_type=Path), callback=page_path)
@click.option(
    "--since",
    type=SPAN,
    default=DAY,
    metavar="DURATION",
    help="Only jobs submitted within this time.  [default: 1d]",
)
@click.option("--user", metavar="NAME", help="Only jobs of this user.")
@click.option("--tag", help="Only jobs with this tag.")
@click.option(
    "--group",
    metavar="NAME",
    shell_complete=complete_groups,
    help="Only jobs of this group, or that of --user.",
)
@click.option(
    "--jobs",
    "most",
    type=click.IntRange(1, 10_000),
    default=MOST,
    show_default=True,
    metavar="N",
    help="Only so many jobs: those that have not ended, then those that ended last.",
)
@JSON
@connects
def command(
    client: "Client",
    file: Path | None,
    since: float,
    user: str | None,
    tag: str | None,
    group: str | None,
    most: int,
    as_json: bool,
) -> None:
    """Write a page about the jobs of the service into FILE, one self-contained HTML file.

    The page shows the mean loss over time, the time to reach each share of the reduction, the cores of each
    job, one job in detail with its forecasts, and a table of the jobs with the options of each. It covers the
    jobs that you may see, the last 1,000 of them unless --jobs says otherwise, and the decisions that are still
    in the store.

    \b
    slaq report today.html
    slaq report --since 1h --tag sweep --json
    """  # fmt: skip
    if file is None and not as_json:
        raise click.UsageError("name the FILE to write, or give --json")
    from slaq.bootstrap import Run
    from slaq.cli.display.comparison import Comparison
    from slaq.cli.display.job_report import rows, summary
    from slaq.cli.display.service_history import fetch
    from slaq.cli.display.terminal import progress
    from slaq.core.outcome import JobCurve, measure

    begin = time.time() - since
    views, total = client.last_jobs(most, owner=user, tag=tag, group=group, submitted_since=begin)
    if not views:
        raise click.ClickException(
            f"no such job was submitted within the last {span(since)}; give a longer --since"
        )
    if total > len(views):
        say(f"only the last {len(views):,} of {total:,} jobs; --jobs N reports on more", err=True)
    cluster = client.cluster()
    with progress(stages=1) as stage:
        history = fetch(client, views, stage("fetching"))
    ends = {view["id"]: _end(view) for view in views}
    curves = [JobCurve.of(spec, history.events(spec.id), ends[spec.id]) for spec in history.jobs()]
    outcome = measure(cluster["policy"], curves, history.decisions(), cluster["epoch_seconds"])
    if as_json:
        table = [summary(view, curve) for view, curve in zip(views, curves, strict=True)]
        ids = [view["id"] for view in views]
        print_json({"policy": cluster["policy"], "jobs": ids, "table": table, **outcome.as_json()})
    if file is not None:
        page = Comparison(runs={cluster["policy"]: Run(outcome=outcome, history=history)})
        page.write_report(
            file,
            title=_title(views),
            facts=_facts(client, cluster, views, total),
            command=_command(file, client.address, since=since, user=user, tag=tag, group=group, jobs=most),
            jobs=rows(views, curves),
        )


def _end(view: dict[str, Any]) -> float | None:
    """Return where the job's curve ends, as the share says that `slaq ls` shows as done; None without a loss."""
    from slaq.core.direction import turned
    from slaq.core.progress import end_by

    first, best, rises = view["first_loss"], view["best_loss"], view["maximize"]
    if first is None or best is None:
        return None
    return turned(end_by(turned(first, rises), turned(best, rises), view["reduction"]), rises)


def _command(file: Path, address: str, **options: float | str | None) -> str:
    """Return the command that makes such a page again, with every option but the token's file."""
    words = ["slaq", "report", str(file), "--url", address]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def _title(views: list[dict[str, Any]]) -> str:
    return f"{len(views)} {'job' if len(views) == 1 else 'jobs'} of the service"


def _facts(
    client: "Client", cluster: dict[str, Any], views: list[dict[str, Any]], total: int
) -> dict[str, str]:
    states = [view["state"] for view in views]
    more = f"; {total - len(views):,} earlier ones are left out" if total > len(views) else ""
    owners = sorted({view["owner"] for view in views})
    return {
        "service": client.address,
        "jobs": ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) + more,
        "users": ", ".join(owners),
        "capacity": f"{cluster['capacity']:g} cores",
        "epoch": f"{cluster['epoch_seconds']:g} s",
    }
