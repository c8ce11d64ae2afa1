"""Laws of the exception tree."""

import inspect

from slaq.core import errors
from slaq.core.errors import SlaqError, UnknownNameError


def test_every_error_is_drawn_in_the_tree() -> None:
    """Each exception of the module descends from SlaqError and appears in its docstring."""
    classes = [
        item for _, item in inspect.getmembers(errors, inspect.isclass) if item.__module__ == errors.__name__
    ]
    assert all(issubclass(item, SlaqError) for item in classes)
    drawn = (SlaqError.__doc__ or "").split()
    assert [item.__name__ for item in classes if item.__name__ not in drawn] == []


def test_unknown_name_lists_the_known_ones_and_the_closest() -> None:
    """The message says what was found, what is known, and what was probably meant."""
    error = UnknownNameError("policy", "fiar", ["fair", "fifo"])
    assert str(error) == "there is no policy 'fiar'; did you mean 'fair'? known: fair, fifo"
    assert (error.kind, error.name, error.known) == ("policy", "fiar", ("fair", "fifo"))


def test_unknown_name_far_from_all_suggests_nothing() -> None:
    """A name unlike every known one gets the list without a guess."""
    assert str(UnknownNameError("policy", "zzz", ["fair"])) == "there is no policy 'zzz'; known: fair"
