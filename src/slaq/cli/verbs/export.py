"""`slaq export`: writes the losses and parameters of jobs as CSV or Parquet."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.outputs import announce, output_path
from slaq.cli.display.say import say
from slaq.cli.input.connection_options import connects
from slaq.cli.input.job_selection import JOBS_OR_GROUP, complete_groups, jobs_of
from slaq.cli.verbs.ls import STATES
from slaq.core.extras import needs

if TYPE_CHECKING:
    from slaq.client import Client

#: Formats by the end of a file's name.
SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}


@click.command("export")
@JOBS_OR_GROUP
@click.option("--group", metavar="NAME", shell_complete=complete_groups, help="The jobs of this group.")
@click.option("--tag", help="The jobs with this tag.")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True, help="Only jobs in this state; repeatable."
)
@click.option("--user", metavar="NAME", help="Only jobs of this user.")
@click.option("--all", "-a", "everything", is_flag=True, help="All jobs in the store that you may see.")
@click.option(
    "--what",
    type=click.Choice(("losses", "jobs")),
    default="losses",
    show_default=True,
    help="A row for each loss, or a row for each job.",
)
@click.option(
    "--output",
    "-o",
    "file",
    type=click.Path(path_type=Path),
    callback=output_path,
    metavar="FILE",
    help="The file to write; its name ends in .csv or .parquet.  [default: CSV on stdout]",
)
@click.option(
    "--format", "form", type=click.Choice(("csv", "parquet")), help="The format, whatever the file is called."
)
@click.option("--force", is_flag=True, help="Replace FILE where it exists.")
@connects
def command(
    client: "Client",
    jobs: tuple[str, ...],
    group: str | None,
    tag: str | None,
    states: tuple[str, ...],
    user: str | None,
    everything: bool,
    what: str,
    file: Path | None,
    form: str | None,
    force: bool,
) -> None:
    """Write the losses of each JOB, or of the jobs that the options choose, with their parameters.

    A file is replaced as a whole or not at all, and read from the service piece by piece: the number of losses
    takes no memory.

    \b
    slaq export --group lr -o lr.csv
    slaq export --all --state completed --what jobs > jobs.csv
    slaq export net -o net.parquet
    """
    chosen: dict[str, Any] = {"group": group, "tag": tag, "states": states or None, "owner": user}
    given = any(value is not None for value in chosen.values()) or everything
    if jobs and given:
        raise click.UsageError("JOB excludes the options that choose jobs; give only one of them")
    if not jobs and not given:
        raise click.UsageError("say which jobs: JOB, --group, --tag, --state, --user or --all")
    pieces = _pieces_of(_format(file, form))
    if file is not None and file.exists() and not force:
        raise click.ClickException(f"{file} exists already; name another file, or give --force")
    found = [client.show_job(job) for job in jobs] if jobs else client.list_jobs(**chosen)
    if not found and group is not None:
        jobs_of(client, group, user)
    if not found:
        raise click.ClickException("no job is as these options say; `slaq ls --all` lists those there are")
    _write(pieces(*_table(client, found, what)), file)


def _format(file: Path | None, form: str | None) -> str:
    """Return the format to write."""
    if file is None:
        if form == "parquet":
            raise click.UsageError("Parquet is not written to stdout; name a file with --output")
        return "csv"
    if form is None and file.suffix.lower() not in SUFFIXES:
        raise click.UsageError(
            f"the name {str(file)!r} does not end in .csv, .parquet or .pq; give --format too"
        )
    return form or SUFFIXES[file.suffix.lower()]


def _pieces_of(form: str) -> Callable[..., Iterator[bytes]]:
    """Return the writer of a format; raises MissingExtraError where its library is not installed."""
    from slaq.cli.display.tabular import csv_pieces, parquet_pieces

    if form == "csv":
        return csv_pieces
    with needs("parquet"):
        import pyarrow  # noqa: F401
    return parquet_pieces


def _table(client: "Client", jobs: Sequence[Mapping[str, Any]], what: str) -> tuple[Sequence[Any], Any]:
    """Return the columns and the rows."""
    from slaq.cli.display.job_rows import job_fields, loss_fields

    if what == "jobs":
        return job_fields(jobs), jobs
    losses = ((job, one) for job in jobs if job["iteration"] >= 0 for one in client.observations(job["id"]))
    return loss_fields(jobs), losses


def _write(pieces: Iterator[bytes], file: Path | None) -> None:
    from slaq.durable import write_durably

    if file is None:
        for piece in pieces:
            say(piece.decode(), nl=False)
        return
    # As any program makes files; only this process is affected, and it has no other thread that makes any.
    mask = os.umask(0)
    os.umask(mask)
    write_durably(file, pieces, mode=0o666 & ~mask)
    announce("export", file)
