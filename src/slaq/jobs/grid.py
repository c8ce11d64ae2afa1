"""Grids of parameters: the combinations that a grid stands for, and commands in which {name} stands for a value."""

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeVar

from slaq.core.errors import GridError

#: Jobs that the grids of one command, or of one jobs file, may stand for.
MOST_JOBS = 1000
#: Bounds on the parameters that are kept with a job.
MOST_PARAMETERS, LONGEST_VALUE = 100, 1000
#: Letters of a name that a number is added to.
LONGEST_STEM = 70
NAMES = "give up to 80 of the letters A to Z, digits, '_', '.' and '-', the first a letter or '_'"
#: Letters of a name that is refused that are shown.
LONGEST_SHOWN = 100
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,79}")

#: A parameter as it is kept with a job.
Kept = str | int | float | bool
T = TypeVar("T")

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def combinations(choices: Mapping[str, Sequence[T]]) -> list[dict[str, T]]:
    """Return every combination of the values once, those of the last parameter changing first."""
    for name, values in choices.items():
        if not PARAMETER.fullmatch(name):
            raise GridError(f"a parameter cannot be called {name[:LONGEST_SHOWN]!r}", NAMES)
        if not values:
            raise GridError(f"the grid of {name} has no value", f"give some, as in {name}=0.1,0.01")
        twice = next((shown for shown, often in Counter(map(repr, values)).items() if often > 1), None)
        if twice is not None:
            raise GridError(f"the grid of {name} has the value {twice} twice", "give each value once")
    check_count(prod(map(len, choices.values())))
    return [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def check_count(jobs: int) -> None:
    """Raise GridError for more jobs than grids may stand for."""
    if jobs > MOST_JOBS:
        raise GridError(f"the grids stand for {jobs:,} jobs", f"give at most {MOST_JOBS:,}")


def placeholders(words: Sequence[str]) -> set[str]:
    """Return the parameters that a command names; raises GridError for a brace that is part of no parameter."""
    return {name for word in words for name in _names_in(word)}


def _names_in(word: str) -> Iterator[str]:
    for match in _BRACES.finditer(word):
        if match[0] in ("{{", "}}"):
            continue
        if match[1] is None or not PARAMETER.fullmatch(match[1]):
            raise GridError(
                f"{match[0]!r} in the word {word!r} names no parameter", "write {{ and }} for braces"
            )
        yield match[1]


def check_placeholders(words: Sequence[str], names: Sequence[str]) -> None:
    """Raise GridError where a command names a parameter that is not given, or does not name one that is."""
    used = placeholders(words)
    for name in sorted(used - set(names)):
        raise not_given(name)
    for name in names:
        if name not in used:
            raise not_used(name)


def not_given(name: str) -> GridError:
    """Return the error of a command that names a parameter which is not given."""
    found = f"the command has {{{name}}}, and there is no parameter {name}"
    return GridError(found, f"give it, or write {{{{{name}}}}} for the text {{{name}}}")


def not_used(name: str) -> GridError:
    """Return the error of a command that does not name a parameter which is given."""
    return GridError(f"the command does not use the parameter {name}", f"write {{{name}}} where it goes")


def filled(words: Sequence[str], parameters: Mapping[str, object]) -> tuple[str, ...]:
    """Return the command with each {name} replaced by the parameter, and {{ and }} by single braces."""

    def value(match: re.Match[str]) -> str:
        return match[0][0] if match[1] is None else str(parameters[match[1]])

    return tuple(_BRACES.sub(value, word) for word in words)


def kept(parameters: Mapping[str, Any]) -> dict[str, Kept]:
    """Return parameters as they are kept with a job: other values than texts and numbers as JSON, long ones cut."""
    named = {name: value for name, value in parameters.items() if PARAMETER.fullmatch(name)}
    return {name: _kept(value) for name, value in list(named.items())[:MOST_PARAMETERS]}


def _kept(value: Any) -> Kept:
    if is_kept(value):
        return value  # type: ignore[no-any-return]
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = "".join(letter for letter in text if letter != "\0" and not "\ud800" <= letter <= "\udfff")
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."


def is_kept(value: object) -> bool:
    """Return whether a value can be kept with a job as it is: a text, a number that JSON has, true or false."""
    if isinstance(value, str):
        sound = not any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value)
        return len(value) <= LONGEST_VALUE and sound
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def typed_value(text: str) -> Any:
    """Return the number, list or other value that TOML reads from a typed text; the text where it reads none."""
    try:
        values = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return values["value"] if set(values) == {"value"} else text


def kept_text(text: str) -> Kept:
    """Return a typed value as it is kept with a job: as a number where it is one that JSON has, else as typed."""
    value = typed_value(text)
    return value if is_kept(value) and not isinstance(value, str) else _kept(text)


def unused_name(base: str, taken: Callable[[str], bool]) -> str:
    """Return the name, or the name with a number, for which `taken` is false; it is asked a few times only."""

    def name(number: int) -> str:
        return base if number == 1 else f"{base[:LONGEST_STEM]}-{number}"

    low, high = 0, 1
    while taken(name(high)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if taken(name(middle)) else (low, middle)
    return name(high)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridJob:
    """One job of a grid."""

    name: str
    group: str
    #: By name, as they are given.
    parameters: Mapping[str, Any]


def grid_jobs(choices: Mapping[str, Sequence[Any]], *, group: str, name: str | None = None) -> list[GridJob]:
    """Return the jobs that a grid stands for, numbered under the given name, else under that of the group."""
    return [
        GridJob(name=f"{(name or group)[:LONGEST_STEM]}-{number}", group=group, parameters=parameters)
        for number, parameters in enumerate(combinations(choices), start=1)
    ]
