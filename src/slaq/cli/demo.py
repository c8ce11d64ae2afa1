"""`slaq demo`: the difference that quality-driven scheduling makes, in seconds and without preparation."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from slaq.cli.outputs import output_path, picture_path

POLICIES = ("fair", "total-quality", "clairvoyant")
CAPACITY = 640
EPOCH_SECONDS = 3.0


@click.command("demo")
@click.option("--jobs", type=click.IntRange(2, 100_000), default=60, show_default=True, help="How many jobs.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, other jobs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON as `slaq simulate` does, and nothing else.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=picture_path,
    default="slaq-demo.png",
    show_default=True,
    help="Where to draw it: .png, .svg or .pdf.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=output_path,
    default="slaq-demo.html",
    show_default=True,
    help="Where to write the HTML page.",
)
def command(jobs: int, seed: int, as_json: bool, plot: Path, report: Path) -> None:
    """See slaq and fair sharing train the same jobs, side by side.

    Jobs shaped like nine common algorithms arrive at a simulated cluster of 640 units. They run once under
    fair sharing, once under slaq's own policy, and once under one that knows every loss curve in advance,
    which shows how much there is to win at all.
    """
    import numpy as np

    from slaq.bootstrap import FORECASTERS
    from slaq.cli.comparison import Cluster, compare
    from slaq.cli.description import describe
    from slaq.simulation.generator import generate

    workload = generate(jobs, np.random.default_rng(seed))
    cluster = Cluster(capacity=CAPACITY, epoch_seconds=EPOCH_SECONDS, forecaster=FORECASTERS[0])
    comparison = compare(workload, POLICIES, cluster)
    summaries = {policy: run.outcome.as_json() for policy, run in comparison.runs.items()}
    if as_json:
        click.echo(comparison.as_json())
    else:
        comparison.print_table()
        click.echo(f"\n{reading(summaries)}\n")
    comparison.write_plot(plot)
    facts = {
        **describe(workload).facts(CAPACITY),
        "capacity": f"{CAPACITY} units",
        "epoch": f"{EPOCH_SECONDS:g} s",
    }
    title = f"slaq and fair sharing train the same {jobs:,} jobs"
    comparison.write_report(
        report, title=title, facts=facts, command=f"slaq demo --jobs {jobs} --seed {seed}"
    )


def reading(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what the numbers say, in two sentences."""
    from slaq.reports.measures import TIME_TO_90

    fair, slaq, best = (TIME_TO_90.value(summaries[policy]) for policy in POLICIES)
    shown = {policy: TIME_TO_90.text(summaries[policy]) for policy in POLICIES}
    if math.isnan(fair + slaq):
        return "No job reached 90% of its loss reduction. Try more jobs, or another seed."
    change = round(100.0 * (slaq - fair) / fair)
    compared = f"{abs(change)}% {'sooner than' if change < 0 else 'later than'}" if change else "as soon as"
    first = (
        f"Under slaq a job makes 90% of its loss reduction in {shown['total-quality']} on average, "
        f"{compared} under fair sharing ({shown['fair']})."
    )
    known = f"A scheduler that knew every loss curve in advance would take {shown['clairvoyant']}"
    if best < fair and slaq < fair:
        won = 100.0 * (fair - slaq) / (fair - best)
        return f"{first} {known}, so slaq's forecasts win {won:.0f}% of what there is to win."
    return f"{first} {known}."
