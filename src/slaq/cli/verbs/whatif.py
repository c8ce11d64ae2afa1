"""`slaq whatif`: simulates the present jobs under another policy or capacity."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from slaq.cli.display.job_columns import number
from slaq.cli.display.say import say
from slaq.cli.display.spans import SPAN, span
from slaq.cli.input.connection_options import JSON, connects, print_json

if TYPE_CHECKING:
    from slaq.client import Client

#: The totals that are compared, and how each is formatted.
TOTALS = (
    ("mean normalised loss", "mean_normalised_loss", number),
    ("jobs at 90%", "made_90", str),
    ("jobs at 95%", "made_95", str),
    ("mean time to 90%", "mean_seconds_to_90", lambda value: "–" if value is None else span(value)),
    ("mean time to 95%", "mean_seconds_to_95", lambda value: "–" if value is None else span(value)),
    ("deadlines made", "deadlines_made", str),
)


@click.command("whatif")
@click.option("--policy", metavar="NAME", help="Another policy.  [default: the present one]")
@click.option(
    "--cores", type=click.IntRange(min=1), help="Another number of cores.  [default: the present one]"
)
@click.option(
    "--horizon", type=SPAN, default=3600.0, metavar="DURATION", help="How far to look ahead.  [default: 1h]"
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Draw random curves from the forecasts, with this seed, instead of the expected curves.",
)
@JSON
@connects
def command(
    client: "Client", policy: str | None, cores: int | None, horizon: float, seed: int | None, as_json: bool
) -> None:
    """Simulate the present jobs under the present settings and under another policy or capacity.

    The simulator uses the scheduler of the service and the jobs in their present state: their loss curves, the
    cost of their iterations, their remaining iterations, and the queue. The jobs themselves are not affected.

    \b
    slaq whatif --policy fair
    slaq whatif --cores 16 --horizon 30m
    """
    found = client.whatif(policy=policy, cores=cores, horizon=horizon, seed=seed)
    if as_json:
        print_json(found)
    else:
        _print_tables(found["replays"])


def _print_tables(replays: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from slaq.cli.display.terminal import cell, show

    jobs = Table(box=None, pad_edge=False, header_style="bold")
    jobs.add_column("job", no_wrap=True)
    for what in ("90% in", "95% in", "done by then"):
        for replay in replays:
            jobs.add_column(f"{what}\n{_label(replay, replays[0])}", justify="right")
    for rows in zip(*(replay["jobs"] for replay in replays), strict=True):
        cells = [
            *(_ahead(row["seconds_to_90"], row) for row in rows),
            *(_ahead(row["seconds_to_95"], row) for row in rows),
            *(f"{100 * row['reduction']:.0f}%" for row in rows),
        ]
        jobs.add_row(cell(rows[0]["id"]), *cells)
    if jobs.row_count:
        show(jobs)
        say()
    totals = Table(box=None, pad_edge=False, header_style="bold")
    totals.add_column(f"within {span(replays[0]['horizon'])}")
    for replay in replays:
        totals.add_column(replay["name"], justify="right")
    for name, key, text in TOTALS:
        if key != "deadlines_made" or replays[0]["deadlines"]:
            totals.add_row(name, *(text(replay[key]) for replay in replays))
    show(totals)


def _label(replay: dict[str, Any], present: dict[str, Any]) -> str:
    """Return a short label: how a replay differs from the present settings."""
    differs = [str(replay["policy"])] if replay["policy"] != present["policy"] else []
    differs += [f"{replay['cores']:g} cores"] if replay["cores"] != present["cores"] else []
    return ", ".join(differs) or ("as now" if replay is present else "the same")


def _ahead(seconds: float | None, row: dict[str, Any]) -> str:
    if seconds is None:
        return "later" if row["seconds_to_end"] is None else "ends before"
    return "done" if seconds == 0 else span(seconds)
