"""`slaq demo`: real training jobs on this machine's cores, under fair sharing and under slaq."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.bootstrap import live_policy_names
from slaq.cli.display.outputs import page_path, picture_path
from slaq.cli.display.say import say
from slaq.cli.input.finite import finite
from slaq.core.errors import MissingExtraError

if TYPE_CHECKING:
    from slaq.cli.demo.jobs import Amount
    from slaq.cli.demo.training import Trained
    from slaq.reports.measures import Measure

EPOCH_SECONDS = 0.5


@click.command("demo")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(live_policy_names()),
    multiple=True,
    default=["fair", "total-quality"],
    show_default=True,
    help="The policy that divides the cores; repeat the option to compare policies.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Run the jobs on this machine's cores, or in a Spark application.",
)
@click.option(
    "--master",
    help="The Spark master, such as local[8] or spark://host:7077.  [default: four slots to a core]",
)
@click.option("--jobs", type=click.IntRange(1, 1000), help="How many jobs.  [default: 30; on Spark 20]")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random jobs."
)
@click.option(
    "--over",
    type=click.FloatRange(min=0),
    callback=finite,
    help="Seconds over which the jobs arrive.  [default: 30; on Spark 60]",
)
@click.option(
    "--size",
    type=click.FloatRange(min=0, min_open=True),
    callback=finite,
    default=1.0,
    show_default=True,
    help="Size of the jobs' data, relative to the default.",
)
@click.option("--cores", type=click.IntRange(min=1), help="Cores to use.  [default: all]")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with mnist, uci_regression or ap_corpus: train on these instead of generated data.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, as `slaq simulate` does, instead of a table."
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=picture_path,
    default="slaq-demo.png",
    show_default=True,
    help="Draw the result into this file: .png, .svg or .pdf.",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=page_path,
    default="slaq-demo.html",
    show_default=True,
    help="Write the result into this HTML page.",
)
def command(
    policies: tuple[str, ...],
    engine: str,
    master: str | None,
    jobs: int | None,
    seed: int,
    over: float | None,
    size: float,
    cores: int | None,
    data: Path | None,
    as_json: bool,
    plot: Path | None,
    report: Path | None,
) -> None:
    """Train the same jobs under fair sharing and under slaq, and compare.

    Jobs of nine algorithms and one plain script arrive within a minute at a cluster of this machine's cores
    and are really trained, once under each policy, with the same arrivals and data. With --engine spark the
    jobs are MLlib estimators in one Spark application (pip install 'slaq[spark]').
    """
    from slaq.cli.demo.training import measured
    from slaq.cli.display.comparison import Comparison
    from slaq.engines.processes import cores_here

    if engine == "spark" and data is not None:
        raise click.UsageError("--data works with --engine local only; the Spark jobs generate their data")
    if engine == "local" and master is not None:
        raise click.UsageError("--master works with --engine spark only; add --engine spark")
    cores = cores or cores_here()
    amount = _amount(engine, jobs, over, size, cores)
    if engine == "spark":
        place = {"Spark": master or f"local[{4 * cores}]"}
        runs = _train_on_spark(policies, amount, seed, place["Spark"])
    else:
        place = {"cores": str(cores)}
        runs = _train_here(policies, amount, seed, data, cores)
    comparison = Comparison(runs=measured(runs, EPOCH_SECONDS))
    if as_json:
        say(comparison.as_json())
    else:
        comparison.print_table()
        say(f"\n{reading({name: run.outcome.as_json() for name, run in comparison.runs.items()})}\n")
    if plot is not None:
        comparison.write_plot(plot)
    if report is not None:
        title = f"The same {amount.jobs} training jobs under {' and '.join(runs)}"
        typed = f"slaq demo --engine {engine} --jobs {amount.jobs} --seed {seed}"
        comparison.write_report(report, title=title, facts=_facts(amount, place, runs), command=typed)
    if plot is None and report is None:
        say(f"no picture and no page: {MissingExtraError('Matplotlib', 'plot')}", err=True)
    if not as_json:
        say(_next_steps(), err=True)


def _amount(engine: str, jobs: int | None, over: float | None, size: float, cores: int) -> "Amount":
    """Return the number of jobs, their time of arrival and their size, with defaults for what was not given."""
    from slaq.cli.demo.jobs import USUAL_AMOUNTS, USUAL_CORES, Amount

    usual = USUAL_AMOUNTS[engine]
    return Amount(
        jobs=usual.jobs if jobs is None else jobs,
        seconds=usual.seconds if over is None else over,
        size=usual.size * size * cores / USUAL_CORES,
    )


def _next_steps() -> str:
    """Return the next commands to try, as this user can type them."""
    slaq = "slaq" if shutil.which("slaq") else sys.argv[0]
    return (
        f"Next: `{slaq} run examples/jobs.toml` trains a batch of jobs from a file; docs/scripts.md puts a script "
        "of yours under slaq, unchanged; README.md lists the rest."
    )


def _facts(amount: "Amount", place: Mapping[str, str], runs: "Mapping[str, Trained]") -> dict[str, str]:
    """Return the facts about the runs that the page lists; `place` describes the engine."""
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

    from slaq.cli.demo.jobs import KINDS, plan, recorded_data, usable_kinds
    from slaq.cli.demo.training import TrainingSite, train
    from slaq.cli.display.terminal import progress

    real = {} if data is None else recorded_data(data)
    if data is not None:
        say(f"training on data from {data}: {', '.join(sorted(real)) or 'none found'}", err=True)
    if usable_kinds() != KINDS:
        say(f"LDA is left out: {MissingExtraError('SciPy', 'scipy')}", err=True)
    order = ", then under ".join(dict.fromkeys(policies))
    say(f"training {amount.jobs} jobs on {cores} cores under {order}", err=True)
    planned = plan(amount, np.random.default_rng(seed), real)
    site = TrainingSite(cores=cores, epoch_seconds=EPOCH_SECONDS)
    with progress(stages=len(set(policies))) as begin:
        return {policy: train(policy, planned, site, begin(policy)) for policy in dict.fromkeys(policies)}


def _train_on_spark(
    policies: Sequence[str], amount: "Amount", seed: int, master: str
) -> "dict[str, Trained]":
    """Train the same MLlib jobs under each policy, in one Spark application."""
    import numpy as np

    from slaq.cli.demo.spark_jobs import ROWS, made_up, plan, train, warm_up
    from slaq.cli.demo.training import Trained
    from slaq.cli.display.terminal import progress
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
    """Return the comparison with fair sharing in two sentences."""
    from slaq.reports.measures import COMPLETION, MAKESPAN, TIME_TO_90

    if not {"fair", "total-quality"} <= set(summaries):
        return "Run the policies fair and total-quality to see what slaq gains here."
    fair, ours = summaries["fair"], summaries["total-quality"]
    return (
        f"Under slaq a job reaches 90% of its loss reduction in {TIME_TO_90.text(ours)} on average, "
        f"{_compared(TIME_TO_90, ours, fair)} under fair sharing ({TIME_TO_90.text(fair)}). "
        f"Whole jobs end {_compared(COMPLETION, ours, fair)} under fair sharing on average, and the last of them "
        f"{_compared(MAKESPAN, ours, fair)} there."
    )


def _compared(measure: "Measure", ours: Mapping[str, Any], fair: Mapping[str, Any]) -> str:
    change = round(100.0 * (measure.value(ours) / measure.value(fair) - 1.0))
    return f"{abs(change)}% {'sooner than' if change < 0 else 'later than'}" if change else "as soon as"
