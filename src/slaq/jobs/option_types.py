"""The types of values that a job's options hold: how each is read, bounded, and described."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from slaq.core.errors import LossSourceError
from slaq.jobs.grid import LONGEST_VALUE, PARAMETER, is_kept
from slaq.jobs.loss_pattern import EXAMPLE, LONGEST_PATTERN, checked_pattern

#: The kernel takes no longer path.
LONGEST_PATH = 4096
#: What texts may hold that are stored, sent and passed to processes: no NUL, and no half of a surrogate pair.
_STORABLE = re.compile(r"[^\x00\ud800-\udfff]*")
#: The same for JSON schema; JSON itself holds no half pairs.
NO_NUL = r"^[^\x00]*$"
#: How much of a long value refusals show.
SHOWN_ITEMS, SHOWN_LETTERS = 10, 80

_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", re.ASCII)
_SPAN_SECONDS = (86400.0, 3600.0, 60.0, 1.0)
_DECIMAL = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(?:([kmgt])(i?))?b?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionType:
    """One type of value. Python, TOML and JSON hold values, which `read` checks; users type texts."""

    #: What to give, for a person: completes the sentence "give ...".
    wanted: str
    #: What stands for the value in the help of the command line; empty for a flag without a value.
    metavar: str
    #: The values that `read` takes, as a JSON schema.
    schema: Mapping[str, Any]
    #: Returns the value as slaq keeps it; raises ValueError for another type, or a value out of range.
    read: Callable[[object], Any]
    #: Returns the value that a text typed at the command line stands for; `read` then checks it.
    parse: Callable[[str], object] = str
    #: Whether the command line takes the option more than once.
    repeatable: bool = False


def number(
    noun: str = "a number", *, above: float | None = None, least: float = -math.inf, most: float
) -> OptionType:
    """A finite number, greater than `above` or from `least` on."""
    if above is None:
        wanted, lower = f"{noun} from {_plain(least)} to {_plain(most)}", {"minimum": least}
    else:
        wanted, lower = (
            f"{noun} above {_plain(above)} and at most {_plain(most)}",
            {"exclusiveMinimum": above},
        )

    def read(value: object) -> float:
        # NaN compares as false, so that it is refused too.
        found = _real(value)
        if not (found >= least and found <= most and (above is None or found > above)):
            raise ValueError(value)
        return found

    return OptionType(
        wanted=wanted,
        metavar=noun.rpartition(" ")[2].upper(),
        schema={"type": "number", **lower, "maximum": most},
        read=read,
        parse=_number_in,
    )


def whole(noun: str = "a whole number", *, least: int, most: int) -> OptionType:
    """A whole number; 3.0 counts as 3, because JSON does not tell them apart."""
    bounded = number(noun, least=least, most=most)

    def read(value: object) -> int:
        found: float = bounded.read(value)
        if not found.is_integer():
            raise ValueError(value)
        return int(found)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return OptionType(wanted=bounded.wanted, metavar="N", schema=schema, read=read, parse=_number_in)


def seconds(*, zero: bool = False, most: float = 1e9) -> OptionType:
    """A span of time in seconds, above 0 or from 0 on; a text may give it in other units, as in 1h30m."""
    bounded = number("seconds", above=None if zero else 0, least=0, most=most)
    text = {"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+(\.\d+)?s?)?$", "minLength": 1}
    return OptionType(
        wanted=f"{bounded.wanted}, or a text such as '90s', '10m' or '1h30m'",
        metavar="DURATION",
        schema={"anyOf": [bounded.schema, text]},
        read=lambda value: bounded.read(seconds_of(value) if isinstance(value, str) else value),
        parse=_number_in,
    )


def size_in_bytes() -> OptionType:
    """A number of bytes; a text may give it in other units, as in 4GB."""
    bounded = whole("bytes", least=1, most=10**15)
    text = {"type": "string", "pattern": r"^\d+(\.\d+)?([kKmMgGtT][iI]?)?[bB]?$"}
    return OptionType(
        wanted=f"{bounded.wanted}, or a text such as '500MB', '4GB' or '4GiB'",
        metavar="SIZE",
        schema={"anyOf": [bounded.schema, text]},
        read=lambda value: bounded.read(bytes_of(value) if isinstance(value, str) else value),
        parse=_number_in,
    )


def text(
    wanted: str, *, metavar: str, longest: int = 1000, pattern: re.Pattern[str] = _STORABLE
) -> OptionType:
    """A text that is not empty and matches a pattern as a whole."""

    def read(value: object) -> str:
        if not (isinstance(value, str) and 0 < len(value) <= longest and pattern.fullmatch(value)):
            raise ValueError(value)
        return str(value)

    schema = {"type": "string", "minLength": 1, "maxLength": longest, "pattern": NO_NUL}
    if pattern is not _STORABLE:
        schema = {"type": "string", "pattern": f"^{pattern.pattern}$"}
    return OptionType(wanted=wanted, metavar=metavar, schema=schema, read=read)


def path(wanted: str = "a path") -> OptionType:
    """The path of a file or folder."""
    plain = text(wanted, metavar="PATH", longest=LONGEST_PATH)

    def read(value: object) -> str:
        found: str = plain.read(os.fspath(value) if isinstance(value, os.PathLike) else value)
        return found

    return OptionType(wanted=wanted, metavar="PATH", schema=plain.schema, read=read)


def choice(names: Sequence[str]) -> OptionType:
    """One of several names."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError(value)
        return str(value)

    return OptionType(
        wanted=" or ".join(filter(None, (", ".join(names[:-1]), names[-1]))),
        metavar="|".join(names),
        schema={"type": "string", "enum": list(names)},
        read=read,
    )


def flag() -> OptionType:
    """Yes or no."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    return OptionType(wanted="true or false", metavar="", schema={"type": "boolean"}, read=read)


def texts(wanted: str, of: OptionType, *, most: int) -> OptionType:
    """A list of texts; at the command line several in one word stand between commas."""

    def read(value: object) -> tuple[str, ...]:
        # Python takes a text for a sequence of letters; here it is a mistake.
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > most:
            raise ValueError(value)
        return tuple(of.read(one) for one in value)

    return OptionType(
        wanted=wanted,
        metavar=f"{of.metavar},...",
        schema={"type": "array", "items": dict(of.schema), "maxItems": most},
        read=read,
        parse=lambda text: text.split(","),
        repeatable=True,
    )


def variables(wanted: str, *, most: int, longest: int) -> OptionType:
    """Variables of an environment by name."""
    name = text("a name", metavar="NAME", pattern=re.compile(r"[^=\x00\ud800-\udfff]+"))

    def read(value: object) -> dict[str, str]:
        if not isinstance(value, Mapping) or len(value) > most:
            raise ValueError(value)
        found = {name.read(key): one for key, one in value.items()}
        if not all(isinstance(one, str) and _STORABLE.fullmatch(one) for one in found.values()):
            raise ValueError(value)
        if sum(len(key) + len(one) for key, one in found.items()) > longest:
            raise ValueError(value)
        return found

    schema = {
        "type": "object",
        "maxProperties": most,
        "patternProperties": {r"^[^=\x00]+$": {"type": "string", "maxLength": longest, "pattern": NO_NUL}},
        "additionalProperties": False,
    }
    return OptionType(
        wanted=wanted, metavar="NAME[=VALUE]", schema=schema, read=read, parse=str, repeatable=True
    )


def parameters(wanted: str, *, most: int) -> OptionType:
    """The parameters of a job by name: texts, numbers, true or false."""
    name = text("a name", metavar="NAME", pattern=PARAMETER)

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping) or len(value) > most or not all(map(is_kept, value.values())):
            raise ValueError(value)
        return {name.read(key): one for key, one in value.items()}

    values = [
        {"type": "string", "maxLength": LONGEST_VALUE, "pattern": NO_NUL},
        {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        {"type": "number"},
        {"type": "boolean"},
    ]
    schema = {
        "type": "object",
        "maxProperties": most,
        "patternProperties": {f"^{PARAMETER.pattern}$": {"anyOf": values}},
        "additionalProperties": False,
    }
    return OptionType(wanted=wanted, metavar="NAME=VALUE", schema=schema, read=read, repeatable=True)


def sizes(most: float) -> OptionType:
    """The amounts of cores that a job can run with: any, whole numbers, or listed ones."""
    cores = number("cores", above=0, most=most)
    listed = {"type": "array", "items": dict(cores.schema), "minItems": 1, "maxItems": 1000}

    def read(value: object) -> str | tuple[float, ...]:
        if isinstance(value, str) and value in ("any", "whole"):
            return str(value)
        if isinstance(value, str) or not isinstance(value, Sequence) or not 0 < len(value) <= 1000:
            raise ValueError(value)
        return tuple(sorted({cores.read(one) for one in value}))

    def parse(text: str) -> object:
        found = [_number_in(one) for one in text.split(",")]
        return text if found == [text] else found

    return OptionType(
        wanted="'any', 'whole', or a list of numbers of cores such as [1, 2, 4]",
        metavar="any|whole|CORES,...",
        schema={"anyOf": [{"type": "string", "enum": ["any", "whole"]}, listed]},
        read=read,
        parse=parse,
    )


def loss_pattern() -> OptionType:
    """A regular expression that finds a loss in a line."""
    plain = text("", metavar="REGEX", longest=LONGEST_PATTERN)

    def read(value: object) -> str:
        found: str = plain.read(value)
        try:
            checked_pattern(found)
        except LossSourceError as error:
            raise ValueError(value) from error
        return found

    wanted = f"a regular expression whose only group, or the group named loss, is the loss, {EXAMPLE}"
    return OptionType(wanted=wanted, metavar="REGEX", schema=plain.schema, read=read)


def seconds_of(text: str) -> float | None:
    """Return the seconds that a text such as 1h30m stands for; None for any other text."""
    if _DECIMAL.fullmatch(text):
        return float(text)
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        return None
    return sum(float(part) * unit for part, unit in zip(match.groups(), _SPAN_SECONDS, strict=True) if part)


def bytes_of(text: str) -> int | None:
    """Return the bytes that a text such as 4GB (4 * 1000**3) or 4GiB (4 * 1024**3) stands for, or None."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    base: int = 1024 if match[3] else 1000
    return round(float(match[1]) * float(base ** " kmgt".index((match[2] or " ").lower())))


def shown(value: object) -> Any:
    """Format a value for an error message: short, JSON-compatible, independent of its Python type.

    2.0 becomes 2, a tuple a list, a path a text.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Real):
        found = float(value)
        return int(found) if found.is_integer() else found
    if isinstance(value, list | tuple):
        return [shown(one) for one in value[:SHOWN_ITEMS]]
    if isinstance(value, Mapping):
        return {str(shown(key)): shown(one) for key, one in list(value.items())[:SHOWN_ITEMS]}
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    text = value if isinstance(value, str) else repr(value)
    short = text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]}..."
    return short.encode("utf-8", "backslashreplace").decode()


def _real(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(value)
    try:
        found = float(value)
    except OverflowError:
        raise ValueError(value) from None
    if not math.isfinite(found):
        raise ValueError(value)
    return found


def _number_in(text: str) -> int | float | str:
    """Return the text as a number; an invalid number stays text, so that the error message shows it."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _plain(bound: float) -> str:
    """Return a bound for people: 0.000001, 1,000,000 or 1e+300."""
    return f"{bound:,f}".rstrip("0").rstrip(".") if abs(bound) <= 1e15 else f"{bound:g}"
