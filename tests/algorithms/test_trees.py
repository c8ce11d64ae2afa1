"""Laws of binning, histograms and splits."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from slaq.algorithms.memo import Memo
from slaq.algorithms.trees import Growth, Tree, bin_edges, binned, grow, level_histogram
from tests.algorithms.samples import sparse

ROWS = arrays(float, st.tuples(st.integers(1, 40), st.integers(1, 4)), elements=st.integers(-5, 5).map(float))


@given(ROWS, st.integers(2, 12))
def test_bins_keep_the_order_of_values(x: Any, bins: int) -> None:
    """A greater value never has a smaller bin; with bins enough, distinct values have distinct bins."""
    edges = bin_edges(x, bins)
    found = binned(x, edges)
    assert edges.shape == (x.shape[1], bins - 1)
    assert found.max() < bins
    for column, places in zip(x.T, found, strict=True):
        order = np.argsort(column, kind="stable")
        assert np.all(np.diff(places[order].astype(int)) >= 0)
        if len(np.unique(column)) <= bins:
            assert len(np.unique(places)) == len(np.unique(column))


def test_bins_are_about_even() -> None:
    """Where there are more values than bins, each holds about as many rows, however skewed the feature."""
    x = np.exp(3 * np.random.default_rng(0).standard_normal((20_000, 1)))
    counts = np.bincount(binned(x, bin_edges(x, 32))[0], minlength=32)
    assert counts.min() > 0.9 * 20_000 / 32
    assert counts.max() < 1.1 * 20_000 / 32
    np.testing.assert_array_equal(binned(sparse(x), bin_edges(x, 32)), binned(x, bin_edges(x, 32)))


@given(ROWS, st.integers(0, 1000), st.integers(1, 4))
def test_the_best_split_is_the_best_of_all(x: Any, seed: int, min_rows: int) -> None:
    """The root's split has the highest gain among all features and cuts that leave enough rows on both sides."""
    gradients = np.random.default_rng(seed).standard_normal(len(x))
    growth = Growth(depth=1, min_rows=min_rows, l2=0.5, shrinkage=1.0)

    def value(chosen: Any) -> float:
        return float(gradients[chosen].sum() ** 2 / (chosen.sum() + 0.5))

    def gain(left: Any) -> float:
        return value(left) + value(~left) - value(np.ones(len(x), dtype=bool))

    gains = [
        gain(x[:, feature] <= cut)
        for feature in range(x.shape[1])
        for cut in np.unique(x[:, feature])
        if min_rows <= (x[:, feature] <= cut).sum() <= len(x) - min_rows
    ]
    edges = bin_edges(x, 16)
    bins = binned(x, edges)
    sums = np.stack([gradients, np.ones(len(x))])
    root = level_histogram(bins, 16, np.zeros(len(x), dtype=np.intp), 0, sums)
    tree = grow(growth, root, lambda _tree, _level: root)
    best = max(gains, default=-np.inf)
    if best > 1e-6:
        left = x[:, tree.feature[0]] <= edges[tree.feature[0], tree.threshold[0]]
        assert gain(left) == pytest.approx(best)
        expected = np.where(left, *(-gradients[side].sum() / (side.sum() + 0.5) for side in (left, ~left)))
        np.testing.assert_allclose(tree.predict(bins), expected)
    elif best < 0:
        assert tree.feature[0] == -1


def test_deeper_levels_see_their_own_rows_only() -> None:
    """The histogram of a level adds up to the rows that are at it, leaves above it left out."""
    generator = np.random.default_rng(0)
    bins = generator.integers(0, 8, (3, 200)).astype(np.uint8)
    tree = Tree.stump(3)
    tree.feature[[0, 1]] = [0, 1]
    tree.threshold[[0, 1]] = [3, 4]
    table = level_histogram(bins, 8, tree.nodes(bins), 2, np.ones((3, 200)))
    left = bins[0] <= 3
    expected = [(left & (bins[1] <= 4)).sum(), (left & (bins[1] > 4)).sum(), 0, 0]
    np.testing.assert_array_equal(table[..., 2].sum(axis=2), np.tile(expected, (3, 1)).T)


def test_a_tree_that_cannot_be_split_is_one_leaf() -> None:
    """Rows that are all alike end in one leaf, worth the mean."""
    x, gradients = np.zeros((30, 2)), np.full(30, -2.0)
    bins = binned(x, bin_edges(x, 4))
    root = level_histogram(bins, 4, np.zeros(30, dtype=np.intp), 0, np.stack([gradients, np.ones(30)]))
    tree = grow(Growth(depth=3, min_rows=1, l2=0.0, shrinkage=0.5), root, lambda _tree, _level: root)
    assert np.all(tree.feature == -1)
    np.testing.assert_allclose(tree.predict(bins), 1.0)


def test_what_is_kept_is_bounded() -> None:
    """The memo forgets what was used longest ago, and what is too large for it at all."""
    memo = Memo(max_bytes=100)
    memo.put("a", np.zeros(5))
    memo.put("b", np.zeros(5))
    assert memo.get("a") is not None
    memo.put("c", np.zeros(5))
    assert memo.get("b") is None
    assert memo.get("a") is not None
    memo.put("d", np.zeros(50))
    assert memo.get("d") is None
    kept = np.zeros(2)
    memo.put("e", kept)
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1.0
    memo.drop("e")
    assert memo.get("e") is None
