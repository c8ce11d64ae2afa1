"""The data that real runs train on: made up with a seed, bundled with scikit-learn, or found in a folder."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from slaq import Dataset
from slaq.cli.demo.jobs import Draw, classes, clusters, documents, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """Data of one kind, by a name that says where it comes from."""

    name: str
    #: What it can be used to train: "classes", "two-classes", "numbers", "clusters" or "documents".
    task: str
    draw: Draw


def made(size: float) -> list[TrainingSet]:
    """Return data made up with a seed, in about `size` thousand rows."""
    rows = int(1000 * size)
    sets = {
        "two-classes": classes(rows, 30),
        "classes": classes(rows, 50, 6),
        "numbers": numbers(rows, 30),
        "clusters": clusters(2 * rows, 16, 40),
        "documents": documents(rows // 10, 400, 10),
    }
    return [TrainingSet(name=f"made{size:g}k", task=task, draw=draw) for task, draw in sets.items()]


def bundled() -> list[TrainingSet]:
    """Return the sets that come with scikit-learn: real, and small."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

    x, y = load_digits(return_X_y=True)
    tumours, malign = load_breast_cancer(return_X_y=True)
    patients, progression = load_diabetes(return_X_y=True)
    return [
        TrainingSet(name="digits", task="classes", draw=_all_of(x / 16.0, y)),
        TrainingSet(name="digits", task="clusters", draw=_all_of(x / 16.0, None)),
        # An image as a document whose words are its pixels, as often as they are dark.
        TrainingSet(name="digits", task="documents", draw=_all_of(csr_matrix(x), None)),
        TrainingSet(name="breast-cancer", task="two-classes", draw=_all_of(standardised(tumours), malign)),
        TrainingSet(
            name="diabetes", task="numbers", draw=_all_of(standardised(patients), standardised(progression))
        ),
    ]


def found(folder: Path) -> list[TrainingSet]:
    """Return the sets that the folder has; those it lacks are left out."""
    readers: dict[str, Callable[[Path], list[TrainingSet]]] = {
        "mnist/mnist.npz": _mnist,
        "libsvm_a9a/a9a.npz": _a9a,
        "epsilon_subset/epsilon_5k_x100_fate.npz": _epsilon,
        "uci_regression/uci_regression.npz": _uci,
        "ap_corpus/ap.npz": _ap,
    }
    return [one for path, read in readers.items() if (folder / path).is_file() for one in read(folder / path)]


def available(data: Path | None, sizes: tuple[float, ...]) -> list[TrainingSet]:
    """Return every set there is: made up in these sizes, bundled, and found in the folder if there is one."""
    sets = [one for size in sizes for one in made(size)]
    return sets + bundled() + ([] if data is None else found(data))


def standardised(x: Any) -> Any:
    """Return columns of mean 0 and deviation 1."""
    values = np.asarray(x, dtype=float)
    return (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-9)


def _mnist(path: Path) -> list[TrainingSet]:
    images, digits = mnist(path)
    return [
        TrainingSet(name="mnist", task="classes", draw=_some_of(images, digits, 3000)),
        TrainingSet(name="mnist", task="clusters", draw=_some_of(images, None, 6000)),
    ]


@cache
def mnist(path: Path) -> tuple[Any, Any]:
    """Return all images as rows of numbers from 0 to 1, and their digits."""
    with np.load(path) as file:
        return file["x_train"].reshape(-1, 784) / 255.0, file["y_train"].astype(int)


def _a9a(path: Path) -> list[TrainingSet]:
    with np.load(path) as file:
        parts = tuple(file[f"train_{name}"] for name in ("data", "indices", "indptr"))
        x, y = csr_matrix(parts, shape=file["train_shape"]).astype(float), file["train_y"].astype(int)
    return [TrainingSet(name="a9a", task="two-classes", draw=_some_of(x, y, 12_000))]


def _epsilon(path: Path) -> list[TrainingSet]:
    with np.load(path) as file:
        x, y = standardised(file["x_train"]), file["y_train"].astype(int)
    return [TrainingSet(name="epsilon-like", task="two-classes", draw=_all_of(x, y))]


def _uci(path: Path) -> list[TrainingSet]:
    with np.load(path) as file:
        return [
            TrainingSet(
                name=name,
                task="numbers",
                draw=_some_of(standardised(file[f"{name}_x"]), standardised(file[f"{name}_y"]), 12_000),
            )
            for name in ("protein", "bike")
        ]


def _ap(path: Path) -> list[TrainingSet]:
    with np.load(path) as file:
        counts = csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    return [TrainingSet(name="ap", task="documents", draw=_some_of(counts.astype(float), None, 300))]


def _all_of(x: Any, y: Any) -> Draw:
    return lambda rng, size: Dataset(x, y)


def _some_of(x: Any, y: Any, rows: int) -> Draw:
    def draw(rng: np.random.Generator, size: float) -> Dataset:
        chosen = rng.permutation(x.shape[0])[: int(rows * size)]
        return Dataset(x[chosen], None if y is None else y[chosen])

    return draw
