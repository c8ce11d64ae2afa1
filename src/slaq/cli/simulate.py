"""`slaq simulate`: runs a workload through one policy or several on a virtual clock."""

import shlex
from pathlib import Path

import click

from slaq.bootstrap import FORECASTERS, POLICIES
from slaq.cli.finite import finite
from slaq.cli.outputs import output_path, picture_path


@click.command("simulate")
@click.argument("workload", type=click.Path(allow_dash=True))
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICIES),
    multiple=True,
    default=["fair", "total-quality"],
    show_default=True,
    help="Who gets the units; repeat it to compare policies side by side.",
)
@click.option(
    "--capacity", type=click.IntRange(min=1), default=640, show_default=True, help="Units to hand out."
)
@click.option(
    "--epoch-seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=3.0,
    show_default=True,
    help="Seconds from one decision to the next.",
)
@click.option(
    "--forecaster",
    type=click.Choice(FORECASTERS),
    default=FORECASTERS[0],
    show_default=True,
    help="How losses are forecast.",
)
@click.option(
    "--nodes",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV of time,units: from that second on, so many units instead of --capacity.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON and nothing else.")
@click.option(
    "--plot", type=click.Path(path_type=Path), callback=picture_path, help="Draw it: .png, .svg or .pdf."
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=output_path,
    help="Write it all into one HTML page.",
)
def command(
    workload: str,
    policies: tuple[str, ...],
    capacity: int,
    epoch_seconds: float,
    forecaster: str,
    nodes: Path | None,
    as_json: bool,
    plot: Path | None,
    report: Path | None,
) -> None:
    """Run WORKLOAD, a file of jobs or - for standard input, through policies on a virtual clock.

    Nothing is trained: jobs follow the loss curves in the file, at the pace of the units they are given. The
    first policy, or fair where it is among them, is what the others are compared with.

    \b
    slaq workload generate -o jobs.jsonl
    slaq simulate jobs.jsonl
    slaq simulate jobs.jsonl --policy fair --policy clairvoyant --report out.html

    \b
    JSON, for each policy (alone, or under its name when there are several):
    mean_normalised_loss  over epochs, mean over active jobs of (best so far -
                          final best) / (first - final best)
    time_to_90, time_to_95  mean seconds from arrival to that share of a job's
                          whole loss reduction
    completion            mean seconds from arrival to end
    mean_active           mean number of active jobs
    makespan              seconds from the first arrival to the last end
    decision_ms           median and p99 milliseconds per decision
    share_by_group        share of units held by the 25% of jobs with high
                          loss, the next 25% (medium) and the other 50% (low)
    """
    from slaq.cli.comparison import Cluster, compare
    from slaq.cli.description import describe
    from slaq.cli.nodes import read_capacity
    from slaq.simulation.workload import Workload

    jobs = Workload.read(workload)
    course = capacity if nodes is None else read_capacity(nodes, capacity)
    cluster = Cluster(capacity=course, epoch_seconds=epoch_seconds, forecaster=forecaster)
    chosen = tuple(dict.fromkeys(policies))
    comparison = compare(jobs, chosen, cluster)
    if plot is not None:
        comparison.write_plot(plot)
    if report is not None:
        facts = {
            "workload": "standard input" if workload == "-" else workload,
            **describe(jobs).facts(capacity),
            "capacity": f"{capacity:,} units" if nodes is None else f"as in {nodes}",
            "epoch": f"{epoch_seconds:g} s",
            "forecaster": forecaster,
        }
        words = ["slaq", "simulate", workload]
        words += [word for policy in chosen for word in ("--policy", policy)]
        words += [
            "--capacity",
            str(capacity),
            "--epoch-seconds",
            f"{epoch_seconds:g}",
            "--forecaster",
            forecaster,
        ]
        words += [] if nodes is None else ["--nodes", str(nodes)]
        under = " and ".join(chosen) if len(chosen) < 3 else f"{len(chosen)} policies"
        title = f"{len(jobs):,} jobs under {under}"
        comparison.write_report(report, title=title, facts=facts, command=shlex.join(words))
    if as_json:
        click.echo(comparison.as_json())
    else:
        comparison.print_table()
