"""Reads the course of a cluster's capacity from a CSV file: from which second on there are how many units."""

import csv
import math
from pathlib import Path

from slaq.core.errors import WorkloadError

REMEDY = "give lines such as 120,640: from second 120 on, 640 units"


def read_capacity(path: Path, before: int) -> list[tuple[float, int]]:
    """Return (seconds, units) pairs from the file; until its first moment there are `before` units."""
    name = str(path)
    course: list[tuple[float, int]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise WorkloadError(name, None, "this is no text", REMEDY) from None
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or row[0].lstrip().startswith("#") or (not course and row[0].strip() == "time"):
            continue
        course.append(_change(row, name, number))
        if len(course) > 1 and course[-1][0] <= course[-2][0]:
            raise WorkloadError(name, number, "this moment is not after the one before", "sort the lines")
    if not course:
        raise WorkloadError(name, None, "there is no capacity", REMEDY)
    if course[-1][1] == 0:
        raise WorkloadError(name, None, "the units end at 0, so jobs would wait for ever", "add a last line")
    return course if course[0][0] == 0.0 else [(0.0, before), *course]


def _change(row: list[str], name: str, number: int) -> tuple[float, int]:
    try:
        moment, units = row
        change = float(moment), int(units)
    except ValueError:
        raise WorkloadError(name, number, f"{','.join(row)!r} is no time,units", REMEDY) from None
    if not (math.isfinite(change[0]) and change[0] >= 0.0 and change[1] >= 0):
        raise WorkloadError(name, number, f"{','.join(row)!r} is out of range", REMEDY)
    return change
