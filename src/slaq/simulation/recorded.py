"""Recorded loss curves of real runs, read from an archive of arrays or from plain text, as workloads."""

import csv
import gzip
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from slaq.core.arrays import Floats
from slaq.core.errors import WorkloadError
from slaq.simulation.generator import CurveShape, WorkloadShape, assemble
from slaq.simulation.workload import Workload

_INDEX = "index.csv.gz"
_COLUMNS = ("source", "row", "family", "all_finite", "improved")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selection of curves from an archive; only finite curves that improved are selected."""

    #: Shell patterns, at least one of which must match.
    families: tuple[str, ...] = ("*",)
    sources: tuple[str, ...] = ("*",)
    #: Fewest losses a curve must have.
    min_length: int = 10
    #: Longer curves are thinned to at most this many, evenly from the first.
    max_length: int = 300


def read_archive(directory: str | Path, selection: Selection | None = None) -> tuple[CurveShape, ...]:
    """Return the selected curves of an archive, each labelled with its family.

    An archive is a folder with `index.csv.gz`, one line per curve with at least the columns source, row,
    family, all_finite and improved, and one `<source>.npz` per source, in which curve i is
    `y[offsets[i]:offsets[i + 1]]`.
    """
    selection = selection or Selection()
    folder = Path(directory)
    arrays: dict[str, tuple[Floats, Sequence[int]]] = {}
    curves = []
    for number, entry in _entries(folder / _INDEX):
        source = entry["source"]
        if not (_chosen(entry, selection) and Path(source).name == source):
            continue
        if source not in arrays:
            arrays[source] = _load(folder / f"{source}.npz")
        losses = _cut(arrays[source], entry["row"], folder / _INDEX, number)
        if len(losses) >= selection.min_length and np.isfinite(losses).all():
            stride = math.ceil(len(losses) / selection.max_length)
            curves.append(CurveShape(entry["family"], losses[::stride]))
    if not curves:
        raise WorkloadError(
            str(folder), None, "no curve matches the selection", "widen its patterns or lengths"
        )
    return tuple(curves)


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield each line of the index with its number."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restval="")
            missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise WorkloadError(
                    str(path), 1, f"the column {missing[0]!r} is missing", f"expected {', '.join(_COLUMNS)}"
                )
            for entry in reader:
                yield reader.line_num, entry
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise WorkloadError(str(path), None, f"cannot be read ({reason})", "check the folder") from None


def _chosen(entry: Mapping[str, str], selection: Selection) -> bool:
    return (
        entry["all_finite"] == "1"
        and entry["improved"] == "1"
        and any(fnmatchcase(entry["family"], pattern) for pattern in selection.families)
        and any(fnmatchcase(entry["source"], pattern) for pattern in selection.sources)
    )


def _load(path: Path) -> tuple[Floats, Sequence[int]]:
    try:
        with np.load(path) as arrays:
            return arrays["y"].astype(np.float64).ravel(), arrays["offsets"].astype(np.int64).ravel().tolist()
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise WorkloadError(
            str(path), None, f"cannot be read ({reason})", "expected arrays named y and offsets"
        ) from None


def _cut(arrays: tuple[Floats, Sequence[int]], row: str, path: Path, line: int) -> Floats:
    losses, offsets = arrays
    if not (row.isdecimal() and int(row) + 1 < len(offsets)):
        raise WorkloadError(
            str(path), line, f"there is no curve {row!r}", f"the source has {len(offsets) - 1} of them"
        )
    return losses[offsets[int(row)] : offsets[int(row) + 1]]


def read_losses(path: str | Path, column: str | None = None) -> CurveShape:
    """Return the curve in a text file of one loss per line, or in one column of a CSV file with a header.

    Without a name, the column is the only one, or the one called "loss". The curve is labelled with the
    file's name.
    """
    name = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not UTF-8 text"
        raise WorkloadError(name, None, f"cannot be read ({reason})", "check the path") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    place = 0
    if lines and not _is_number(lines[0][1]):
        header = [cell.strip().strip('"') for cell in lines.pop(0)[1].split(",")]
        place = _column(header, column, name)
    losses = np.array([_loss(line, place, name, number) for number, line in lines], dtype=np.float64)
    if len(losses) < 2:
        raise WorkloadError(name, None, f"holds {len(losses)} losses", "give at least two, one per line")
    return CurveShape(Path(path).stem, losses)


def _column(header: Sequence[str], column: str | None, name: str) -> int:
    wanted = column or (header[0] if len(header) == 1 else "loss")
    if wanted not in header:
        raise WorkloadError(
            name, 1, f"there is no column {wanted!r}", f"choose one of {', '.join(map(repr, header))}"
        )
    return header.index(wanted)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _loss(line: str, place: int, name: str, number: int) -> float:
    cells = line.split(",")
    cell = cells[place].strip() if place < len(cells) else ""
    if not (_is_number(cell) and math.isfinite(float(cell))):
        raise WorkloadError(name, number, f"the loss is {cell[:40]!r}", "give a finite number on every line")
    return float(cell)


def sample(
    curves: Sequence[CurveShape], count: int, rng: np.random.Generator, shape: WorkloadShape | None = None
) -> Workload:
    """Return a workload of `count` jobs that follow these curves.

    Every label is drawn equally often, and a curve is repeated only after all other curves of its label.
    """
    if not curves:
        raise ValueError("there are no curves to sample from")
    by_label: dict[str, list[CurveShape]] = {}
    for curve in curves:
        by_label.setdefault(curve.label, []).append(curve)
    decks: dict[str, list[CurveShape]] = {label: [] for label in by_label}
    labels = _repeated(list(by_label), count, rng)
    drawn = []
    for label in labels:
        if not decks[label]:
            decks[label] = [by_label[label][index] for index in rng.permutation(len(by_label[label]))]
        drawn.append(decks[label].pop())
    return assemble(drawn, rng, shape or WorkloadShape())


def _repeated(labels: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    """Return `count` labels in random order, each equally often to within one."""
    order: list[str] = []
    while len(order) < count:
        order += [labels[index] for index in rng.permutation(len(labels))]
    return order[:count]
