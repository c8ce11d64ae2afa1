"""The table of docs/options.md, made from the definition; `python -m slaq.jobs.document` prints it."""

import sys
from collections.abc import Mapping
from typing import Any

from slaq.jobs.options import (
    COMMAND,
    EXTERNAL,
    FIT,
    PROGRAM,
    SERVICE,
    SERVICE_COMMAND,
    SERVICE_PROGRAM,
    SPARK_PROGRAM,
    Option,
    OptionSet,
)

_ANYWHERE: Mapping[str, OptionSet[Any]] = {
    "program": PROGRAM,
    "command": COMMAND,
    "Spark fit": FIT,
    "Spark program": SPARK_PROGRAM,
}
_OF_SERVICE: Mapping[str, OptionSet[Any]] = {
    "program": SERVICE_PROGRAM,
    "command": SERVICE_COMMAND,
    "external job": EXTERNAL,
}


def written() -> str:
    """Return the table: one row for each option."""
    rows = [
        "| Option | Taken by | Default | Give | Meaning |",
        "|---|---|---|---|---|",
        *map(_row, SERVICE.options.values()),
    ]
    return "\n".join(rows) + "\n"


def _row(option: Option) -> str:
    usual = option.usual or f"`{option.default!r}`"
    # A bar would end the cell.
    give = option.type.wanted.replace("|", "\\|")
    return f"| `{option.name}` | {_taken_by(option.name)} | {usual} | {give} | {option.help} |"


def _taken_by(name: str) -> str:
    """Return which jobs take an option, for a person."""
    anywhere = [noun for noun, own in _ANYWHERE.items() if name in own.options]
    of_service = [noun for noun, own in _OF_SERVICE.items() if name in own.options]
    if len(of_service) == len(_OF_SERVICE):
        return "every job" if len(anywhere) == len(_ANYWHERE) else "every job of a service"
    only_there = [f"{noun} of a service" for noun in of_service if noun not in anywhere]
    return ", ".join([*anywhere, *only_there])


if __name__ == "__main__":
    sys.stdout.write(written())
