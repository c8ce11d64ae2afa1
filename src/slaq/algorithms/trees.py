"""Regression trees grown level by level from histograms of binned features (Chen and Guestrin 2016)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slaq.algorithms.inputs import Floats, dense

#: A feature's bin numbers fit in a byte.
MAX_BINS = 256
#: Rows that are made dense at once while they are binned.
BLOCK = 8192
#: A child must hold this much curvature for its value to be known.
MIN_CURVATURE = 1e-3
#: Gains this close (relative) are a tie, which the first split wins: rounding must not choose between them.
TIE = 1e-9

Bins = NDArray[np.uint8]  # features x rows
Histogram = Floats  # nodes x features x bins x (gradient, curvature, rows)


def bin_edges(rows: Floats, bins: int) -> Floats:
    """Return the upper edges of each feature's bins (features x bins - 1), inf where it has fewer values.

    A feature with no more distinct values than bins has one bin each; else bins hold about as many rows each.
    """
    edges = np.full((rows.shape[1], bins - 1), np.inf)
    for feature, column in enumerate(rows.T):
        distinct = np.unique(column)
        if len(distinct) <= bins:
            cuts = distinct[:-1] + np.diff(distinct) / 2
        else:
            cuts = np.unique(np.quantile(column, np.arange(1, bins) / bins, method="midpoint"))
        edges[feature, : len(cuts)] = cuts
    return edges


def binned(x: Any, edges: Floats) -> Bins:
    """Return the bin of each entry, by feature; sparse rows are made dense block by block."""
    bins = np.empty((len(edges), x.shape[0]), dtype=np.uint8)
    used = np.isfinite(edges).sum(axis=1)
    for start in range(0, x.shape[0], BLOCK):
        columns = np.ascontiguousarray(dense(x[start : start + BLOCK]).T)
        for feature, column in enumerate(columns):
            bins[feature, start : start + BLOCK] = np.searchsorted(edges[feature, : used[feature]], column)
    return bins


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tree:
    """A binary tree in an array: the children of node i are 2i + 1 (below the threshold, or at it) and 2i + 2."""

    #: The feature a node splits on; -1 in a leaf.
    feature: NDArray[np.int32]
    #: The last bin that goes left (while training), or the value (in a model).
    threshold: NDArray[Any]
    value: Floats

    @classmethod
    def stump(cls, depth: int) -> Self:
        """Return a tree of one leaf worth 0, with room to grow to a depth."""
        nodes = 2 ** (depth + 1) - 1
        return cls(
            feature=np.full(nodes, -1, dtype=np.int32),
            threshold=np.zeros(nodes, dtype=np.uint8),
            value=np.zeros(nodes),
        )

    @property
    def depth(self) -> int:
        """How deep the tree may be."""
        return (len(self.feature) + 1).bit_length() - 2

    def nodes(self, columns: NDArray[Any]) -> NDArray[np.intp]:
        """Return the leaf that each row ends in; columns are features x rows."""
        rows = np.arange(columns.shape[1])
        node = np.zeros(len(rows), dtype=np.intp)
        for _ in range(self.depth):
            feature = self.feature[node]
            right = columns[feature, rows] > self.threshold[node]
            node = np.where(feature < 0, node, 2 * node + 1 + right)
        return node

    def predict(self, columns: NDArray[Any]) -> Floats:
        """Return the value of the leaf that each row ends in."""
        return self.value[self.nodes(columns)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a tree grows: how deep, how small its leaves may be, and how far its values are shrunk."""

    depth: int
    min_rows: int
    l2: float
    shrinkage: float

    def leaf(self, sums: Floats) -> Floats:
        """Return the value -G / (H + l2) that suits leaves with these sums of (gradient, curvature, rows)."""
        return -self.shrinkage * sums[..., 0] / np.maximum(sums[..., 1] + self.l2, 1e-12)

    def strength(self, sums: Floats) -> Floats:
        """Return G² / (H + l2), twice what the leaf's value cuts from the loss."""
        strength: Floats = sums[..., 0] ** 2 / np.maximum(sums[..., 1] + self.l2, 1e-12)
        return strength

    def best_splits(self, histogram: Histogram) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats, Floats]:
        """Return, for each node: the feature (-1 for none), the last bin that goes left, and both sides' sums."""
        left = np.cumsum(histogram, axis=2)[:, :, :-1]
        whole = histogram[:, :1].sum(axis=2, keepdims=True)
        right = whole - left
        gains = self.strength(left) + self.strength(right) - self.strength(whole)
        for side in (left, right):
            gains[(side[..., 2] < self.min_rows) | (side[..., 1] < MIN_CURVATURE)] = -np.inf
        nodes, _, cuts = gains.shape
        flat = gains.reshape(nodes, -1)
        top = flat.max(axis=1, keepdims=True)
        first = np.argmax(flat >= top - TIE * np.abs(top), axis=1)
        feature, cut = first // cuts, first % cuts
        index = np.arange(nodes)
        # Gain is relative to what the node's own value cuts: a split by rounding error is none.
        found = top[:, 0] > TIE * (1.0 + self.strength(whole)[:, 0, 0])
        return np.where(found, feature, -1), cut, left[index, feature, cut], right[index, feature, cut]


def grow(growth: Growth, root: Histogram, histogram: Callable[[Tree, int], Histogram]) -> Tree:
    """Return a tree grown level by level: one histogram of the data for each level below the root's."""
    tree = Tree.stump(growth.depth)
    tree.value[0] = growth.leaf(root[0, 0].sum(axis=0))
    for level in range(growth.depth):
        table = root if level == 0 else histogram(tree, level)
        feature, cut, left, right = growth.best_splits(table)
        split = np.flatnonzero(feature >= 0)
        if not len(split):
            break
        nodes = 2**level - 1 + split
        tree.feature[nodes] = feature[split]
        tree.threshold[nodes] = cut[split]
        tree.value[2 * nodes + 1] = growth.leaf(left[split])
        tree.value[2 * nodes + 2] = growth.leaf(right[split])
    return tree


def level_histogram(bins: Bins, count: int, nodes: NDArray[np.intp], level: int, sums: Floats) -> Histogram:
    """Return, for each node of a level, feature and bin, the sums of the rows there.

    `sums` has one row per quantity: gradient, curvature, and 1 for the number of rows (left out where every
    curvature is 1, which counts them already).
    """
    first, width = 2**level - 1, 2**level
    inside = nodes >= first
    if not inside.all():
        bins, nodes, sums = bins[:, inside], nodes[inside], sums[:, inside]
    base = (nodes - first) * count
    table = np.empty((width, len(bins), count, 3))
    for feature, column in enumerate(bins):
        index = base + column
        for quantity, weights in enumerate(sums):
            found = np.bincount(index, weights, minlength=width * count)
            table[:, feature, :, quantity] = found.reshape(width, count)
    if len(sums) == 2:
        table[..., 2] = table[..., 1]
    return table
