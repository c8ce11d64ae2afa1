"""The jobs of `slaq demo`: nine algorithms on generated data, and a plain script."""

import sys
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
from slaq.core.errors import MissingExtraError
from slaq.core.extras import needs
from slaq.jobs.context import Program
from slaq.jobs.data import Dataset

#: The number of cores for which the sizes below were chosen.
USUAL_CORES = 2

#: Draws a dataset; the second argument multiplies the usual number of rows.
Draw = Callable[[np.random.Generator, float], Dataset]


def classes(rows: int, features: int, count: int = 2) -> Draw:
    """Draw overlapping classes whose features differ in scale, so that gradient descent needs many iterations."""

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
    """Draw a target that depends on the features, partly not linearly."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        many = max(int(rows * size), 200)
        x = rng.normal(0, 1, (many, features)) * spectrum(features)
        y = x @ rng.normal(0, 1, features) + np.sin(3 * x[:, 0]) * x[:, 1] + rng.normal(0, 0.3, many)
        return Dataset(x, y)

    return draw


def clusters(rows: int, features: int, count: int) -> Draw:
    """Draw overlapping clusters of points."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        many = max(int(rows * size), 10 * count)
        centres = rng.normal(0, 2.0, (count, features))
        return Dataset(centres[rng.integers(count, size=many)] + rng.normal(0, 1.0, (many, features)))

    return draw


def documents(rows: int, terms: int, topics: int) -> Draw:
    """Draw word counts of documents, each about a few topics; needs SciPy."""

    def draw(rng: np.random.Generator, size: float) -> Dataset:
        from scipy.sparse import csr_matrix

        many = max(int(rows * size), 200)
        words = rng.dirichlet(np.full(terms, 0.05), topics)
        about = rng.dirichlet(np.full(topics, 0.2), many) @ words
        return Dataset(csr_matrix(rng.poisson(60 * about).astype(float)))

    return draw


def spectrum(features: int) -> Any:
    """Return slowly falling scales of features."""
    return np.arange(1.0, features + 1) ** -0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoKind:
    """One kind of job: how to draw its program and its data."""

    name: str
    program: Callable[[np.random.Generator], Program]
    data: Draw


KINDS: tuple[DemoKind, ...] = (
    DemoKind(
        name="kmeans",
        program=lambda rng: KMeans(k=60, init="sample", iterations=80, seed=int(rng.integers(99))),
        data=clusters(110_000, 32, 90),
    ),
    DemoKind(
        name="logreg",
        program=lambda rng: LogisticRegression(iterations=150, learning_rate=float(rng.choice([0.5, 2.0]))),
        data=classes(56_000, 100, 10),
    ),
    DemoKind(
        name="svm",
        program=lambda rng: LinearSVM(iterations=150, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=classes(56_000, 100, 10),
    ),
    DemoKind(name="svmpoly", program=lambda rng: PolynomialSVM(iterations=300), data=classes(4_000, 20)),
    DemoKind(
        name="gbt",
        program=lambda rng: GBTClassifier(iterations=80, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=classes(84_000, 30),
    ),
    DemoKind(
        name="gbtreg",
        program=lambda rng: GBTRegressor(iterations=80, learning_rate=float(rng.choice([0.1, 0.3]))),
        data=numbers(84_000, 30),
    ),
    DemoKind(
        name="mlp",
        program=lambda rng: MLPClassifier(hidden=(64,), iterations=120, seed=int(rng.integers(99))),
        data=classes(42_000, 40, 6),
    ),
    DemoKind(
        name="lda",
        program=lambda rng: LDA(topics=12, iterations=50, seed=int(rng.integers(99))),
        data=documents(1_250, 600, 12),
    ),
    DemoKind(
        name="linreg",
        program=lambda rng: LinearRegression(iterations=150, l2=1e-7),
        data=numbers(100_000, 80),
    ),
)
#: The name of the job that is a plain script.
SCRIPT = "script"
SCRIPT_ROWS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job of the demo."""

    name: str
    #: Seconds after the start.
    arrival: float
    #: None for the script.
    program: Program | None
    data: Dataset | None
    #: Rows that the script trains on.
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The number of jobs, the time over which they arrive, and the size of their data."""

    jobs: int
    #: Seconds over which the jobs arrive.
    seconds: float
    #: Multiplies the usual number of rows.
    size: float


#: The default amount by engine: on two cores, ten or more jobs are active at a time.
USUAL_AMOUNTS = {
    "local": Amount(jobs=30, seconds=30.0, size=0.9),
    "spark": Amount(jobs=20, seconds=60.0, size=1.0),
}


def usable_kinds() -> tuple[DemoKind, ...]:
    """Return the kinds of job that this installation can run: LDA needs SciPy."""
    try:
        with needs("scipy"):
            import scipy.sparse  # noqa: F401
    except MissingExtraError:
        return tuple(kind for kind in KINDS if kind.name != "lda")
    return KINDS


def runs_scripts() -> bool:
    """Tell whether commands can be jobs on this system."""
    return sys.platform == "linux"


def plan(amount: Amount, rng: np.random.Generator, data: Mapping[str, Draw]) -> list[PlannedJob]:
    """Return the jobs in order of arrival; all kinds occur about equally often, in random order.

    `data` replaces the data of the kinds that it names.
    """
    count, usable = amount.jobs, usable_kinds()
    kinds = [usable[place % len(usable)] for place in rng.permutation(count)]
    # One arrival at a random moment of each slice of the time, so that the cores are never idle for long.
    arrivals = (np.arange(count) + rng.random(count)) * amount.seconds / count
    arrivals[0] = 0.0
    script = count // 3 if count > 1 and runs_scripts() else -1
    jobs = []
    for place, arrival in enumerate(arrivals.tolist()):
        if place == script:
            rows = max(int(SCRIPT_ROWS * amount.size), 200)
            jobs.append(
                PlannedJob(name=f"{SCRIPT}-{place}", arrival=arrival, program=None, data=None, rows=rows)
            )
            continue
        kind = kinds[place]
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
    """Return the real data sets found in the folder, by the kind of job that trains on each."""
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
        with needs("scipy"):
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
