"""Check a job's data once before training, and find its classes or mean."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slaq.core.errors import DataError
from slaq.jobs.context import Context
from slaq.jobs.data import Partition

Floats = NDArray[np.float64]


def is_sparse(x: Any) -> bool:
    """Return whether a matrix is a sparse one of SciPy, without an import of SciPy."""
    return hasattr(x, "tocsr")


def values_of(x: Any) -> NDArray[Any]:
    """Return the entries of a dense or sparse matrix that are stored."""
    return x.data if is_sparse(x) else x  # type: ignore[no-any-return]


def dense(x: Any) -> Floats:
    """Return a dense or sparse matrix as a dense array of floats."""
    return np.asarray(x.toarray() if is_sparse(x) else x, dtype=float)


def matching(x: Any, features: int) -> Any:
    """Return the features a model is to predict from, in a form that tasks see too, or say what is wrong."""
    rows = x.tocsr() if is_sparse(x) else np.asarray(x)
    if rows.ndim != 2 or rows.shape[1] != features:
        raise DataError(f"the model was trained on {features} features; found data of shape {rows.shape}")
    return rows


def check_features(ctx: Context, algorithm: str) -> None:
    """Raise a DataError unless there are rows of finite numbers."""
    _check_rows(ctx, algorithm)
    _check_finite(ctx.map(_sound), algorithm)


def class_labels(ctx: Context, algorithm: str) -> NDArray[Any]:
    """Return the classes that the targets name, sorted; check the features along the way."""
    _check_rows(ctx, algorithm)
    found = ctx.map(_labels)
    _check_finite([part.sound for part in found], algorithm)
    _check_targets(found, algorithm)
    classes: NDArray[Any] = np.unique(np.concatenate([part.labels for part in found]))
    kind = classes.dtype.kind
    if kind not in "biufUS":
        raise DataError(f"{algorithm}: labels must be numbers or strings; y holds {classes.dtype}")
    if kind == "f" and not np.all(classes == np.round(classes)):
        raise DataError(f"{algorithm}: y must name classes; it holds fractions such as {_fraction(classes)}")
    if len(classes) < 2:
        raise DataError(f"{algorithm}: there must be two classes or more; y holds only {classes[0]}")
    return classes


def mean_target(ctx: Context, algorithm: str) -> float:
    """Return the mean of the targets, which are numbers; check the features along the way."""
    _check_rows(ctx, algorithm)
    found = ctx.map(_numbers)
    _check_finite([part.sound for part in found], algorithm)
    _check_targets(found, algorithm)
    if not all(part.numbers for part in found):
        raise DataError(f"{algorithm}: y must hold finite numbers only")
    return float(sum(part.total for part in found) / ctx.data.num_rows)


def signs(partition: Partition, classes: NDArray[Any]) -> Floats:
    """Return +1 where a row is of an output's class and -1 elsewhere (rows x outputs).

    Two classes have one output, for the second of them; more have one each (one against the rest).
    """
    codes = label_codes(partition, classes)
    columns = np.array([1]) if len(classes) == 2 else np.arange(len(classes))
    return np.where(codes[:, None] == columns, 1.0, -1.0)


def label_codes(partition: Partition, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the place of each row's label among the classes."""
    return np.searchsorted(classes, partition.y)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a partition holds."""

    #: Whether all features are finite numbers.
    sound: bool
    #: The shape of y; None where there is none.
    shape: tuple[int, ...] | None
    #: The distinct labels, where classes are looked for.
    labels: NDArray[Any] | None = None
    #: Whether all targets are finite numbers, and their sum, where numbers are looked for.
    numbers: bool = False
    total: float = 0.0


def _sound(partition: Partition) -> bool:
    values = values_of(partition.x)
    return values.dtype.kind in "biuf" and bool(np.isfinite(values).all())


def _labels(partition: Partition) -> _Found:
    sound, y = _sound(partition), partition.y
    if y is None or y.ndim != 1:
        return _Found(sound=sound, shape=None if y is None else y.shape)
    # Objects may have no order; the first is enough to reject them.
    return _Found(sound=sound, shape=y.shape, labels=y[:1] if y.dtype.kind == "O" else np.unique(y))


def _numbers(partition: Partition) -> _Found:
    sound, y = _sound(partition), partition.y
    if y is None or y.ndim != 1 or y.dtype.kind not in "biuf":
        return _Found(sound=sound, shape=None if y is None else y.shape)
    numbers = bool(np.isfinite(y).all())
    return _Found(sound=sound, shape=y.shape, numbers=numbers, total=float(y.sum(dtype=float)))


def _check_rows(ctx: Context, algorithm: str) -> None:
    if ctx.data.num_rows == 0 or ctx.data.num_features == 0:
        raise DataError(f"{algorithm}: there is no data to train on; submit it with data=(x, y)")


def _check_finite(sound: list[bool], algorithm: str) -> None:
    if not all(sound):
        raise DataError(f"{algorithm}: the features must be finite numbers; fill in or drop what is missing")


def _check_targets(found: list[_Found], algorithm: str) -> None:
    shape = found[0].shape
    if shape is None:
        raise DataError(f"{algorithm}: there are no targets; submit it with data=(x, y)")
    if len(shape) != 1:
        raise DataError(f"{algorithm}: y must have one value per row, not {shape[1:]}")


def _fraction(classes: NDArray[Any]) -> float:
    return float(classes[classes != np.round(classes)][0])
