"""Laws of the page on elastic training: it names every option, with its default, and all that a user can read."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from slaq.elastic_training import ElasticTraining, Update
from slaq.elastic_training.options import ElasticOptions, Settings

PAGE = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text(encoding="utf-8")


def test_every_option_has_a_row_with_its_default() -> None:
    """The table has a row for each option, and none for what is not taken."""
    table = PAGE.partition("\n## All options\n")[2].partition("\n\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*?)\|", table, re.MULTILINE))
    shown = {
        field.name: " " if field.default is MISSING else f" `{field.default!r}` "
        for field in fields(Settings)
    }
    written = {name: text.replace('"', "'") for name, text in rows.items()}
    assert written == shown
    assert set(shown) == set(ElasticOptions.__annotations__)


@pytest.mark.parametrize(
    "name",
    sorted(
        {field.name for field in fields(Update)}
        | {name for name in vars(ElasticTraining) if not name.startswith("_")}
    ),
)
def test_every_name_is_on_the_page(name: str) -> None:
    """What updates and trainings have is named."""
    assert re.search(rf"`{name}\b", PAGE)
