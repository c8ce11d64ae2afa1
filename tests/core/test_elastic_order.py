"""Laws of the order in which elastic training uses samples and sums gradients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.elastic_training.position import Position, order
from slaq.elastic_training.tree import SumTree, block_level, height

COUNTS = st.integers(1, 40)


def summed(left: str, right: str) -> str:
    """Return a sum that tells its order."""
    return f"({left}+{right})"


def whole(count: int) -> str:
    """Return the sum over single micro-batches that arrive in order."""
    tree = SumTree(count, summed)
    for index in range(count):
        tree.add(0, index, str(index))
    return tree.complete[0]


@given(COUNTS, st.integers(0, 6), st.data())
def test_a_sum_does_not_depend_on_who_computed_what(count: int, level: int, data: st.DataObject) -> None:
    """Blocks of any size, arriving in any order, give the sum of single micro-batches in order."""
    level = min(level, height(count))
    tree = SumTree(count, summed)
    for start in data.draw(st.permutations(range(0, count, 1 << level))):
        block = SumTree(count, summed, level=level)
        inside = range(start, min(start + (1 << level), count))
        for index in data.draw(st.permutations(inside)):
            block.add(0, index, str(index))
        tree.add(level, start, block.complete[start])
    assert tree.complete == {0: whole(count)}


@given(COUNTS, st.integers(1, 20))
def test_no_blocks_are_done_sooner(count: int, workers: int) -> None:
    """The last worker computes as few micro-batches as blocks of any size allow; one worker computes one block."""
    level = block_level(count, workers)
    if workers == 1:
        assert 1 << level >= count
    # Blocks of one are the most even.
    assert 1 << level <= max(-(-count // workers), 1 << height(count) if workers == 1 else 1)


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 8), st.integers(1, 4))
def test_every_sample_is_used_once_a_pass(samples: int, batch: int, parts: int, passes: int) -> None:
    """Each pass is cut without gaps, overlaps or padding, and no micro-batch is empty or too large."""
    size = -(-batch // parts)
    position = Position()
    used: list[tuple[int, int]] = []
    while position.passes < passes:
        work = position.work(samples, batch=batch, size=size)
        assert work.update == position.updates
        for index in range(work.micro_batches):
            begin, end = work.bounds(index)
            assert 0 < end - begin <= size
            used.extend((work.passed, place) for place in range(begin, end))
        position = position.after(work, samples)
    assert used == [(passed, place) for passed in range(passes) for place in range(samples)]


@given(st.integers(0, 2**64 - 1), st.integers(0, 5), st.integers(1, 200))
def test_a_pass_has_every_sample(seed: int, passed: int, samples: int) -> None:
    """The order of a pass is a permutation."""
    assert sorted(order(seed, passed, samples)) == list(range(samples))


@pytest.mark.parametrize(
    ("seed", "passed", "expected"), [(0, 0, [0, 2, 4, 1, 3, 5]), (7, 1, [5, 2, 3, 0, 4, 1])]
)
def test_the_order_is_the_same_everywhere(seed: int, passed: int, expected: list[int]) -> None:
    """It is part of what checkpoints rest on: the same on any machine, with any version of NumPy."""
    assert order(seed, passed, 6).tolist() == expected
