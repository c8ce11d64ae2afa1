"""Options of jobs, and limits of users, at the command line: made from their one definition."""

from collections.abc import Callable
from typing import Any

import click
from typing_extensions import override

from slaq.core.errors import JobOptionError
from slaq.jobs.options import Option

#: What lifts a limit.
NONE = "none"


class OptionValue(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.5 only
    """A value of an option, refused with the sentence that every other way of giving it has."""

    def __init__(self, option: Option, *, none: bool = False) -> None:
        self.name = option.name
        self._option = option
        #: Whether the word `none` is taken too, and returned as it is.
        self._none = none

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._none and value == NONE:
            return NONE
        try:
            return self._option.read(self._option.type.parse(value) if isinstance(value, str) else value)
        except JobOptionError as error:
            self.fail(str(error), param, ctx)


def click_option(option: Option) -> Callable[[Any], Any]:
    """Return the option of the command line; None, or an empty tuple, stands for one that is not given."""
    if not option.type.metavar:
        flags = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        return click.option(flags, default=None, help=option.described)
    return click.option(
        option.flag,
        *option.also,
        option.name,
        # Several of them are one value, which is checked once all are there.
        type=str if option.type.repeatable else OptionValue(option),
        multiple=option.type.repeatable,
        metavar=option.type.metavar,
        help=option.described,
    )
