"""The jobs of `slaq demo`: nine algorithms on data made up here, in sizes that a small machine is full with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slaq.algorithms import (
    LDA,
    GBTClassifier,
    GBTRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MLPClassifier,
    PolynomialSVM,
)
from slaq.jobs.context import Program
from slaq.jobs.data import Dataset

#: The cores that the sizes below were chosen for.
USUAL_CORES = 2

#: Draws data of about that many times the usual rows.
Draw = Callable[[np.random.Generator, float], Dataset]


def classes(rows: int, features: int, count: int = 2) -> Draw:
    """Overlapping classes whose features differ in scale, so that gradient descent has far to go."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        many = max(int(rows * size), 200)
        labels = rng.integers(count, size=many)
        centres = rng.normal(0, 1.2, (count, features))
        x = rng.normal(0, 1, (many, features)) + centres[labels]
        x = np.tanh(x @ rng.normal(0, 1 / np.sqrt(features), (features, features))) * spectrum(features)
        flipped = rng.random(many) < 0.05
        return Dataset(x, np.where(flipped, rng.integers(count, size=many), labels))

    return draw


def numbers(rows: int, features: int) -> Draw:
    """A target that depends on the features, partly not linearly."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        many = max(int(rows * size), 200)
        x = rng.normal(0, 1, (many, features)) * spectrum(features)
        y = x @ rng.normal(0, 1, features) + np.sin(3 * x[:, 0]) * x[:, 1] + rng.normal(0, 0.3, many)
        return Dataset(x, y)

    return draw


def clusters(rows: int, features: int, count: int) -> Draw:
    """Blobs that overlap."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        many = max(int(rows * size), 10 * count)
        centres = rng.normal(0, 2.0, (count, features))
        return Dataset(centres[rng.integers(count, size=many)] + rng.normal(0, 1.0, (many, features)))

    return draw


def documents(rows: int, terms: int, topics: int) -> Draw:
    """Word counts of documents, each about a few topics."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        from scipy.sparse import csr_matrix

        many = max(int(rows * size), 200)
        words = rng.dirichlet(np.full(terms, 0.05), topics)
        about = rng.dirichlet(np.full(topics, 0.2), many) @ words
        return Dataset(csr_matrix(rng.poisson(60 * about).astype(float)))

    return draw


def spectrum(features: int) -> Any:
    """Scales of features that fall off slowly."""
    return np.arange(1.0, features + 1) ** -0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of job: a program drawn with its hyperparameters, and the data it is given."""

    name: str
    program: Callable[[np.random.Generator], Program]
    data: Draw


KINDS: tuple[Kind, ...] = (
    Kind(
        name="kmeans",
        program=lambda rng: KMeans(k=60, init="sample", iterations=80, seed=int(rng.integers(99))),
        data=clusters(110_000, 32, 90),
    ),
    Kind(
        name="logreg",
        program=lambda rng: LogisticRegression(iterations=150, learning_rate=float(rng.choice([0.5, 2.0]))),
        data=classes(56_000, 100, 10),
    ),
    Kind(
        name="svm",
        program=lambda rng: LinearSVM(iterations=150, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=classes(56_000, 100, 10),
    ),
    Kind(name="svmpoly", program=lambda rng: PolynomialSVM(iterations=300), data=classes(4_000, 20)),
    Kind(
        name="gbt",
        program=lambda rng: GBTClassifier(iterations=80, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=classes(84_000, 30),
    ),
    Kind(
        name="gbtreg",
        program=lambda rng: GBTRegressor(iterations=80, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=numbers(84_000, 30),
    ),
    Kind(
        name="mlp",
        program=lambda rng: MLPClassifier(hidden=(64,), iterations=120, seed=int(rng.integers(99))),
        data=classes(42_000, 40, 6),
    ),
    Kind(
        name="lda",
        program=lambda rng: LDA(topics=12, iterations=50, seed=int(rng.integers(99))),
        data=documents(1_250, 600, 12),
    ),
    Kind(
        name="linreg",
        program=lambda rng: LinearRegression(iterations=150, l2=1e-7),
        data=numbers(100_000, 80),
    ),
)
#: The one job that is no program of ours but a script which knows nothing of slaq.
SCRIPT = "script"
SCRIPT_ROWS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job of the demo: when it comes, and what it is."""

    name: str
    #: Seconds after the start.
    arrival: float
    #: None for the script.
    program: Program | None
    data: Dataset | None
    #: How much the script trains on.
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much there is to do."""

    jobs: int
    #: Seconds over which they arrive.
    seconds: float
    #: Rows of their data, relative to the usual.
    size: float


def plan(amount: Amount, rng: np.random.Generator, data: Mapping[str, Draw]) -> list[PlannedJob]:
    """Return the jobs in the order of their arrival: all kinds about equally often, in an order of chance.

    `data` replaces what the kinds of these names train on.
    """
    count = amount.jobs
    kinds = [KINDS[place % len(KINDS)] for place in rng.permutation(max(count - 1, 1))]
    arrivals = np.sort(rng.uniform(0.0, amount.seconds, count))
    arrivals[0] = 0.0
    script = count // 3 if count > 1 else -1
    jobs = []
    for place, arrival in enumerate(arrivals.tolist()):
        if place == script:
            rows = max(int(SCRIPT_ROWS * amount.size), 200)
            jobs.append(
                PlannedJob(name=f"{SCRIPT}-{place}", arrival=arrival, program=None, data=None, rows=rows)
            )
            continue
        kind = kinds[place if place < script or script < 0 else place - 1]
        draw = data.get(kind.name, kind.data)
        size = amount.size * float(rng.lognormal(0.0, 0.3))
        jobs.append(
            PlannedJob(
                name=f"{kind.name}-{place}",
                arrival=arrival,
                program=kind.program(rng),
                data=draw(rng, size),
            )
        )
    return jobs


def recorded_data(folder: Path) -> dict[str, Draw]:
    """Return data of real sets found in the folder, by the kinds of job that train on it."""
    found: dict[str, Draw] = {}
    digits, corpus = folder / "mnist" / "mnist.npz", folder / "ap_corpus" / "ap.npz"
    tables = folder / "uci_regression" / "uci_regression.npz"
    if digits.is_file():
        with np.load(digits) as file:
            x, y = file["x_train"].reshape(-1, 784) / 255.0, file["y_train"].astype(int)
        for kind, rows in (("logreg", 6_000), ("svm", 6_000), ("mlp", 3_000), ("kmeans", 6_000)):
            found[kind] = _rows_of(x, y if kind != "kmeans" else None, rows)
    if tables.is_file():
        with np.load(tables) as file:
            x, y = file["keggundirected_x"].astype(float), file["keggundirected_y"].astype(float)
        x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
        found["linreg"] = found["gbtreg"] = _rows_of(x, (y - y.mean()) / y.std(), 60_000)
    if corpus.is_file():
        from scipy.sparse import csr_matrix

        with np.load(corpus) as file:
            counts = csr_matrix((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
        found["lda"] = _rows_of(counts.astype(float), None, 400)
    return found


def _rows_of(x: Any, y: Any, rows: int) -> Draw:
    def draw(rng: np.random.Generator, size: float) -> Dataset:
        chosen = rng.permutation(x.shape[0])[: max(int(rows * size), 200)]
        return Dataset(x[chosen], None if y is None else y[chosen])

    return draw
