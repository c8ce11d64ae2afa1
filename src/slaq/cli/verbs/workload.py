"""`slaq workload`: generates, describes and checks workload files."""

from pathlib import Path

import click
import numpy as np

from slaq.cli.display.say import say
from slaq.cli.input.finite import finite
from slaq.simulation.generator import ALGORITHMS, CurveShape, WorkloadShape, generate
from slaq.simulation.recorded import Selection, read_archive, read_losses, sample

USUAL = WorkloadShape()
#: The latest arrival in seconds; below the largest that a workload file may hold.
LATEST = 5e8
POSITIVE = click.FloatRange(min=0, min_open=True, max=1e8)


@click.group("workload")
def command() -> None:
    """Generate, inspect and check workload files: JSON Lines, one job a line."""


@command.command("generate")
@click.option(
    "-o",
    "--output",
    default="-",
    type=click.Path(allow_dash=True),
    help="The file to write.  [default: standard output]",
)
@click.option(
    "--jobs", type=click.IntRange(1, 1_000_000), default=160, show_default=True, help="Number of jobs."
)
@click.option(
    "--mean-arrival",
    type=POSITIVE,
    callback=finite,
    default=USUAL.mean_arrival,
    show_default=True,
    help="Mean seconds between two arrivals.",
)
@click.option(
    "--cpu-seconds",
    type=POSITIVE,
    callback=finite,
    default=USUAL.median_cpu_seconds,
    show_default=True,
    help="Median CPU seconds of a whole job.",
)
@click.option(
    "--sigma",
    type=click.FloatRange(0, 3),
    callback=finite,
    default=USUAL.sigma,
    show_default=True,
    help="Standard deviation of the logarithm of the jobs' CPU seconds.",
)
@click.option(
    "--max-cores",
    type=click.IntRange(1, 1_000_000_000),
    default=USUAL.max_cores,
    show_default=True,
    help="The most cores that any job can use; other jobs can use 1/2, 1/4 or 1/8 of them.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the random jobs; the same seed gives the same file.",
)
@click.option(
    "--algorithm",
    "algorithms",
    type=click.Choice(list(ALGORITHMS)),
    multiple=True,
    help="Only curves with the shape of this algorithm's; repeatable.",
)
@click.option(
    "--curves",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Use recorded curves: a folder of .txt or .csv files, one curve each, or an archive of arrays.",
)
@click.option(
    "--family", "families", multiple=True, metavar="PATTERN", help="Only these families of an archive."
)
@click.option(
    "--source", "sources", multiple=True, metavar="PATTERN", help="Only these sources of an archive."
)
def generate_command(
    output: str,
    jobs: int,
    mean_arrival: float,
    cpu_seconds: float,
    sigma: float,
    max_cores: int,
    seed: int,
    algorithms: tuple[str, ...],
    curves: Path | None,
    families: tuple[str, ...],
    sources: tuple[str, ...],
) -> None:
    """Generate a workload: jobs with random arrivals, random costs and loss curves.

    \b
    slaq workload generate -o jobs.jsonl --jobs 200 --seed 7
    slaq workload generate --curves runs/ | slaq simulate -
    """
    if curves is not None and algorithms:
        raise click.UsageError(
            "--algorithm generates curves and --curves takes recorded ones; give only one of them"
        )
    if curves is None and (families or sources):
        raise click.UsageError(
            "--family and --source select recorded curves; give their folder with --curves DIR"
        )

    if jobs * mean_arrival > LATEST:
        raise click.UsageError(
            f"{jobs:,} jobs {mean_arrival:g} s apart take more than {LATEST:g} s to arrive"
        )
    rng = np.random.default_rng(seed)
    shape = WorkloadShape(
        mean_arrival=mean_arrival, median_cpu_seconds=cpu_seconds, sigma=sigma, max_cores=max_cores
    )
    if curves is None:
        workload = generate(jobs, rng, shape, algorithms or None)
    else:
        workload = sample(_recorded(curves, families, sources), jobs, rng, shape)
    workload.write(output)
    if output != "-":
        say(f"workload: {output} ({len(workload):,} jobs)", err=True)


def _recorded(folder: Path, families: tuple[str, ...], sources: tuple[str, ...]) -> tuple[CurveShape, ...]:
    """Return the curves in the folder: an archive, or one text file per curve."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".txt", ".csv"))
    if (folder / "index.csv.gz").exists() or not files:
        return read_archive(folder, Selection(families=families or ("*",), sources=sources or ("*",)))
    if families or sources:
        raise click.UsageError(
            f"--family and --source select from an archive, and {folder} holds plain files; leave them out"
        )
    return tuple(read_losses(path) for path in files)


@command.command("inspect")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--capacity",
    type=click.IntRange(min=1),
    default=640,
    show_default=True,
    help="Cores to compute the offered load for.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def inspect_command(file: str, capacity: int, as_json: bool) -> None:
    """Check FILE, a workload or - for standard input, and summarise it.

    For a mistake, the message gives the line and what to write instead, and the exit status is 1.

    \b
    JSON: jobs, other (jobs that report no loss), first_arrival, last_arrival
    (seconds), arrivals (jobs in each of 40 equal parts of that time),
    iterations and cpu_seconds_per_iteration (min, median, max; null without
    any), cpu_seconds (of all jobs), capacity, load (CPU seconds arriving per
    second and unit; null when all jobs arrive at once), algorithms (jobs by
    algorithm).
    """
    import json

    from slaq.cli.display.workload_summary import describe
    from slaq.simulation.workload import Workload

    description = describe(Workload.read(file))
    if as_json:
        say(json.dumps(description.as_json(capacity), indent=2, allow_nan=False))
        return

    from rich.table import Table
    from rich.text import Text

    from slaq.cli.display.terminal import show

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    facts = description.facts(capacity)
    facts["arrivals"] += f"  {description.sparkline()}"
    for name, text in facts.items():
        table.add_row(name, Text(text))
    show(table)
