"""Where a job's data comes from: files of arrays, CSV, svmlight, or a generator."""

import csv
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from slaq.config.values import Data
from slaq.core.errors import DataError
from slaq.core.extras import needs

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A file of data."""

    path: Path
    #: The column of a CSV file that holds the targets; None where there are none.
    target: str | None = None

    def load(self) -> Data:
        """Return features and targets; raises DataError if the file holds anything else."""
        if not self.path.exists():
            raise DataError(f"there is no file {self.path}; check the path, which is relative to this file")
        if self.path.is_dir():
            raise DataError(f"{self.path} is a folder; name a file")
        reader = READERS.get(self.path.suffix.lower())
        if reader is None:
            raise DataError(f"{self.path.name} ends in no known suffix; known: {', '.join(READERS)}")
        if self.target is not None and reader is not _csv:
            raise DataError(f"target names a column, and {self.path.name} has none; remove target")
        try:
            x, y = reader(self.path, self.target)
        except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
            raise DataError(f"{self.path.name} cannot be read ({error}); give another file") from None
        return _checked(x, y, self.path.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSource:
    """Generated data; the same numbers give the same data."""

    generate: str
    rows: int
    features: int
    #: Classes, blobs or topics.
    groups: int
    noise: float
    seed: int

    def load(self) -> Data:
        """Return features and targets."""
        return GENERATORS[self.generate](self, np.random.default_rng(self.seed))


Source = FileSource | GeneratedSource


def _npz(path: Path, target: str | None) -> Data:
    with np.load(path, allow_pickle=False) as archive:
        names = set(archive.files)
        if {"format", "data", "indices", "indptr", "shape"} <= names:
            with needs("scipy"):
                from scipy.sparse import load_npz

            return load_npz(path).tocsr(), None
        if "x" not in names:
            held = ", ".join(sorted(names)) or "nothing"
            raise DataError(f"{path.name} holds {held}; save the features as x and the targets as y")
        return archive["x"], archive["y"] if "y" in names else None


def _npy(path: Path, target: str | None) -> Data:
    return np.load(path, allow_pickle=False), None


def _csv(path: Path, target: str | None) -> Data:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
    delimiter = next((mark for mark in (",", "\t", ";") if mark in first), ",")
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if names and all(_is_number(name) for name in names):
        raise DataError(f"{path.name} begins with numbers; give it a header with the names of its columns")
    if target is not None and target not in names:
        raise DataError(f"{path.name} has no column {target!r}; name one of: {', '.join(names[:20])}")
    columns = [place for place, name in enumerate(names) if name != target]
    x = _columns(path, delimiter, columns, float)
    if target is None:
        return x, None
    y = _columns(path, delimiter, [names.index(target)], str)[:, 0]
    try:
        return x, y.astype(float)
    except ValueError:
        return x, y


def _columns(path: Path, delimiter: str, columns: list[int], dtype: type) -> NDArray[Any]:
    if not columns:
        raise DataError(f"{path.name} has no column of features; give one beside the target")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*input contained no data")
        try:
            found: NDArray[Any] = np.loadtxt(
                path, dtype, delimiter=delimiter, skiprows=1, usecols=columns, ndmin=2, quotechar='"',
                comments=None, encoding="utf-8-sig",
            )  # fmt: skip
        except ValueError as error:
            # NumPy counts the rows from 0 and without the header.
            told = re.sub(r"row (\d+)", lambda row: f"line {int(row[1]) + 2}", str(error).rstrip("."))
            raise DataError(
                f"{path.name} cannot be read ({told}); correct it, or leave the column out"
            ) from None
    return found


def _svmlight(path: Path, target: str | None) -> Data:
    """Read `label place:value ...` lines; places count from 1, or from 0 where one is 0."""
    with needs("scipy"):
        from scipy.sparse import csr_matrix

    labels: list[float] = []
    starts, places, values = [0], [], []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            try:
                labels.append(float(words[0]))
                pairs = [word.split(":") for word in words[1:] if not word.startswith("qid:")]
                places += [int(place) for place, _ in pairs]
                values += [float(value) for _, value in pairs]
            except ValueError:
                raise DataError(
                    f"{path.name}, line {number} is not a label with index:value pairs; correct it"
                ) from None
            starts.append(len(places))
    columns = np.array(places, dtype=np.int64)
    if len(columns) and columns.min() < 0:
        raise DataError(f"{path.name} has a place below 0; count features from 1")
    columns -= 0 if len(columns) and columns.min() == 0 else 1
    shape = (len(labels), int(columns.max(initial=-1)) + 1)
    return csr_matrix((np.array(values, dtype=float), columns, starts), shape=shape), np.array(labels)


#: How files are read, by suffix.
READERS: Mapping[str, Callable[[Path, str | None], Data]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".csv": _csv,
    ".svmlight": _svmlight,
    ".libsvm": _svmlight,
}


def _classification(source: GeneratedSource, rng: Generator) -> Data:
    """Labels follow the largest of one random direction per class, plus noise."""
    x = rng.standard_normal((source.rows, source.features))
    scores = x @ rng.standard_normal((source.features, source.groups))
    spread = source.noise * float(np.sqrt(source.features))
    y = (scores + spread * rng.standard_normal(scores.shape)).argmax(axis=1)
    y[: source.groups] = np.arange(source.groups)[: source.rows]  # every class is there
    return x, y


def _regression(source: GeneratedSource, rng: Generator) -> Data:
    """Targets are a random linear function of features whose scales differ, plus noise."""
    x = rng.standard_normal((source.rows, source.features)) * np.geomspace(1.0, 0.1, source.features)
    return x, x @ rng.standard_normal(source.features) + source.noise * rng.standard_normal(source.rows)


def _blobs(source: GeneratedSource, rng: Generator) -> Data:
    """Rows lie around random centres; the target is the centre's number."""
    centres = 3.0 * rng.standard_normal((source.groups, source.features))
    y = rng.integers(source.groups, size=source.rows)
    return centres[y] + (0.5 + source.noise) * rng.standard_normal((source.rows, source.features)), y


def _documents(source: GeneratedSource, rng: Generator) -> Data:
    """Each row counts the words of a text of about 100 words, drawn from a few topics; sparse."""
    with needs("scipy"):
        from scipy.sparse import csr_matrix

    topics = rng.dirichlet(np.full(source.features, 0.05), source.groups)
    shares = rng.dirichlet(np.full(source.groups, 0.2), source.rows)
    counts = [rng.multinomial(rng.poisson(100) + 1, share @ topics) for share in shares]
    return csr_matrix(np.array(counts, dtype=float)), None


GENERATORS: Mapping[str, Callable[[GeneratedSource, Generator], Data]] = {
    "classification": _classification,
    "regression": _regression,
    "blobs": _blobs,
    "documents": _documents,
}


def _checked(x: Any, y: Any, name: str) -> Data:
    kind = x.dtype.kind
    if x.ndim != 2 or kind not in "biuf":
        raise DataError(
            f"the features in {name} are of shape {x.shape} and type {x.dtype}; "
            "give a table of numbers, rows by columns"
        )
    if x.shape[0] == 0 or x.shape[1] == 0:
        raise DataError(f"{name} holds no data; give at least one row and one column of features")
    if y is not None and len(y) != x.shape[0]:
        raise DataError(f"{name} has {x.shape[0]} rows of features but {len(y)} targets; make them match")
    return x, y


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
