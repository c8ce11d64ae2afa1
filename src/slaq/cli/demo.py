"""`slaq demo`: real training jobs on this machine's cores, under fair sharing and under slaq."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.bootstrap import CLAIRVOYANT, POLICIES
from slaq.cli.finite import finite
from slaq.cli.outputs import output_path, picture_path

if TYPE_CHECKING:
    from slaq.cli.demo_jobs import Amount
    from slaq.cli.training import Trained

EPOCH_SECONDS = 0.5


@click.command("demo")
@click.option(
    "--policy",
    "policies",
    type=click.Choice([policy for policy in POLICIES if policy != CLAIRVOYANT]),
    multiple=True,
    default=["fair", "total-quality"],
    show_default=True,
    help="Who gets the cores; repeat it to compare policies side by side.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Where the jobs run: on this machine's cores, or in a Spark application.",
)
@click.option(
    "--master",
    help="The Spark master, such as local[8] or spark://host:7077.  [default: four slots to a core]",
)
@click.option("--jobs", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many jobs.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Another seed, other jobs."
)
@click.option(
    "--over",
    type=click.FloatRange(min=0),
    callback=finite,
    default=60.0,
    show_default=True,
    help="Seconds over which the jobs arrive.",
)
@click.option(
    "--size",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=1.0,
    show_default=True,
    help="How large their data is, relative to the usual.",
)
@click.option("--cores", type=click.IntRange(min=1), help="Cores to use; by default all of them.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with mnist, uci_regression or ap_corpus: train on those instead of made-up data.",
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
def command(
    policies: tuple[str, ...],
    engine: str,
    master: str | None,
    jobs: int,
    seed: int,
    over: float,
    size: float,
    cores: int | None,
    data: Path | None,
    as_json: bool,
    plot: Path,
    report: Path,
) -> None:
    """See slaq and fair sharing train the same jobs, side by side.

    Jobs of nine algorithms, and one plain script, arrive over a minute at a cluster made of this machine's
    cores, and train for real: once under each policy, with the same arrivals and data. With --engine spark
    they are MLlib estimators in one Spark application (pip install slaq[spark]).
    """
    from slaq.cli.comparison import Comparison
    from slaq.cli.demo_jobs import USUAL_CORES, Amount
    from slaq.cli.training import measured
    from slaq.engines.local.engine import cores_here

    if engine == "spark" and data is not None:
        raise click.UsageError("--data is for --engine local; Spark's jobs make up their data")
    if engine == "local" and master is not None:
        raise click.UsageError("--master is for --engine spark; add that")
    cores = cores or cores_here()
    amount = Amount(jobs=jobs, seconds=over, size=size * cores / USUAL_CORES)
    if engine == "spark":
        place = {"Spark": master or f"local[{4 * cores}]"}
        runs = _train_on_spark(policies, amount, seed, place["Spark"])
    else:
        place = {"cores": str(cores)}
        runs = _train_here(policies, amount, seed, data, cores)
    comparison = Comparison(runs=measured(runs, EPOCH_SECONDS))
    if as_json:
        click.echo(comparison.as_json())
    else:
        comparison.print_table()
        click.echo(f"\n{reading({name: run.outcome.as_json() for name, run in comparison.runs.items()})}\n")
    comparison.write_plot(plot)
    title = f"The same {jobs} training jobs under {' and '.join(runs)}"
    typed = f"slaq demo --engine {engine} --jobs {jobs} --seed {seed}"
    comparison.write_report(report, title=title, facts=_facts(amount, place, runs), command=typed)


def _facts(amount: "Amount", place: Mapping[str, str], runs: "Mapping[str, Trained]") -> dict[str, str]:
    """Return what the page says of how the jobs were run, `place` being where."""
    return {
        "jobs": f"{amount.jobs} real training jobs, arriving over {amount.seconds:g} s",
        **place,
        "epoch": f"{EPOCH_SECONDS:g} s",
        "useful CPU time": ", ".join(f"{name} {run.cpu_seconds:.0f} s" for name, run in runs.items()),
    }


def _train_here(
    policies: Sequence[str], amount: "Amount", seed: int, data: Path | None, cores: int
) -> "dict[str, Trained]":
    """Train the same jobs under each policy, on this machine's cores."""
    import numpy as np

    from slaq.cli.demo_jobs import plan, recorded_data
    from slaq.cli.terminal import progress
    from slaq.cli.training import Site, train

    real = {} if data is None else recorded_data(data)
    if data is not None:
        click.echo(f"training on data from {data}: {', '.join(sorted(real)) or 'none found'}", err=True)
    planned = plan(amount, np.random.default_rng(seed), real)
    site = Site(cores=cores, epoch_seconds=EPOCH_SECONDS)
    with progress(stages=len(set(policies))) as begin:
        return {policy: train(policy, planned, site, begin(policy)) for policy in dict.fromkeys(policies)}


def _train_on_spark(
    policies: Sequence[str], amount: "Amount", seed: int, master: str
) -> "dict[str, Trained]":
    """Train the same MLlib jobs under each policy, in one Spark application."""
    import numpy as np

    from slaq.cli.spark_jobs import ROWS, made_up, plan, train, warm_up
    from slaq.cli.terminal import progress
    from slaq.cli.training import Trained
    from slaq.spark import SparkCluster, session

    spark = session(master, name="slaq demo")
    try:
        slots = spark.sparkContext.defaultParallelism
        frame = made_up(spark, max(int(ROWS * amount.size), 200), slots)
        planned = plan(amount.jobs, amount.seconds, np.random.default_rng(seed))
        runs = {}
        with progress(stages=len(set(policies))) as begin:
            with SparkCluster(spark, "fair", epoch_seconds=EPOCH_SECONDS) as cluster:
                warm_up(cluster, planned, frame)
            for policy in dict.fromkeys(policies):
                with SparkCluster(spark, policy, epoch_seconds=EPOCH_SECONDS) as cluster:
                    train(cluster, planned, frame, begin(policy))
                    runs[policy] = Trained.of(cluster)
        return runs
    finally:
        spark.stop()


def reading(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what the numbers say, in a sentence or two."""
    from slaq.reports.measures import TIME_TO_90

    if not {"fair", "total-quality"} <= set(summaries):
        return "Name the policies fair and total-quality to see what slaq is worth here."
    fair, ours = (TIME_TO_90.value(summaries[policy]) for policy in ("fair", "total-quality"))
    change = round(100.0 * (ours - fair) / fair)
    compared = f"{abs(change)}% {'sooner than' if change < 0 else 'later than'}" if change else "as soon as"
    shown = {policy: TIME_TO_90.text(summaries[policy]) for policy in ("fair", "total-quality")}
    return (
        f"Under slaq a job makes 90% of its loss reduction in {shown['total-quality']} on average, {compared} "
        f"under fair sharing ({shown['fair']}). Its last percents come later: others are worth more by then."
    )
