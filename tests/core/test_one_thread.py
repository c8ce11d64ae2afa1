"""Laws of products in one thread."""

from threading import Event, Thread

from slaq.core.one_thread import _pools, in_one_thread


def threads() -> list[int]:
    """Return the sizes of the pools that multiply NumPy's matrices; SciPy brings one of its own."""
    return [pool["num_threads"] for pool in _pools().info()]


def test_pools_are_given_back_by_the_last_to_leave() -> None:
    """Inside, products have one thread, however calls overlap; after the last, as many as before the first."""
    before = threads()
    entered, leave = Event(), Event()

    @in_one_thread
    def stay() -> None:
        entered.set()
        assert leave.wait(10)

    @in_one_thread
    def look() -> list[int]:
        return threads()

    other = Thread(target=stay)
    other.start()
    assert entered.wait(10)
    assert set(look()) <= {1}
    assert set(threads()) <= {1}
    leave.set()
    other.join()
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
