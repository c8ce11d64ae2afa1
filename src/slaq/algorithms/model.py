"""Models: frozen values that predict, and that are saved as arrays and plain numbers, never as code."""

import json
import zipfile
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms.inputs import matching
from slaq.core.errors import DataError, ModelError

_HEADER = "model"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """What training returns.

    Saved as a NumPy archive: one entry per array (a tuple of arrays has one entry each), and one JSON text
    with the model's class and all that is not an array.
    """

    _classes: ClassVar[dict[str, type["Model"]]] = {}

    #: The loss before the first iteration, and after each.
    losses: tuple[float, ...] = ()

    @override
    def __init_subclass__(cls) -> None:
        Model._classes[cls.__name__] = cls

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model to a file; `load` reads it back."""
        arrays: dict[str, Any] = {}
        plain: dict[str, Any] = {"class": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                arrays[field.name] = value
            elif isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
                plain[field.name] = {"arrays": len(value)}
                arrays |= {f"{field.name}.{index}": item for index, item in enumerate(value)}
            else:
                plain[field.name] = value
        with Path(path).open("wb") as file:
            arrays[_HEADER] = np.array(json.dumps(plain))
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Return the model that `save` wrote; `Model.load` takes any of them."""
        try:
            # Opened here, because NumPy leaves the file open where its content is a broken archive.
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                entries = {name: archive[name] for name in archive.files}
            plain = json.loads(str(entries.pop(_HEADER)))
            name = plain.pop("class")
        except FileNotFoundError:
            raise ModelError(str(path), "the file does not exist") from None
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
            raise ModelError(str(path), "the file is not a saved model") from None
        known = Model._classes.get(name)
        if known is None or not issubclass(known, cls):
            raise ModelError(str(path), f"the file holds a {name}, not a {cls.__name__}")
        try:
            return known(**_values(plain, entries))
        except (KeyError, TypeError):
            raise ModelError(
                str(path), f"the {name} in the file is incomplete, or of another version"
            ) from None


def _values(plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the fields of a model from the two halves of its file."""
    values: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
    for name, value in plain.items():
        if isinstance(value, dict):
            values[name] = tuple(arrays[f"{name}.{index}"] for index in range(value["arrays"]))
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    return values


def accuracy(predicted: NDArray[Any], y: Any) -> float:
    """Return the share of labels that were predicted right."""
    return float(np.mean(_alike(predicted, y) == np.asarray(y)))


def r_squared(predicted: NDArray[Any], y: Any) -> float:
    """Return the share of the targets' variance that the predictions explain."""
    targets = np.asarray(y, dtype=float)
    spread = float(np.sum((targets - targets.mean()) ** 2))
    wrong = float(np.sum((_alike(predicted, targets) - targets) ** 2))
    return 1.0 - wrong / spread if spread > 0 else float(wrong == 0)


def _alike(predicted: NDArray[Any], y: Any) -> NDArray[Any]:
    if np.shape(predicted) != np.shape(y):
        raise DataError(f"there are {len(predicted)} rows of features but targets of shape {np.shape(y)}")
    return predicted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearClassifierModel(Model):
    """A hyperplane between two classes, or one for each of several; the largest value wins."""

    #: One per output; a single output separates two classes, the second being the positive one.
    weights: NDArray[np.float64]  # features x outputs
    intercepts: NDArray[np.float64]
    classes: NDArray[Any]

    def decision(self, x: Any) -> NDArray[np.float64]:
        """Return each row's value for each output (rows x outputs)."""
        return np.asarray(matching(x, len(self.weights)) @ self.weights + self.intercepts)

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the class of each row."""
        return chosen(self.decision(x), self.classes)

    def score(self, x: Any, y: Any) -> float:
        """Return the share of rows whose class is predicted right."""
        return accuracy(self.predict(x), y)


def chosen(values: NDArray[np.float64], classes: NDArray[Any]) -> NDArray[Any]:
    """Return the class of each row from its outputs: one for two classes, else one for each class."""
    codes = (values[:, 0] > 0).astype(int) if values.shape[1] == 1 else values.argmax(axis=1)
    return np.asarray(classes[codes])
