"""Gradient-boosted trees for two classes and for regression: each iteration adds one tree."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from slaq.algorithms import hyperparameters as check
from slaq.algorithms.inputs import Floats, class_labels, dense, label_codes, matching, mean_target
from slaq.algorithms.memo import Memo
from slaq.algorithms.model import Model, accuracy, r_squared
from slaq.algorithms.probabilities import logistic
from slaq.algorithms.sampling import sample
from slaq.algorithms.training import Algorithm, TrainingRun
from slaq.algorithms.trees import (
    MAX_BINS,
    Bins,
    Growth,
    Histogram,
    Tree,
    bin_edges,
    binned,
    grow,
    level_histogram,
)
from slaq.core.errors import DataError, HyperparameterError
from slaq.jobs.context import Context
from slaq.jobs.data import Partition

#: Rows that the edges of the bins are found from.
SAMPLE = 10_000

#: What each worker process keeps of the partitions it has seen: their bins, and their margins so far.
MEMO = Memo(max_bytes=64 * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GBTModel(Model):
    """Trees whose values add up, one row of each array per tree."""

    features: NDArray[np.int32]  # trees x nodes, -1 in a leaf
    thresholds: Floats
    values: Floats
    #: What a row has before the first tree, and how many features it has.
    bias: float
    num_features: int

    def decision(self, x: Any) -> Floats:
        """Return the sum of the trees for each row; sparse rows are made dense."""
        columns = np.ascontiguousarray(dense(matching(x, self.num_features)).T)
        margins = np.full(columns.shape[1], self.bias)
        for feature, threshold, value in zip(self.features, self.thresholds, self.values, strict=True):
            margins += Tree(feature=feature, threshold=threshold, value=value).predict(columns)
        return margins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GBTRegressorModel(GBTModel):
    """Trees whose sum is the target."""

    def predict(self, x: Any) -> Floats:
        """Return the predicted target of each row."""
        return self.decision(x)

    def score(self, x: Any, y: Any) -> float:
        """Return R², the share of the targets' variance that the predictions explain."""
        return r_squared(self.predict(x), y)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GBTClassifierModel(GBTModel):
    """Trees whose sum is the log-odds of the second class."""

    classes: NDArray[Any]

    def predict_proba(self, x: Any) -> Floats:
        """Return the probability of each class for each row (rows x 2)."""
        values = self.decision(x)
        return np.stack([logistic(-values), logistic(values)], axis=1)

    def predict(self, x: Any) -> NDArray[Any]:
        """Return the class of each row."""
        return np.asarray(self.classes[(self.decision(x) > 0).astype(int)])

    def score(self, x: Any, y: Any) -> float:
        """Return the share of rows whose class is predicted right."""
        return accuracy(self.predict(x), y)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Boosting:
    """What all tasks of a run share: how features are binned, and what the trees are fitted to."""

    #: Names the run in what workers keep.
    token: str
    edges: Floats
    bias: float
    #: The two classes; None in regression.
    classes: NDArray[Any] | None

    def bins(self, partition: Partition) -> Bins:
        """Return the partition's features, binned."""
        key = (self.token, partition.index)
        bins = MEMO.get(key)
        if bins is None:
            bins = binned(partition.x, self.edges)
            MEMO.put(key, bins)
        return bins

    def margins(self, partition: Partition, trees: list[Tree]) -> Floats:
        """Return what the trees add up to for each row, by one more tree where the sum of the others is kept."""
        key = (self.token, partition.index, len(trees))
        margins = MEMO.get(key)
        if margins is not None:
            return margins
        before = (self.token, partition.index, len(trees) - 1)
        known = MEMO.get(before) if trees else None
        if known is not None:
            margins = known + trees[-1].predict(self.bins(partition))
        else:
            margins = np.full(len(partition), self.bias)
            for tree in trees:
                margins += tree.predict(self.bins(partition))
        MEMO.put(key, margins)
        MEMO.drop(before)
        return margins

    def loss_and_sums(self, partition: Partition, margins: Floats) -> tuple[float, Floats]:
        """Return the sum of the rows' losses, and the rows of gradient and curvature (see level_histogram)."""
        if self.classes is None:
            error = margins - np.asarray(partition.y, dtype=float)
            return float(error @ error), np.stack([error, np.ones(len(error))])
        label = label_codes(partition, self.classes)
        p = logistic(margins)
        loss = float(np.logaddexp(0.0, np.where(label, -margins, margins)).sum())
        return loss, np.stack([p - label, p * (1.0 - p), np.ones(len(p))])


def histogram(
    partition: Partition, boosting: Boosting, trees: list[Tree], growing: Tree, level: int
) -> tuple[float, Histogram]:
    """Return the loss of the trees so far, and the histogram of a level of the one that is growing."""
    bins, margins = boosting.bins(partition), boosting.margins(partition, trees)
    loss, sums = boosting.loss_and_sums(partition, margins)
    count = boosting.edges.shape[1] + 1
    return loss, level_histogram(bins, count, growing.nodes(bins), level, sums)


M_co = TypeVar("M_co", bound=GBTModel, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBoosting(Algorithm[M_co]):
    """Boosting over histograms: an iteration maps over the data once for each level of its tree.

    Sparse rows are made dense, block by block, when they are binned: a split separates zeros too.
    """

    learning_rate: float = 0.1
    depth: int = 4
    #: How many bins each feature is cut into, at most 256.
    bins: int = 64
    #: How few rows a leaf may hold.
    min_rows: int = 20
    #: Shrinks the values of leaves with little evidence.
    l2: float = 1.0
    seed: int = 0

    @override
    def check(self) -> None:
        check.real(self, "learning_rate", above=0)
        check.whole(self, "depth", at_least=1)
        check.whole(self, "bins", at_least=2)
        check.whole(self, "min_rows", at_least=1)
        check.real(self, "l2", at_least=0)
        check.whole(self, "seed", at_least=0)
        if self.depth > 12:
            raise HyperparameterError(type(self).__name__, "depth", self.depth, "at most 12")
        if self.bins > MAX_BINS:
            raise HyperparameterError(type(self).__name__, "bins", self.bins, f"at most {MAX_BINS}")

    @abstractmethod
    def start(self, ctx: Context) -> tuple[float, NDArray[Any] | None]:
        """Check the targets, and return the best constant model and the classes, if it is about classes."""

    @abstractmethod
    def model(self, parts: dict[str, Any]) -> M_co:
        """Return the model from its fields."""

    @override
    def __call__(self, ctx: Context) -> M_co:
        bias, classes = self.start(ctx)
        edges = bin_edges(sample(ctx, SAMPLE, self.seed), self.bins)
        boosting = Boosting(token=uuid4().hex, edges=edges, bias=bias, classes=classes)
        growth = Growth(depth=self.depth, min_rows=self.min_rows, l2=self.l2, shrinkage=self.learning_rate)

        def summed(growing: Tree, level: int) -> tuple[float, Histogram]:
            losses, tables = zip(*ctx.map(histogram, boosting, trees, growing, level), strict=True)
            return sum(losses) / ctx.data.num_rows, np.sum(tables, axis=0)

        run = TrainingRun(ctx, self)
        trees: list[Tree] = list(run.restored or [])
        # The root of the next tree is looked at together with the loss of those before it.
        loss, root = summed(Tree.stump(self.depth), 0)
        if not run.losses:
            run.record(loss, trees)
        while run.goes_on:
            trees = [*trees, grow(growth, root, lambda growing, level: summed(growing, level)[1])]
            loss, root = summed(Tree.stump(self.depth), 0)
            run.record(loss, trees)
        parts = _stacked(trees, self.depth, edges) | {"bias": bias, "losses": run.losses}
        return self.model(parts if classes is None else {**parts, "classes": classes})


def _stacked(trees: list[Tree], depth: int, edges: Floats) -> dict[str, Any]:
    """Return the arrays of a model: one row per tree, with values of features in place of bins."""
    shape = (len(trees), 2 ** (depth + 1) - 1)
    features = np.array([tree.feature for tree in trees], dtype=np.int32).reshape(shape)
    cuts = np.array([tree.threshold for tree in trees], dtype=int).reshape(shape)
    return {
        "features": features,
        "thresholds": np.where(features < 0, 0.0, edges[features, cuts]),
        "values": np.array([tree.value for tree in trees]).reshape(shape),
        "num_features": len(edges),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GBTRegressor(GradientBoosting[GBTRegressorModel]):
    """Loss: the mean squared error."""

    @override
    def start(self, ctx: Context) -> tuple[float, NDArray[Any] | None]:
        return mean_target(ctx, "GBTRegressor"), None

    @override
    def model(self, parts: dict[str, Any]) -> GBTRegressorModel:
        return GBTRegressorModel(**parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GBTClassifier(GradientBoosting[GBTClassifierModel]):
    """Loss: the mean over rows of -log p(label), for two classes."""

    @override
    def start(self, ctx: Context) -> tuple[float, NDArray[Any] | None]:
        classes = class_labels(ctx, "GBTClassifier")
        if len(classes) != 2:
            raise DataError(f"GBTClassifier: it separates two classes; y holds {len(classes)}")
        positive = sum(ctx.map(_positive, classes)) / ctx.data.num_rows
        return float(np.log(positive / (1.0 - positive))), classes

    @override
    def model(self, parts: dict[str, Any]) -> GBTClassifierModel:
        return GBTClassifierModel(**parts)


def _positive(partition: Partition, classes: NDArray[Any]) -> int:
    return int(label_codes(partition, classes).sum())
