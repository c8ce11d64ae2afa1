"""Laws of grids: every combination is one job, and commands hold what was typed."""

import csv
import io
import json
import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.cli.input.submissions import typed_grid
from slaq.core.errors import GridError
from slaq.jobs.grid import (
    LONGEST_VALUE,
    MOST_JOBS,
    MOST_PARAMETERS,
    check_placeholders,
    combinations,
    filled,
    grid_jobs,
    is_kept,
    kept,
    kept_text,
    placeholders,
    unused_name,
)
from slaq.jobs.options import NAME, SERVICE

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,9}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
GRIDS = st.dictionaries(NAMES, st.lists(TEXTS, min_size=1, max_size=4, unique=True), max_size=4)


@given(GRIDS)
def test_every_combination_is_one_job(grid: dict[str, list[str]]) -> None:
    """The jobs are the product of the values, each once, those of the last parameter changing first."""
    jobs = [tuple(one.values()) for one in combinations(grid)]
    assert jobs == list(product(*grid.values()))
    assert len(set(jobs)) == len(jobs) == math.prod(map(len, grid.values()))
    assert all(list(one) == list(grid) for one in combinations(grid))


@given(GRIDS, NAMES)
def test_jobs_of_a_grid_have_names_of_their_own(grid: dict[str, list[str]], group: str) -> None:
    """Each is numbered in order, under a name that a job may have."""
    jobs = grid_jobs(grid, group=group * 8)
    assert [job.name.rpartition("-")[2] for job in jobs] == [str(n + 1) for n in range(len(jobs))]
    assert all(NAME.fullmatch(job.name) for job in jobs)
    assert {job.group for job in jobs} == {group * 8}
    assert {job.name.rpartition("-")[0] for job in grid_jobs(grid, group=group, name="net")} == {"net"}


@given(st.dictionaries(NAMES, TEXTS, max_size=4), st.lists(TEXTS, max_size=4))
def test_a_command_holds_what_was_typed(parameters: dict[str, str], literal: list[str]) -> None:
    """Each {name} becomes the value as it was typed, and doubled braces the text that they were made of."""
    doubled = [text.replace("{", "{{").replace("}", "}}") for text in literal]
    words = [*doubled, *(f"--{name}={{{name}}}" for name in parameters)]
    check_placeholders(words, list(parameters))
    typed = [f"--{name}={value}" for name, value in parameters.items()]
    assert list(filled(words, parameters)) == [*literal, *typed]


@given(st.lists(st.text("ab{}", max_size=8), max_size=3))
def test_a_command_is_filled_or_refused(words: list[str]) -> None:
    """Whatever braces a command has, it is refused, or each of them is a parameter's or doubled."""
    try:
        names = placeholders(words)
    except GridError:
        return
    assert names <= {"a", "b"} | {"".join(one) for n in range(2, 9) for one in product("ab", repeat=n)}
    whole = filled(words, dict.fromkeys(names, "v"))
    undone = [word.replace("{{", "").replace("}}", "") for word in words]
    assert [word.count("{") for word in undone] == [word.count("}") for word in undone]
    assert len(whole) == len(words)


@given(GRIDS)
def test_what_is_typed_between_commas_is_read_back(grid: dict[str, list[str]]) -> None:
    """Values written as CSV are the values of the grid; those with a comma or a quote stand in quotes."""
    typed = []
    for name, values in grid.items():
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(values)
        typed.append(f"{name}={text.getvalue()}")
    lines = any("\n" in value or "\r" in value for values in grid.values() for value in values)
    equal = any(len({kept_text(value) for value in values}) < len(values) for values in grid.values())
    if not lines and not equal:
        assert typed_grid(typed) == grid


def test_values_are_plain_words_between_commas() -> None:
    """What is typed is what the value is, but for blanks after a comma."""
    assert typed_grid(["lr=0.10, 1e-4", 'layers="64,64",128', 'flag="",on']) == {
        "lr": ["0.10", "1e-4"],
        "layers": ["64,64", "128"],
        "flag": ["", "on"],
    }


@pytest.mark.parametrize(
    ("typed", "found", "remedy"),
    [
        (["lr"], "the grid 'lr' has no values", "give NAME=VALUE,VALUE"),
        (["lr=1", "lr=2"], "there are two grids of lr", "give all its values in one"),
        (['lr="1'], "cannot be read", "close the quotes"),
        (["lr=1,,2"], "the grid of lr has an empty value", 'remove a comma, or write lr="",VALUE'),
        (["lr=0.1,1e-1"], "the grid of lr has 0.1 and 1e-1, which are equal", "give each value once"),
    ],
)
def test_what_is_no_grid_is_refused(typed: list[str], found: str, remedy: str) -> None:
    """A grid that cannot be read is refused with one sentence that says what to type."""
    with pytest.raises(GridError) as refused:
        typed_grid(typed)
    assert found in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    ("grid", "found"),
    [
        ({"lr": []}, "the grid of lr has no value"),
        ({"lr": ["1", "1"]}, "the grid of lr has the value '1' twice"),
        ({"a b": ["1"]}, "a parameter cannot be called 'a b'; give up to 80 of the letters A to Z"),
        ({"a": range(40), "b": range(26)}, "the grids stand for 1,040 jobs; give at most 1,000"),
    ],
)
def test_a_grid_with_a_mistake_is_refused(grid: dict[str, Any], found: str) -> None:
    """Each mistake of a grid has its sentence; a grid that is as large as it may be has none."""
    with pytest.raises(GridError, match=found):
        combinations(grid)
    assert len(combinations({"a": range(MOST_JOBS)})) == MOST_JOBS


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["{lr}", "{x}"], r"the command has \{x\}, and there is no parameter x; give it, or write \{\{x\}\}"),
        (["true"], r"the command does not use the parameter lr; write \{lr\} where it goes"),
        (["{lr}", "{"], r"'\{' in the word '\{' names no parameter; write \{\{ and \}\} for braces"),
        (["{lr}", "{}"], r"'\{\}' in the word"),
        (["{lr}", "{ lr }"], r"'\{ lr \}' in the word"),
    ],
)
def test_a_command_and_its_parameters_go_together(words: list[str], found: str) -> None:
    """A parameter that is not given, one that is not used, and a lone brace are refused with what to write."""
    with pytest.raises(GridError, match=found):
        check_placeholders(words, ["lr"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4) | NAMES, JSON, max_size=6))
def test_whatever_parameters_are_they_can_be_kept(parameters: dict[str, Any]) -> None:
    """What is kept of any parameters is what the option of a job takes, and JSON can hold."""
    found = kept(parameters)
    assert SERVICE.options["parameters"].read(found) == found == json.loads(json.dumps(found))
    assert all(found[name] == value for name, value in parameters.items() if name in found and is_kept(value))


def test_long_and_many_parameters_are_cut() -> None:
    """What is kept is bounded, whatever a program takes."""
    found = kept({f"p{k}": "x" * 5000 for k in range(MOST_PARAMETERS + 5)})
    assert len(found) == MOST_PARAMETERS
    assert {len(str(value)) for value in found.values()} == {LONGEST_VALUE}
    assert kept({"layers": [64, 64]}) == {"layers": "[64, 64]"}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1e-4", 1e-4), ("0", 0), ("true", True), ("adam", "adam"), ("007", "007"), ("inf", "inf"), ("nan", "nan"),
        ("[1, 2]", "[1, 2]"), ("1979-05-27", "1979-05-27"), ("9" * 30, "9" * 30), ("", ""), ("'a'", "'a'"),
        ("1\nx = 2", "1\nx = 2"), ("[" * 500, "[" * 500),
    ],
)  # fmt: skip
def test_what_is_typed_is_kept_as_a_number_where_it_is_one(typed: str, value: Any) -> None:
    """Numbers that JSON has are kept as numbers, anything else as it was typed."""
    assert kept_text(typed) == value
    assert type(kept_text(typed)) is type(value)


@given(st.text(max_size=30))
def test_whatever_is_typed_can_be_kept(typed: str) -> None:
    """Any text is a value that a job keeps."""
    assert is_kept(kept_text(typed))


@given(st.sets(st.integers(1, 60)), st.text("ab", min_size=1, max_size=3))
def test_a_new_group_has_a_name_that_no_other_has(numbers: set[int], base: str) -> None:
    """Whatever names are taken, one that is not is found, the plain name first, in a few questions."""
    taken = {base if number == 1 else f"{base}-{number}" for number in numbers}
    asked: list[str] = []

    def is_taken(name: str) -> bool:
        asked.append(name)
        return name in taken

    found = unused_name(base, is_taken)
    assert found not in taken
    assert (found == base) == (1 not in numbers)
    assert len(asked) <= 16
