"""Laws of `slaq demo`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slaq.cli.demo import POLICIES, reading
from slaq.cli.main import main


def demo(*args: str) -> Result:
    return CliRunner().invoke(main, ["demo", "--jobs", "5", *args], prog_name="slaq")


def test_demo_needs_no_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder it shows the table, says what it means, and leaves a picture and a page."""
    monkeypatch.chdir(tmp_path)
    result = demo()
    assert result.exit_code == 0
    assert result.stdout.split()[: len(POLICIES)] == list(POLICIES)
    assert "Under slaq a job makes 90% of its loss reduction" in result.stdout
    assert result.stderr == "picture: slaq-demo.png\nreport: slaq-demo.html\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slaq-demo.html", "slaq-demo.png"]


def test_demo_json_is_that_of_simulate(tmp_path: Path) -> None:
    """--json prints the same object as `slaq simulate` with the three policies, and files go where told."""
    plot, report = tmp_path / "a.pdf", tmp_path / "a.html"
    result = demo("--json", "--plot", str(plot), "--report", str(report))
    assert tuple(json.loads(result.stdout)) == POLICIES
    assert plot.exists()
    assert report.exists()


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ((100.0, 40.0, 20.0), "60% sooner than under fair sharing (100 s)"),
        ((100.0, 40.0, 20.0), "win 75% of what there is to win."),
        ((100.0, 110.0, 90.0), "10% later than under fair sharing (100 s)"),
        ((100.0, 100.0, 100.0), "as soon as under fair sharing (100 s)"),
        ((None, None, None), "No job reached 90%"),
    ],
)
def test_reading_says_what_the_numbers_say(times: tuple[float | None, ...], sentence: str) -> None:
    """The two sentences praise nothing that the table does not show."""
    text = reading({policy: {"time_to_90": time} for policy, time in zip(POLICIES, times, strict=True)})
    assert sentence in text
