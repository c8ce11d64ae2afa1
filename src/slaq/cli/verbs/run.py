"""`slaq run`: trains the jobs of a file on this machine, and keeps their models."""

import json
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.bootstrap import jobs_vocabulary, live_policy_names
from slaq.cli.display.outputs import load_matplotlib, page_path
from slaq.cli.display.say import say
from slaq.cli.input.option_types import click_option
from slaq.jobs.options import CLUSTER

if TYPE_CHECKING:
    from slaq.cli.batch import Batch, Entry
    from slaq.cluster import Cluster
    from slaq.config import ClusterTable, JobsFile
    from slaq.core.outcome import Outcome
    from slaq.spark import SparkCluster

USUAL_POLICY, USUAL_EPOCH_SECONDS = "total-quality", CLUSTER.options["epoch_seconds"].default
#: Where results go unless told otherwise.
RESULTS = Path("slaq-results")
#: Characters of a terminal below which the last table has fewer columns.
NARROW = 120


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--policy", type=click.Choice(live_policy_names()), help="Who gets the cores.  [default: total-quality]"
)
@click_option(CLUSTER.options["cores"])
@click.option("--master", help='The Spark master, for files with engine = "spark".  [default: local[*]]')
@click_option(CLUSTER.options["epoch_seconds"])
@click_option(CLUSTER.options["concurrent"])
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for models, losses and logs.  [default: slaq-results/NAME-1, -2, ...]",
)
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    callback=page_path,
    help="Write the course of it all into one HTML page.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout, and no table.")
@click.option("--check", is_flag=True, help="Check the file and start nothing.")
@click.option("--quiet", is_flag=True, help="Show nothing while jobs run.")
@click.pass_context
def command(
    ctx: click.Context,
    file: Path,
    policy: str | None,
    cores: int | None,
    master: str | None,
    epoch_seconds: float | None,
    concurrent: int | None,
    results: Path | None,
    report: Path | None,
    as_json: bool,
    check: bool,
    quiet: bool,
) -> None:
    """Train the jobs in FILE, a TOML file, on this machine's cores, and keep their models.

    Options win over the [cluster] table of the file. A file with mistakes starts nothing: all of them are
    told, each with its line and what to write instead. Ctrl-C stops all jobs and keeps what they have done;
    a second one ends everything at once. The exit status is 0 when all jobs completed, 1 when one failed or
    the file has mistakes, 130 after Ctrl-C.

    \b
    slaq run jobs.toml --check
    slaq run jobs.toml --policy fair --cores 2 --report report.html
    """
    from slaq.config import read_jobs_file

    jobs_file = read_jobs_file(file, jobs_vocabulary())
    on_spark = jobs_file.cluster.engine == "spark"
    if master is not None and not on_spark:
        raise click.UsageError(
            '--master is for Spark; add engine = "spark" to the [cluster] table of the file'
        )
    if cores is not None and on_spark:
        raise click.UsageError("--cores is for the local engine; give --master 'local[8]'")
    if check:
        _tell_sound(jobs_file, as_json=as_json)
        return
    said = replace(
        jobs_file.cluster,
        policy=policy or jobs_file.cluster.policy or USUAL_POLICY,
        cores=cores or jobs_file.cluster.cores,
        master=master or jobs_file.cluster.master,
        epoch_seconds=epoch_seconds or jobs_file.cluster.epoch_seconds or USUAL_EPOCH_SECONDS,
        concurrent=concurrent or jobs_file.cluster.concurrent,
        results=results or jobs_file.cluster.results or _fresh_folder(file),
        report=report or jobs_file.cluster.report,
    )
    if said.report is not None:
        load_matplotlib()  # before the jobs run, not after
    status = _run(jobs_file, said, as_json=as_json, quiet=quiet)
    if status:
        ctx.exit(status)


def _tell_sound(jobs_file: "JobsFile", *, as_json: bool) -> None:
    if as_json:
        jobs = [{"id": job.name, "algorithm": job.kind, "arrival": job.arrival} for job in jobs_file.jobs]
        say(json.dumps({"file": str(jobs_file.path), "jobs": jobs}, indent=2))
    else:
        say(f"{jobs_file.path}: {_jobs(len(jobs_file.jobs))}, no mistakes")


def _fresh_folder(file: Path) -> Path:
    """Make a folder for results that was not there; two batches that start together get one each."""
    RESULTS.mkdir(exist_ok=True)
    for number in count(1):
        folder = RESULTS / f"{file.stem}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("counting never ends")


def _run(jobs_file: "JobsFile", said: "ClusterTable", *, as_json: bool, quiet: bool) -> int:
    """Run the batch, tell how it went, and return the exit status."""
    from slaq.cli.batch import Batch
    from slaq.cli.display.live import view
    from slaq.cli.interrupts import STATUS, Interrupts

    # Without a handler, Python would print warnings into the table; what matters of them is shown there.
    logging.getLogger("slaq").addHandler(logging.NullHandler())
    assert said.results is not None
    assert said.policy is not None
    assert said.epoch_seconds is not None
    farewell = f"slaq: stopped at once; what had ended by then is in {said.results}"
    with Interrupts(farewell) as interrupts, opened(said) as cluster:
        heading = _heading(jobs_file, cluster)
        batch = Batch(jobs_file.jobs, cluster)
        with view(heading, quiet=quiet) as shown:
            batch.run(interrupts, shown.show)
    outcome = _outcome(cluster, said)
    summary = _summary(jobs_file, said, batch, cluster, outcome, interrupted=interrupts.count > 0)
    text = json.dumps(summary, indent=2, allow_nan=False)
    (said.results / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    if as_json:
        say(text)
    else:
        _print_table(batch)
        _tell_best(batch)
    if said.report is not None:
        _write_report(jobs_file, said, cluster, outcome)
    _tell_end(batch, said.results, interrupted=interrupts.count > 0)
    if interrupts.count:
        return STATUS
    return 1 if any(entry.state != "completed" for entry in batch.entries) else 0


@contextmanager
def opened(said: "ClusterTable") -> "Iterator[Cluster | SparkCluster]":
    """A cluster on the engine that was asked for, which ends with the block, jobs and all."""
    with ExitStack() as stack:
        cluster = _on_spark(said, stack) if said.engine == "spark" else _on_this_machine(said)
        stack.callback(cluster.shutdown, cancel=True)
        yield cluster


def _on_this_machine(said: "ClusterTable") -> "Cluster":
    from slaq.cluster import Cluster

    return Cluster(
        cores=said.cores,
        policy=said.policy or USUAL_POLICY,
        epoch_seconds=said.epoch_seconds or USUAL_EPOCH_SECONDS,
        concurrent=said.concurrent,
        directory=said.results,
        units_per_core=said.units_per_core,
        engine=said.engine or "local",
    )


def _on_spark(said: "ClusterTable", stack: ExitStack) -> "SparkCluster":
    from slaq.spark import SparkCluster, session

    spark = session(said.master or "local[*]", name="slaq run")
    stack.callback(spark.stop)
    return SparkCluster(
        spark,
        said.policy or USUAL_POLICY,
        epoch_seconds=said.epoch_seconds or USUAL_EPOCH_SECONDS,
        concurrent=said.concurrent,
        directory=said.results,
        units_per_slot=said.units_per_core,
    )


def _heading(jobs_file: "JobsFile", cluster: "Cluster | SparkCluster") -> str:
    word = "slot" if hasattr(cluster, "slots") else "core"
    cores = f"{_cores(cluster)} {word}{'' if _cores(cluster) == 1 else 's'}"
    return f"{_jobs(len(jobs_file.jobs))} on {cores}, {cluster.policy}"


def _cores(cluster: "Cluster | SparkCluster") -> int:
    """Return how many tasks it can run at once."""
    from slaq.cluster import Cluster

    return cluster.cores if isinstance(cluster, Cluster) else round(cluster.slots)


def _jobs(number: int) -> str:
    return f"{number} {'job' if number == 1 else 'jobs'}"


def _outcome(cluster: "Cluster | SparkCluster", said: "ClusterTable") -> "Outcome":
    from slaq.core.outcome import JobCurve, measure

    history = cluster.history
    curves = [JobCurve.of(spec, history.events(spec.id)) for spec in history.jobs()]
    assert said.epoch_seconds is not None
    return measure(cluster.policy, curves, history.decisions(), said.epoch_seconds)


def _summary(
    jobs_file: "JobsFile",
    said: "ClusterTable",
    batch: "Batch",
    cluster: "Cluster | SparkCluster",
    outcome: "Outcome",
    *,
    interrupted: bool,
) -> dict[str, Any]:
    """Return the documented object."""
    return {
        "file": str(jobs_file.path),
        "engine": said.engine or "local",
        "policy": cluster.policy,
        "cores": _cores(cluster),
        "capacity": cluster.capacity,
        "epoch_seconds": said.epoch_seconds,
        "directory": str(said.results),
        "interrupted": interrupted,
        **outcome.as_json(),
        "jobs": [entry.as_json() for entry in batch.entries],
    }


def _print_table(batch: "Batch") -> None:
    from rich.table import Table

    from slaq.cli.display.job_columns import done
    from slaq.cli.display.live import number
    from slaq.cli.display.terminal import PlainConsole, cell, show

    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "job": lambda facts: facts["id"],
        "algorithm": lambda facts: facts["algorithm"],
        "state": lambda facts: facts["state"],
        "iterations": lambda facts: str(facts["losses"] - 1) if facts["losses"] else "–",
        "first loss": lambda facts: number(facts["first_loss"]),
        "best loss": lambda facts: number(facts["best_loss"]),
        "done": lambda facts: done(facts["reduction"], facts["losses"] - 1),
        "CPU": lambda facts: f"{facts['cpu_seconds']:.1f} s",
        "kept": lambda facts: facts["result"] or "–",
    }
    # Where there is a terminal to fit, long names give way to the numbers.
    console, longest = PlainConsole(), None
    if console.is_terminal:
        if console.width < NARROW:
            del columns["algorithm"], columns["first loss"]
        names = [heading for heading in columns if heading in ("job", "algorithm")]
        longest = max(8, (console.width - 12 * (len(columns) - len(names))) // len(names))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns:
        named = heading in ("job", "algorithm")
        words = named or heading in ("state", "kept")
        table.add_column(
            heading,
            justify="left" if words else "right",
            no_wrap=True,
            max_width=longest if named else None,
        )
    for entry in batch.entries:
        facts = entry.as_json()
        table.add_row(*(cell(column(facts)) for column in columns.values()))
    show(table)


def _tell_best(batch: "Batch") -> None:
    """Say of each group which of its jobs has the best loss."""
    from slaq.cli.display.job_columns import number, parameters
    from slaq.jobs.ranking import winner

    for group in dict.fromkeys(entry.group for entry in batch.entries if entry.group):
        jobs = [entry for entry in batch.entries if entry.group == group]
        best = winner(
            {**entry.as_json(), "diverged": entry.diverged, "maximize": entry.table.options.get("maximize")}
            for entry in jobs
        )
        if best is None:
            say(f"best of {group}: none, because each of its jobs has diverged or has no loss")
            continue
        told = f"{best['id']} ({parameters(best['parameters'])})"
        say(f"best of {group}: {told}, loss {number(best['best_loss'])}")


def _write_report(
    jobs_file: "JobsFile", said: "ClusterTable", cluster: "Cluster | SparkCluster", outcome: "Outcome"
) -> None:
    from slaq.bootstrap import Run
    from slaq.cli.display.comparison import Comparison

    assert said.report is not None
    comparison = Comparison(runs={cluster.policy: Run(outcome=outcome, history=cluster.history)})
    kinds = Counter(job.kind for job in jobs_file.jobs)
    facts = {
        "file": str(jobs_file.path),
        "jobs": f"{len(jobs_file.jobs)}: " + ", ".join(f"{kind} {often}" for kind, often in kinds.items()),
        ("slots" if said.engine == "spark" else "cores"): str(_cores(cluster)),
        "capacity": f"{cluster.capacity:g} cores",
        "epoch": f"{said.epoch_seconds:g} s",
        "results": str(said.results),
    }
    words = ["slaq", "run", str(jobs_file.path), "--policy", cluster.policy]
    words += (
        ["--master", said.master or "local[*]"]
        if said.engine == "spark"
        else ["--cores", str(_cores(cluster))]
    )
    words += ["--epoch-seconds", f"{said.epoch_seconds:g}"]
    title = f"{_jobs(len(jobs_file.jobs))} of {jobs_file.path.name} under {cluster.policy}"
    comparison.write_report(said.report, title=title, facts=facts, command=shlex.join(words))


def _tell_end(batch: "Batch", results: Path, *, interrupted: bool) -> None:
    """Say on stderr what was kept where, and why jobs failed."""
    for entry in batch.entries:
        if entry.state in ("failed", "diverged"):
            say(f"slaq: job {entry.table.name!r} {entry.state}: {_last_line(entry)}", err=True)
    for entry in batch.entries:
        if entry.kept is not None and entry.kept.problem:
            say(f"slaq: job {entry.table.name!r}: {entry.kept.problem}", err=True)
    if interrupted:
        done = sum(entry.state == "completed" for entry in batch.entries)
        say(f"slaq: stopped; {done} of {_jobs(len(batch.entries))} had completed", err=True)
        for entry in batch.entries:
            if entry.state == "cancelled":
                kept = "nothing" if entry.kept is None else entry.kept.text
                say(f"  kept of {entry.table.name}: {kept}", err=True)
    say(f"results: {results}", err=True)


def _last_line(entry: "Entry") -> str:
    from slaq.cli.display.job_columns import in_short

    log = "" if entry.job is None else f" (log: {entry.job.directory / 'log.txt'})"
    return (in_short(entry.reason).strip() or "it gave no reason") + log
