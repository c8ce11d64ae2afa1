"""The paper's nine algorithms (Table 1) with several settings each, and the data that suits them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from replication.training_sets import TrainingSet, available
from slaq import Dataset
from slaq.algorithms import (
    LDA,
    Algorithm,
    GBTClassifier,
    GBTRegressor,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    MLPClassifier,
    Model,
    PolynomialSVM,
)

#: An iteration that changes the loss by less than this share of it ends a run: what is left is rounding.
CONVERGED = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm: what it can be trained on, and its settings."""

    #: As the paper's Table 1 has it.
    acronym: str
    tasks: tuple[str, ...]
    #: Programs by a few letters that say what is particular to each.
    programs: dict[str, Algorithm[Model]]


CATALOGUE: tuple[Entry, ...] = (
    Entry(
        acronym="K-Means",
        tasks=("clusters",),
        programs={
            "k8": KMeans(k=8, init="sample", iterations=60, tolerance=CONVERGED),
            "k20": KMeans(k=20, init="sample", iterations=80, tolerance=CONVERGED, seed=1),
            "k40": KMeans(k=40, init="sample", iterations=100, tolerance=CONVERGED, seed=2),
            "k40spread": KMeans(k=40, iterations=100, tolerance=CONVERGED, seed=3),
        },
    ),
    Entry(
        acronym="LogReg",
        tasks=("two-classes", "classes"),
        programs={
            "steady": LogisticRegression(iterations=150, tolerance=CONVERGED),
            "slow": LogisticRegression(iterations=200, learning_rate=0.1, tolerance=CONVERGED),
            "weak-l2": LogisticRegression(iterations=300, l2=1e-6, tolerance=CONVERGED),
        },
    ),
    Entry(
        acronym="SVM",
        tasks=("two-classes", "classes"),
        programs={
            "steady": LinearSVM(iterations=150, tolerance=CONVERGED),
            "slow": LinearSVM(iterations=200, learning_rate=0.01, tolerance=CONVERGED),
            "weak-l2": LinearSVM(iterations=300, l2=1e-6, tolerance=CONVERGED),
        },
    ),
    Entry(
        acronym="SVMPoly",
        tasks=("two-classes", "classes"),
        programs={
            "degree2": PolynomialSVM(degree=2, landmarks=100, iterations=120, tolerance=CONVERGED),
            "degree3": PolynomialSVM(degree=3, landmarks=150, iterations=200, tolerance=CONVERGED),
        },
    ),
    Entry(
        acronym="GBT",
        tasks=("two-classes",),
        programs={
            "shallow": GBTClassifier(depth=2, learning_rate=0.1, iterations=100),
            "usual": GBTClassifier(depth=4, learning_rate=0.1, iterations=80),
            "eager": GBTClassifier(depth=4, learning_rate=0.4, iterations=60),
        },
    ),
    Entry(
        acronym="GBTReg",
        tasks=("numbers",),
        programs={
            "shallow": GBTRegressor(depth=2, learning_rate=0.1, iterations=100),
            "usual": GBTRegressor(depth=4, learning_rate=0.1, iterations=80),
            "eager": GBTRegressor(depth=4, learning_rate=0.4, iterations=60),
        },
    ),
    Entry(
        acronym="MLPC",
        tasks=("two-classes", "classes"),
        programs={
            "16": MLPClassifier(hidden=(16,), iterations=100, tolerance=CONVERGED),
            "64": MLPClassifier(hidden=(64,), iterations=150, l2=1e-3, tolerance=CONVERGED, seed=1),
            "32x16": MLPClassifier(hidden=(32, 16), iterations=120, tolerance=CONVERGED, seed=2),
        },
    ),
    Entry(
        acronym="LDA",
        tasks=("documents",),
        programs={
            "5": LDA(topics=5, iterations=50, tolerance=CONVERGED),
            "10": LDA(topics=10, iterations=60, tolerance=CONVERGED, seed=1),
            "20": LDA(topics=20, iterations=80, tolerance=CONVERGED, seed=2),
            "online": LDA(topics=10, optimizer="online", batch_rows=64, iterations=120, seed=3),
        },
    ),
    Entry(
        acronym="LinReg",
        tasks=("numbers",),
        programs={
            "usual": LinearRegression(iterations=80, l2=1e-6, tolerance=1e-8),
            "ridge": LinearRegression(iterations=80, l2=1e-2, tolerance=1e-8),
            "short-memory": LinearRegression(iterations=80, l2=1e-6, memory=2, tolerance=1e-8),
        },
    ),
)

ACRONYMS: tuple[str, ...] = tuple(entry.acronym for entry in CATALOGUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One run to be: an algorithm with its settings, on data that is drawn when it is asked for."""

    name: str
    acronym: str
    program: Algorithm[Model]
    training_set: TrainingSet
    seed: int

    def draw(self) -> Dataset:
        """Return the data; always the same."""
        return self.training_set.draw(np.random.default_rng(self.seed), 1.0)


def trainings(data: Path | None, sizes: tuple[float, ...], settings: int | None = None) -> Iterator[Training]:
    """Yield every algorithm with its first `settings` settings (all by default) on every set that suits it."""
    sets = available(data, sizes)
    for entry in CATALOGUE:
        for seed, chosen in enumerate(one for one in sets if one.task in entry.tasks):
            many = "" if chosen.task != "two-classes" else "-2"
            for label, program in list(entry.programs.items())[:settings]:
                yield Training(
                    name=f"{entry.acronym.lower()}-{label}-{chosen.name}{many}",
                    acronym=entry.acronym,
                    program=program,
                    training_set=chosen,
                    seed=seed,
                )
