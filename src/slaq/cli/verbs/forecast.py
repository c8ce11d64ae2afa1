"""`slaq forecast`: predicts the next losses of one curve, with intervals."""

from collections.abc import Sequence
from pathlib import Path

import click

from slaq.cli.display.outputs import announce, picture_path
from slaq.cli.display.say import say
from slaq.cli.input.horizons import parse_horizons
from slaq.cli.input.losses import read_losses
from slaq.core.forecast import METHODS, Forecast, forecast

#: The most ignored losses that are listed by their place.
NAMED = 8


@click.command("forecast")
@click.argument("file", default="-", type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--horizon",
    "horizons",
    metavar="N|FIRST:LAST",
    multiple=True,
    default=["10"],
    show_default=True,
    callback=parse_horizons,
    help="Iterations ahead: a number, or a range such as 1:20 or 10:200:10; repeatable.",
)
@click.option(
    "--method",
    type=click.Choice(list(METHODS)),
    default="slaq",
    show_default=True,
    help="slaq's own forecast, one of the SLAQ paper's two predictors, or the last loss.",
)
@click.option("--column", metavar="NAME", help="The column of a CSV file, or the key of JSON Lines, to read.")
@click.option(
    "--bend",
    "bends",
    type=click.IntRange(min=0),
    multiple=True,
    help="Index of the first loss, counted from 0, under a new learning rate; repeatable.",
)
@click.option("--maximize", is_flag=True, help="The numbers should rise, as an accuracy does.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    callback=picture_path,
    help="Draw the forecast into this file: .png, .svg or .pdf.",
)
def command(
    file: str,
    horizons: list[int],
    method: str,
    column: str | None,
    bends: tuple[int, ...],
    maximize: bool,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Forecast the next losses from those in FILE, or on standard input.

    FILE holds numbers separated by blanks, commas or line ends; the first is the loss before the first
    iteration. Or FILE is CSV with a header, or JSON Lines, and --column names the loss. Each forecast comes
    with an interval that should contain the true loss in 80 of 100 cases.

    \b
    slaq forecast losses.txt --horizon 50
    grep -o 'loss=[0-9.]*' train.log | cut -d= -f2 | slaq forecast --horizon 1:20
    slaq forecast history.csv --column val_loss --plot forecast.png

    \b
    JSON: method, losses (how many were read), last (the last finite one),
    horizons, mean, low, high (arrays of equal length),
    ignored (places of losses that are not finite), restarts (places where
    the curve bends); places count from 0.
    """
    losses = read_losses(file, column)
    if any(place >= len(losses) for place in bends):
        raise click.UsageError(
            f"--bend is {max(bends)}, and there are {len(losses)} losses; give 0 to {len(losses) - 1}"
        )
    result = forecast(losses, horizons, announced=bends, method=method, maximize=maximize)
    _tell_ignored(result.ignored, len(losses))
    if plot is not None:
        from slaq.reports.charts import forecast_picture, save

        save(forecast_picture(losses, result), plot)
        announce("picture", plot)
    if as_json:
        say(_json(losses, result, method))
    else:
        _print_table(losses, result)


def _tell_ignored(ignored: Sequence[int], count: int) -> None:
    if not ignored:
        return
    places = ", ".join(str(place) for place in ignored[:NAMED])
    more = f" and {len(ignored) - NAMED} more" if len(ignored) > NAMED else ""
    say(
        f"slaq: ignored {len(ignored)} of {count} losses that are not finite: index {places}{more}, counted from 0",
        err=True,
    )


def _json(losses: Sequence[float], result: Forecast, method: str) -> str:
    import json

    return json.dumps(
        {
            "method": method,
            "losses": len(losses),
            "last": _last(losses, result),
            "horizons": [int(horizon) for horizon in result.horizons],
            "mean": result.mean.tolist(),
            "low": result.low.tolist(),
            "high": result.high.tolist(),
            "ignored": [int(place) for place in result.ignored],
            "restarts": [int(place) for place in result.restarts],
        },
        allow_nan=False,
    )


def _last(losses: Sequence[float], result: Forecast) -> float:
    ignored = set(result.ignored)
    return next(losses[place] for place in reversed(range(len(losses))) if place not in ignored)


def _print_table(losses: Sequence[float], result: Forecast) -> None:
    from rich.table import Table

    from slaq.cli.display.terminal import show

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("ahead", "iteration", "loss", "80% low", "80% high"):
        table.add_column(heading, justify="right")
    last = len(losses) - 1
    table.add_row("now", str(last), f"{_last(losses, result):.6g}", "", "", style="dim")
    rows = zip(result.horizons, result.mean, result.low, result.high, strict=True)
    for horizon, mean, low, high in rows:
        table.add_row(f"+{horizon}", str(last + int(horizon)), f"{mean:.6g}", f"{low:.6g}", f"{high:.6g}")
    show(table)
