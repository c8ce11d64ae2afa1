"""Laws of text that is shown: it has no letter that a terminal obeys or that hides, and loses nothing."""

import ast
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.cli.display.say import LogText, cleaned
from slaq.core.visible import visible

#: What Unicode calls control, format, surrogate, and separators of lines and paragraphs.
OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
ANY = st.text(st.characters(codec=None))


@given(ANY)
def test_no_letter_that_a_terminal_obeys_is_left(text: str) -> None:
    """The text has only letters with a shape of their own, and with lines also line breaks and tabs."""
    assert not {unicodedata.category(letter) for letter in visible(text)} & OBEYED
    kept = {letter for letter in visible(text, lines=True) if unicodedata.category(letter) in OBEYED}
    assert kept <= {"\n", "\t"}


@given(ANY)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    """What is visible stays as it is."""
    for lines in (False, True):
        assert visible(visible(text, lines=lines), lines=lines) == visible(text, lines=lines)


@given(st.text(st.characters(exclude_characters="\\'\"")))
def test_nothing_is_lost(text: str) -> None:
    """From the escapes the text can be read again."""
    assert ast.literal_eval(f'"{visible(text)}"') == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – text, naïve 日本", "plain – text, naïve 日本"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\x07\x08\x7f\x9bb", "a\\x07\\x08\\x7f\\x9bb"),
        ("a\u202eb\u2066c\u2028d", "a\\u202eb\\u2066c\\u2028d"),
        ("a\ud800b", "a\\ud800b"),
        ("1\u00a0000", "1\u00a0000"),
        ("[red]a[/red]", "[red]a[/red]"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    """Usual letters and spaces stay; the others become the escapes that Python writes."""
    assert visible(text) == shown


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_a_log_is_the_same_in_whatever_pieces_it_comes(log: bytes, cuts: list[int]) -> None:
    """Letters and line breaks that are cut in two between pieces are put together."""
    places = [0, *sorted(cuts), len(log)]
    whole, pieces = LogText(), LogText()
    text = "".join(pieces.feed(log[start:stop]) for start, stop in pairwise(places) if start <= stop)
    assert text + pieces.feed(b"", final=True) == whole.feed(log, final=True)


@given(st.binary())
def test_a_log_obeys_nothing_but_its_own_line(log: bytes) -> None:
    """All that a terminal does on behalf of a log is to break lines, and to begin the present one anew."""
    text = LogText().feed(log, final=True).replace("\r\x1b[K", "")
    assert not {unicodedata.category(letter) for letter in text} & OBEYED - {"Cc"}
    assert not {letter for letter in text if unicodedata.category(letter) == "Cc"} - {"\n", "\t"}


def test_a_progress_bar_stays_one() -> None:
    """A carriage return erases the line, one before a line break is part of it, and bytes that are no text show."""
    assert (
        LogText().feed(b"10%\r20%\r\ndone\xff\x1b[2J\n", final=True) == "10%\r\x1b[K20%\ndone\\xff\\x1b[2J\n"
    )


@given(st.recursive(ANY, lambda inner: st.lists(inner) | st.dictionaries(ANY, inner)))
def test_every_text_of_an_answer_is_cleaned(value: object) -> None:
    """However deep a text lies in an answer, it is fit for one line of a terminal."""

    def check(one: object) -> None:
        if isinstance(one, str):
            assert not {unicodedata.category(letter) for letter in one} & OBEYED
        elif isinstance(one, dict):
            for name, inner in one.items():
                check(name)
                check(inner)
        elif isinstance(one, list):
            for inner in one:
                check(inner)

    check(cleaned(value))
