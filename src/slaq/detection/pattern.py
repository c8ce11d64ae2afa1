"""Writes the regular expression by which a pattern finds what was found without one."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slaq.detection.lines import seen

_NUMBER = r"[\"'(]?([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|nan|inf))"


@dataclass(frozen=True, slots=True)
class MatchedLine:
    """One line of output that holds a number of a series."""

    #: Counted from 1.
    number: int
    line: bytes
    value: float


def pattern_for(name: str, place: str, matched: Sequence[MatchedLine], others: Sequence[bytes]) -> str | None:
    """Return a pattern that finds these numbers and nothing in the other lines; None where no plain one does."""
    for pattern in _patterns(name, place):
        compiled = re.compile(pattern)
        if all(
            _found(compiled, one.line) == one.value or _both_nan(compiled, one) for one in matched
        ) and not any(_found(compiled, line) is not None for line in others):
            return pattern
    return None


def _patterns(name: str, place: str) -> Iterator[str]:
    spelt = r"\s+".join(re.escape(word).replace(r"\-", "-") for word in name.split())
    yield rf"{spelt}[ =:]+(\S+)"
    yield rf"\b{spelt}[ =:]+(\S+)"
    yield rf"'{spelt}': '?([^',]+)"
    yield rf'"{spelt}": "?([^",]+)'
    plain = rf"(?<![\w/.-]){spelt}[\"']?\s*[:=]*\s*{_NUMBER}"
    yield plain
    yield rf"^[^a-zA-Z]*{spelt}[\"']?\s*[:=]*\s*{_NUMBER}"
    words = place.split()
    for word in dict.fromkeys((words[:1] + words[-1:]) if words else ()):
        yield rf"^\W*{re.escape(word)}\b.*?{plain}"


def _found(pattern: re.Pattern[str], line: bytes) -> float | None:
    match = pattern.search(seen(line))
    if match is None:
        return None
    try:
        # As a pattern is read: what follows a number right away is left out.
        return float(match[1].rstrip(",;:)]}"))
    except ValueError:
        return None


def _both_nan(pattern: re.Pattern[str], one: MatchedLine) -> bool:
    found = _found(pattern, one.line)
    return found is not None and math.isnan(found) and math.isnan(one.value)
