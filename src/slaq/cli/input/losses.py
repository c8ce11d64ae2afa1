"""Read one loss curve: plain numbers, a column of a CSV file, or a key of JSON Lines."""

import csv
import json
import math
import sys
from collections.abc import Iterable, Sequence

import click

from slaq.cli.display.say import say
from slaq.core.errors import SlaqError, UnknownNameError

STDIN = "standard input"


class LossesError(SlaqError):
    """A file does not hold the losses that were expected."""

    def __init__(self, source: str, line: int | None, problem: str, remedy: str) -> None:
        self.source = source
        self.line = line
        self.problem = problem
        self.remedy = remedy
        where = source if line is None else f"{source}, line {line}"
        super().__init__(f"{where}: {problem}; {remedy}")


def read_losses(path: str, column: str | None) -> list[float]:
    """Return the losses in the file, or on standard input for `-`, including those that are not finite.

    Raises LossesError if there is no loss, or if a value is not a number.
    """
    source = STDIN if path == "-" else path
    if path == "-" and sys.stdin.isatty():
        say("Type or paste losses, then press Ctrl-D.", err=True)
    try:
        with click.open_file(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except UnicodeDecodeError as error:
        raise LossesError(source, None, "the file is not text", "give numbers, CSV or JSON Lines") from error
    losses = parse_losses(lines, source, column)
    if not losses:
        raise LossesError(source, None, "the file has no losses", "give at least one number")
    return losses


def parse_losses(lines: Sequence[str], source: str, column: str | None) -> list[float]:
    """Return the losses in the lines; `source` names them in errors."""
    numbered = [(n, line) for n, line in enumerate(lines, start=1) if line.strip() and line.strip()[0] != "#"]
    if not numbered:
        return []
    first = numbered[0][1].strip()
    if first[0] == "{":
        return _json_lines(numbered, source, column)
    if column is not None:
        return _csv_column(numbered, source, column)
    if first[0] == "[":
        return _json_array(lines, source)
    return _numbers(numbered, source)


def _numbers(numbered: Iterable[tuple[int, str]], source: str) -> list[float]:
    losses: list[float] = []
    for n, line in numbered:
        tokens = line.replace(",", " ").replace(";", " ").split()
        if not losses and not any(_is_number(token) for token in tokens):
            if len(tokens) == 1 and "," not in line:
                continue  # the header of a file with one column
            raise LossesError(source, n, "this looks like a header", f"choose one with --column {tokens[-1]}")
        for token in tokens:
            if not _is_number(token):
                raise LossesError(source, n, f"{token!r} is not a number", "correct it, or write nan")
            losses.append(float(token))
    return losses


def _csv_column(numbered: Sequence[tuple[int, str]], source: str, column: str) -> list[float]:
    delimiter = next((mark for mark in (",", "\t", ";") if mark in numbered[0][1]), ",")
    rows = zip(
        (n for n, _ in numbered),
        csv.reader((line for _, line in numbered), delimiter=delimiter, skipinitialspace=True),
        strict=False,  # a quoted cell may run over several lines
    )
    n, header = next(rows)
    names = [name.strip() for name in header]
    if column not in names:
        raise LossesError(source, n, *_unknown_column(column, names))
    place = names.index(column)
    return [_cell(row[place] if place < len(row) else "", source, n) for n, row in rows]


def _json_lines(numbered: Sequence[tuple[int, str]], source: str, column: str | None) -> list[float]:
    losses = []
    for n, line in numbered:
        record = _json(line, source, n)
        if not isinstance(record, dict):
            raise LossesError(source, n, "the line is not a JSON object", "give one object per line")
        if column is None:
            keys = ", ".join(record)
            raise LossesError(source, n, f"the keys are {keys}", "choose the loss with --column KEY")
        if column not in record:
            raise LossesError(source, n, *_unknown_column(column, record))
        losses.append(_value(record[column], source, n))
    return losses


def _json_array(lines: Sequence[str], source: str) -> list[float]:
    values = _json("\n".join(lines), source, 1)
    if not isinstance(values, list):
        raise LossesError(source, 1, "the file is not a JSON array", "give numbers, CSV or JSON Lines")
    return [_value(value, source, None) for value in values]


def _json(text: str, source: str, line: int) -> object:
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise LossesError(
            source, at, f"the line is not valid JSON ({error.msg})", "correct or remove the line"
        ) from error
    except RecursionError as error:
        raise LossesError(source, line, "the JSON is nested too deeply", "give plain numbers") from error
    return value


def _value(value: object, source: str, line: int | None) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise LossesError(source, line, f"{json.dumps(value):.40} is not a number", "give a number or null")
    return _cell(str(value), source, line)


def _cell(text: str, source: str, line: int | None) -> float:
    # An empty cell counts as one iteration, so that later losses keep their iteration numbers.
    if not text.strip():
        return math.nan
    if not _is_number(text):
        raise LossesError(
            source, line, f"{text.strip()!r} is not a number", "correct it, or leave the cell empty"
        )
    return float(text)


def _unknown_column(column: str, known: Iterable[str]) -> tuple[str, str]:
    problem, _, remedy = str(UnknownNameError("column", column, known)).partition("; ")
    return problem, remedy


def _is_number(token: str) -> bool:
    try:
        float(token)
    except ValueError:
        return False
    return True
