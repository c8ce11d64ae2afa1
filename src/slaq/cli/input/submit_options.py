"""The options of `slaq submit`: those of a job, what says what the job runs, and where the service is."""

from collections.abc import Callable
from typing import Any

import click

from slaq.cli.input.connection_options import TOKEN, URL
from slaq.cli.input.option_types import click_option
from slaq.jobs.options import SERVICE

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    *map(click_option, SERVICE.options.values()),
    click.option(
        "--external", is_flag=True, help="The job runs elsewhere and reports its losses; start nothing."
    ),
    click.option("--data", metavar="FILE", help="The data of a program."),
    click.option("--target", metavar="COLUMN", help="The column of --data that holds the targets."),
    click.option(
        "--grid",
        "grids",
        multiple=True,
        metavar="NAME=VALUE,...",
        help="Submit a job for each value of a parameter, and for each combination of several; repeatable.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the jobs of a grid, and submit nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print the jobs as a JSON list, and no ids."),
    URL,
    TOKEN,
)


def submit_options(function: Any) -> Any:
    """Give a verb all of them, in this order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
