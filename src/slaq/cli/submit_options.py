"""The options of `slaq submit`: what a job may be told on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from slaq.cli.finite import finite
from slaq.cli.reach import TOKEN, URL
from slaq.cli.spans import SPAN

IF_LOST = ("resume", "restart", "fail")

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--name", help="What to call it.  [default: after what it runs]"),
    click.option(
        "--weight",
        type=click.FloatRange(min=0, min_open=True),
        default=1.0,
        show_default=True,
        callback=finite,
        help="Multiplies what it gains against others.",
    ),
    click.option(
        "--min",
        "min_cores",
        type=click.FloatRange(min=0),
        default=0.0,
        show_default=True,
        callback=finite,
        metavar="CORES",
        help="Cores it holds at all times.",
    ),
    click.option(
        "--max",
        "max_cores",
        type=click.FloatRange(min=0, min_open=True),
        callback=finite,
        metavar="CORES",
        help="Cores beyond which it gets none.  [default: no limit]",
    ),
    click.option(
        "--target-loss",
        type=float,
        callback=finite,
        help="The loss you are content with: its curve is taken to end there.",
    ),
    click.option(
        "--stop-at",
        type=click.FloatRange(min=0, max=1, min_open=True),
        callback=finite,
        metavar="SHARE",
        help="End it once this share of its whole reduction is done, such as 0.95.",
    ),
    click.option(
        "--by",
        type=SPAN,
        help="How soon its target is wanted, such as 10m: --target-loss, else --stop-at, else 95%.",
    ),
    click.option("--max-iterations", type=click.IntRange(min=1), help="End it after so many iterations."),
    click.option("--time-budget", type=SPAN, help="End it after it has run so long, such as 2h."),
    click.option(
        "--max-restarts",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="How often it is run again after it failed.",
    ),
    click.option(
        "--if-lost",
        type=click.Choice(IF_LOST),
        default="resume",
        show_default=True,
        help="When the service was lost while it ran: run it again and go on with its curve, run it "
        "again from the beginning, or let it count as failed.",
    ),
    click.option("--user", metavar="NAME", help="Whose job it is, where an admin submits for someone."),
    click.option("--tag", "tags", multiple=True, help="A word to find it by; repeatable."),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME[=VALUE]",
        help="A variable of its environment; without a value, as it is set here; repeatable.",
    ),
    click.option("--cwd", type=click.Path(path_type=Path), help="Where it runs.  [default: here]"),
    click.option("--loss-pattern", metavar="REGEX", help="Finds its losses in what it prints: one group."),
    click.option("--loss-file", metavar="FILE", help="The file it writes its losses to: CSV or JSON lines."),
    click.option(
        "--loss-column",
        default="loss",
        show_default=True,
        metavar="NAME",
        help="The column, or key, of the loss in that file.",
    ),
    click.option(
        "--other", is_flag=True, help="It is no training: it gets its fair share, whatever it prints."
    ),
    click.option("--external", is_flag=True, help="It runs elsewhere and reports its losses; start nothing."),
    click.option("--data", metavar="FILE", help="The data of a program."),
    click.option("--target", metavar="COLUMN", help="The column of --data that holds the targets."),
    click.option(
        "--param",
        "-p",
        "parameters",
        multiple=True,
        metavar="NAME=VALUE",
        help="A parameter of a program; repeatable.",
    ),
    click.option(
        "--python",
        type=click.Path(path_type=Path),
        help="The interpreter of a program.  [default: the one that runs slaq here]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the jobs as a JSON list, and no ids."),
    URL,
    TOKEN,
)


def submit_options(function: Any) -> Any:
    """Give a verb all of them, in this order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
