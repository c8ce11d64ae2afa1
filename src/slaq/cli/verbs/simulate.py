"""`slaq simulate`: runs a workload under one or more policies on a virtual clock."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slaq.bootstrap import FORECASTERS, policy_names
from slaq.cli.display.outputs import page_path, picture_path
from slaq.cli.display.say import say
from slaq.cli.input.finite import finite

if TYPE_CHECKING:
    from slaq.cli.display.comparison import Comparison


@click.command("simulate")
@click.argument("workload", type=click.Path(allow_dash=True))
@click.option(
    "--policy",
    "policies",
    type=click.Choice(policy_names()),
    multiple=True,
    default=["fair", "total-quality"],
    show_default=True,
    help="The policy that divides the cores; repeat the option to compare policies.",
)
@click.option(
    "--capacity", type=click.IntRange(min=1), default=640, show_default=True, help="Cores to hand out."
)
@click.option(
    "--epoch-seconds",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=3.0,
    show_default=True,
    help="Seconds between two decisions.",
)
@click.option(
    "--forecaster",
    type=click.Choice(FORECASTERS),
    default=FORECASTERS[0],
    show_default=True,
    help="The forecaster of losses.",
)
@click.option(
    "--nodes",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="CSV file of time,cores: the capacity from each second on, instead of --capacity.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=picture_path,
    help="Draw the result into this file: .png, .svg or .pdf.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=page_path,
    help="Write the result into this HTML page.",
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
    """Run WORKLOAD, a file of jobs or - for standard input, under policies on a virtual clock.

    Nothing is trained: jobs follow the loss curves in the file, at a speed given by their cores. The other
    policies are compared with fair if it is among them, else with the first.

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
    loss_seconds          mean integral of a job's normalised loss from arrival
                          to end
    completion            mean seconds from arrival to end
    makespan              seconds from the first arrival to the last end
    mean_active           mean number of active jobs
    decision_ms           median and p99 milliseconds per decision
    share_by_group        share of cores held by the 25% of jobs with high
                          loss, the next 25% (medium) and the other 50% (low)
    """
    from slaq.cli.display.comparison import SimulatedCluster, compare
    from slaq.cli.display.workload_summary import describe
    from slaq.cli.input.capacity_file import read_capacity
    from slaq.simulation.workload import Workload

    jobs = Workload.read(workload)
    changes = capacity if nodes is None else read_capacity(nodes, capacity)
    cluster = SimulatedCluster(capacity=changes, epoch_seconds=epoch_seconds, forecaster=forecaster)
    chosen = tuple(dict.fromkeys(policies))
    comparison = compare(jobs, chosen, cluster)
    if plot is not None:
        comparison.write_plot(plot)
    if report is not None:
        facts = describe(jobs).facts(capacity)
        options = {"capacity": capacity, "epoch-seconds": f"{epoch_seconds:g}", "forecaster": forecaster}
        options |= {} if nodes is None else {"nodes": nodes}
        _write_report(report, comparison, jobs=len(jobs), workload=workload, facts=facts, options=options)
    if as_json:
        say(comparison.as_json())
    else:
        comparison.print_table()


def _write_report(
    path: Path,
    comparison: "Comparison",
    *,
    jobs: int,
    workload: str,
    facts: Mapping[str, str],
    options: Mapping[str, object],
) -> None:
    """Write the page, with the facts of the workload and the options of the simulation."""
    policies = tuple(comparison.runs)
    nodes = options.get("nodes")
    under = " and ".join(policies) if len(policies) < 3 else f"{len(policies)} policies"
    comparison.write_report(
        path,
        title=f"{jobs:,} jobs under {under}",
        facts={
            "workload": "standard input" if workload == "-" else workload,
            **facts,
            "capacity": f"{options['capacity']:,} cores" if nodes is None else f"as in {nodes}",
            "epoch": f"{options['epoch-seconds']} s",
            "forecaster": str(options["forecaster"]),
        },
        command=_command(workload, policies, options),
    )


def _command(workload: str, policies: Sequence[str], options: Mapping[str, object]) -> str:
    """Return the command that runs the same simulation again."""
    words = ["slaq", "simulate", workload]
    words += [word for policy in policies for word in ("--policy", policy)]
    words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return shlex.join(words)
