"""Reads all series in a table of losses: CSV with a header that may grow, or JSON Lines."""

import csv
import math
from collections.abc import Mapping

from slaq.detection.names import COUNTS, LONGEST_NAME, rank, tokens
from slaq.detection.output import LARGEST_STEP
from slaq.detection.plain_values import json_object, number
from slaq.detection.point import Point

#: Columns that are looked at.
MOST_COLUMNS = 256
_DELIMITERS = (",", "\t", ";")
_STEPS = ("step", "iter", "iteration", "epoch")


class TableReader:
    """Takes the lines of one file in order; the first line tells which of the two it is."""

    def __init__(self) -> None:
        self._header: list[str] = []
        self._delimiter = ","
        self._json: bool | None = None

    def feed(self, line: bytes) -> list[Point]:
        """Return the numbers in a line."""
        text = line.decode(errors="replace").removeprefix("\ufeff")
        if self._json is None:
            self._json = text.lstrip().startswith("{")
        if self._json:
            return _points(json_object(text))
        if not self._header:
            self._header, self._delimiter = _header(text)
            return []
        return _points(dict(zip(self._header, _cells(text, self._delimiter), strict=False)))


def _header(text: str) -> tuple[list[str], str]:
    """Return the names in the first line of a table, and what divides them."""
    rows = {delimiter: _cells(text, delimiter) for delimiter in _DELIMITERS}
    best = max(rows, key=lambda delimiter: len(rows[delimiter]))
    return [name.strip()[:LONGEST_NAME] for name in rows[best]], best


def tells_losses(line: bytes) -> bool:
    """Return whether the first line of a table names losses and what counts steps; data hardly do."""
    text = line.decode(errors="replace").removeprefix("\ufeff")
    names = list(json_object(text)) if text.lstrip().startswith("{") else _header(text)[0]
    counts = any(COUNTS.issuperset(tokens(name)[-1:]) for name in names if tokens(name))
    return counts and any(rank(name) is not None for name in names)


def _points(row: Mapping[str, object]) -> list[Point]:
    step = next((found for name in _STEPS if (found := number(row.get(name))) is not None), None)
    whole = step is not None and math.isfinite(step) and 0 <= step < LARGEST_STEP
    points = []
    for name, cell in row.items():
        value = number(cell)
        if value is not None and 0 < len(name) <= LONGEST_NAME and name.isprintable() and name not in _STEPS:
            points.append(
                Point(series=name, value=value, step=int(step) if whole and step is not None else None)
            )
        if len(points) == MOST_COLUMNS:
            break
    return points


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])[:MOST_COLUMNS]
    except csv.Error:
        return []
