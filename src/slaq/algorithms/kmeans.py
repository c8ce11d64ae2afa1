"""K-Means by Lloyd's algorithm: rows go to their nearest centre, centres to the mean of their rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.inputs import Floats, check_features, dense, is_sparse, matching
from slaq.algorithms.model import Model
from slaq.algorithms.sampling import sample, uniforms
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.core.errors import DataError
from slaq.jobs.context import Context
from slaq.jobs.data import Partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KMeansModel(Model):
    """Cluster centres."""

    centres: Floats  # k x features

    def transform(self, x: Any) -> Floats:
        """Return the distance of each row to each centre."""
        return np.sqrt(squared_distances(matching(x, self.centres.shape[1]), self.centres))

    def predict(self, x: Any) -> NDArray[np.intp]:
        """Return the index of each row's nearest centre."""
        distances = squared_distances(matching(x, self.centres.shape[1]), self.centres)
        return np.asarray(distances.argmin(axis=1))

    def score(self, x: Any) -> float:
        """Return the inertia of the rows, less being better, with the sign turned."""
        return -float(squared_distances(matching(x, self.centres.shape[1]), self.centres).min(axis=1).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class KMeans(Algorithm[KMeansModel]):
    """Loss: the inertia, the sum over rows of the squared distance to the nearest centre.

    A centre that no row is nearest to stays where it is.
    """

    #: How many clusters.
    k: int = 8
    #: "k-means++" (Arthur and Vassilvitskii 2007; one pass per centre) or "sample" (any k rows; one pass).
    init: str = "k-means++"
    seed: int = 0

    @override
    def check(self) -> None:
        check.whole(self, "k", at_least=1)
        check.choice(self, "init", ("k-means++", "sample"))
        check.whole(self, "seed", at_least=0)

    @override
    def __call__(self, ctx: Context) -> KMeansModel:
        run = TrainingRun(ctx, self)
        centres = run.restored
        if centres is None:
            check_features(ctx, "KMeans")
            if self.k > ctx.data.num_rows:
                raise DataError(f"KMeans: {self.k} clusters need as many rows; there are {ctx.data.num_rows}")
            centres = self._spread(ctx) if self.init == "k-means++" else sample(ctx, self.k, self.seed)
        inertia, sums, counts = _total(ctx.map(assign, centres))
        if not run.losses:
            run.record(inertia, centres)
        while run.goes_on:
            centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
            inertia, sums, counts = _total(ctx.map(assign, centres))
            run.record(inertia, centres)
        return KMeansModel(centres=centres, losses=run.losses)

    def _spread(self, ctx: Context) -> Floats:
        """Return centres drawn one after another, each row with a chance as its squared distance."""
        centres = np.empty((0, ctx.data.num_features))
        seeds = np.random.default_rng(self.seed).integers(2**63, size=self.k)
        for seed in seeds.tolist():
            _, row = min(ctx.map(draw, centres, seed), key=_by_time)
            centres = np.vstack([centres, row])
        return centres


def squared_distances(x: Any, centres: Floats) -> Floats:
    """Return |x - c|² = |x|² - 2 x·c + |c|² for each row and centre."""
    if is_sparse(x):
        lengths = np.asarray(x.astype(float).power(2).sum(axis=1)).reshape(-1, 1)
    else:
        lengths = np.einsum("ij,ij->i", x, x, dtype=float)[:, None]
    distances: Floats = lengths - 2.0 * (x @ centres.T) + np.einsum("ij,ij->i", centres, centres)
    return np.maximum(distances, 0.0, out=distances)


def assign(partition: Partition, centres: Floats) -> tuple[float, Floats, Floats]:
    """Return the inertia, and for each centre the sum and the number of the rows nearest to it."""
    distances = squared_distances(partition.x, centres)
    nearest = distances.argmin(axis=1)
    membership = (nearest == np.arange(len(centres))[:, None]).astype(float)
    inertia = float(distances[np.arange(len(partition)), nearest].sum())
    return inertia, dense(membership @ partition.x), membership.sum(axis=1)


def draw(partition: Partition, centres: Floats, seed: int) -> tuple[float, Floats]:
    """Return the row of this partition that comes up first, and when.

    Rows come up after exponential times with rate D², their squared distance to the nearest centre, so the
    first of all partitions is drawn with chance D² / ΣD²: one pass, and no sums to be shared beforehand.
    """
    distances = squared_distances(partition.x, centres)
    rates = distances.min(axis=1) if len(centres) else np.ones(len(partition))
    waits = -np.log(uniforms(partition, seed))
    times = np.divide(waits, rates, out=np.full(len(rates), np.inf), where=rates > 0)
    first = int(times.argmin())
    return float(times[first]), dense(partition.x[first : first + 1])[0]


def _by_time(drawn: tuple[float, Floats]) -> float:
    return drawn[0]


def _total(parts: list[tuple[float, Floats, Floats]]) -> tuple[float, Floats, Floats]:
    inertias, sums, counts = zip(*parts, strict=True)
    return sum(inertias), np.sum(sums, axis=0), np.sum(counts, axis=0)
