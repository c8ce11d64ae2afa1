"""Laws of spans of time at the command line."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.cli.display.spans import SPAN, ago, span
from slaq.jobs.option_types import seconds_of


@given(st.floats(min_value=0.05, max_value=1e8))
def test_what_is_shown_can_be_typed(seconds: float) -> None:
    """A displayed span is read back as the same span, to the displayed precision."""
    typed = seconds_of(span(seconds))
    assert typed is not None
    unit = 0.05 if seconds < 10 else 0.5 if seconds < 3600 else 60 if seconds < 86400 else 3600
    assert abs(typed - seconds) <= unit + 1e-9
    assert SPAN.convert(span(seconds), None, None) == typed


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (-3, "0.0s"), (7.46, "7.5s"), (42, "42s"), (60, "1m00s"), (200, "3m20s"), (7500, "2h05m"),
     (273600, "3d04h")],
)  # fmt: skip
def test_two_units_are_enough(seconds: float, shown: str) -> None:
    """A span is shown in its two largest units."""
    assert span(seconds) == shown


@pytest.mark.parametrize("typed", ["", "soon", "-3", "0", "0s", "nan", "inf", "1x", "m", "3m 4y"])
def test_what_is_no_span_is_refused(typed: str) -> None:
    """An invalid span is a usage error that shows a valid one."""
    with pytest.raises(click.BadParameter, match="'90s', '10m' or '1h30m'"):
        SPAN.convert(typed, None, None)


def test_moments_are_told_from_now() -> None:
    """An unknown moment is shown as a dash."""
    assert (ago(None, 10.0), ago(4.0, 10.0)) == ("–", "6.0s")
