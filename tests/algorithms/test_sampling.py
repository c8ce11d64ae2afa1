"""Laws of random rows: a seed decides, the cut into partitions does not."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slaq.algorithms.kmeans import draw
from slaq.algorithms.sampling import sample, uniforms
from slaq.jobs.data import Dataset, Partition
from slaq.jobs.inline import InlineContext
from tests.algorithms.samples import sparse


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 2**63 - 1))
def test_a_row_has_the_same_number_in_every_cut(rows: int, partitions: int, seed: int) -> None:
    """The numbers of the partitions, put together, are those of the whole; all are in (0, 1]."""
    data = Dataset(np.zeros((rows, 1)))
    whole = uniforms(data.cut(1)[0], seed)
    np.testing.assert_array_equal(np.concatenate([uniforms(p, seed) for p in data.cut(partitions)]), whole)
    assert np.all((whole > 0) & (whole <= 1))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 80), st.integers(0, 1000))
def test_a_sample_is_of_distinct_rows_whatever_the_cut(rows: int, cut: int, count: int, seed: int) -> None:
    """So many rows, all if fewer, each once, in the data's order, the same dense and sparse."""
    x = np.arange(1.0, rows + 1)[:, None]
    found = sample(InlineContext(Dataset(x), partitions=cut), count, seed)
    assert len(found) == min(count, rows)
    assert np.all(np.diff(found[:, 0]) > 0)
    np.testing.assert_array_equal(found, sample(InlineContext(Dataset(x)), count, seed))
    np.testing.assert_array_equal(
        found, sample(InlineContext(Dataset(sparse(x)), partitions=cut), count, seed)
    )


def test_a_centre_is_drawn_with_a_chance_as_its_squared_distance() -> None:
    """Rows 0, 1, 2 and 3 away from the centre are drawn 0, 1, 4 and 9 times in 14."""
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    partition, centres = Partition(0, 0, x), np.zeros((1, 1))
    drawn = np.array([draw(partition, centres, seed)[1][0] for seed in range(4000)])
    shares = np.bincount(drawn.astype(int), minlength=4) / 4000
    np.testing.assert_allclose(shares, np.array([0, 1, 4, 9]) / 14, atol=0.03)
