"""Laws of the exception tree."""

import inspect
import pickle

import pytest

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
    """For a name unlike every known one, the message lists the names and guesses none."""
    assert str(UnknownNameError("policy", "zzz", ["fair"])) == "there is no policy 'zzz'; known: fair"


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownNameError("policy", "fare", ["fair"]),
        errors.WorkloadError("jobs.jsonl", 3, "no id", "give one"),
        errors.TaskError(2, "its worker died"),
        errors.SlaqError("plain"),
    ],
)
def test_errors_survive_the_way_between_processes(error: errors.SlaqError) -> None:
    """A pickled error keeps its type, its message and its data."""
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_the_error_of_a_failed_job_controls_no_terminal() -> None:
    """Python writes errors to the terminal as they are, so what the job printed stands in the text as escapes."""
    error = errors.JobFailedError("train", "exit status 1; the end of its log: \x1b]0;owned\x07\nsecond line")
    assert (
        str(error) == "job 'train' failed: exit status 1; the end of its log: \\x1b]0;owned\\x07\nsecond line"
    )
    assert "\x1b" in error.reason
