"""Laws of products in one thread."""

from threading import Thread

from slaq.core.one_thread import _pools, in_one_thread


def threads() -> list[int]:
    """Return the sizes of the pools that multiply NumPy's matrices; SciPy brings one of its own."""
    return [pool["num_threads"] for pool in _pools().info()]


def test_products_have_one_thread_in_any_thread_and_pools_are_given_back() -> None:
    """Inside, products have one thread, in calls that overlap and nest too; after the last, as many as before."""
    before = threads()
    seen: list[list[int]] = []

    @in_one_thread
    def look() -> None:
        seen.append(threads())

    @in_one_thread
    def nest() -> None:
        look()
        seen.append(threads())

    for _ in range(3):
        others = [Thread(target=nest) for _ in range(4)]
        for other in others:
            other.start()
        nest()
        for other in others:
            other.join()
    assert len(seen) == 30
    assert all(set(one) <= {1} for one in seen)
    assert threads() == before


def test_an_error_gives_the_pools_back() -> None:
    """A call that raises leaves the pools as they were."""
    before = threads()

    @in_one_thread
    def fail() -> None:
        raise ValueError

    try:
        fail()
    except ValueError:
        assert threads() == before
    else:
        raise AssertionError("the error was lost")
