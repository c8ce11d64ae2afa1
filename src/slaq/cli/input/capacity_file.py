"""Read the capacity of a cluster over time from a CSV file of seconds and cores."""

import csv
import math
from pathlib import Path

from slaq.core.errors import WorkloadError

REMEDY = "give lines such as 120,640: from second 120 on, 640 cores"


def read_capacity(path: Path, before: float) -> list[tuple[float, float]]:
    """Return (seconds, cores) pairs from the file; before the first there are `before` cores."""
    name = str(path)
    changes: list[tuple[float, float]] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise WorkloadError(name, None, "not a text file", REMEDY) from None
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or row[0].lstrip().startswith("#") or (not changes and row[0].strip() == "time"):
            continue
        changes.append(_change(row, name, number))
        if len(changes) > 1 and changes[-1][0] <= changes[-2][0]:
            raise WorkloadError(
                name, number, "the time is not after the time of the line before", "sort the lines by time"
            )
    if not changes:
        raise WorkloadError(name, None, "the file has no line of time,cores", REMEDY)
    if changes[-1][1] == 0:
        raise WorkloadError(
            name, None, "the last line leaves 0 cores, so jobs would never end", "add a line with cores"
        )
    return changes if changes[0][0] == 0.0 else [(0.0, before), *changes]


def _change(row: list[str], name: str, number: int) -> tuple[float, float]:
    try:
        moment, cores = row
        change = float(moment), float(cores)
    except ValueError:
        raise WorkloadError(name, number, f"{','.join(row)!r} is not time,cores", REMEDY) from None
    if not (math.isfinite(change[0]) and change[0] >= 0.0 and 0.0 <= change[1] < math.inf):
        raise WorkloadError(name, number, f"{','.join(row)!r} is out of range", REMEDY)
    return change
