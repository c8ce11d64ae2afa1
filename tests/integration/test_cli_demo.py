"""Laws of `slaq demo`, with real jobs that are tiny."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from slaq.cli.demo import reading
from slaq.cli.demo_jobs import KINDS, Amount, plan
from slaq.cli.main import main

TINY = ["--jobs", "3", "--over", "0.5", "--size", "0.003", "--cores", "2"]


def demo(*args: str) -> Result:
    return CliRunner().invoke(main, ["demo", *TINY, *args], prog_name="slaq")


def test_demo_needs_no_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder it trains, shows the table, says what it means, and leaves a picture and a page."""
    monkeypatch.chdir(tmp_path)
    result = demo()
    assert result.exit_code == 0, result.output
    assert result.stdout.split()[:2] == ["fair", "total-quality"]
    assert "Under slaq a job makes 90% of its loss reduction" in result.stdout
    assert result.stderr == "picture: slaq-demo.png\nreport: slaq-demo.html\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slaq-demo.html", "slaq-demo.png"]


def test_demo_json_is_keyed_by_policy(tmp_path: Path) -> None:
    """--json prints what `slaq simulate` prints for these policies, and files go where told."""
    plot, report = tmp_path / "a.pdf", tmp_path / "a.html"
    result = demo(
        "--policy", "fair", "--policy", "min-quality", "--json", "--plot", str(plot), "--report", str(report)
    )
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)) == ["fair", "min-quality"]
    assert plot.exists()
    assert report.exists()


def test_the_plan_has_every_kind_and_the_script() -> None:
    """Twenty jobs are of all nine algorithms and one is the plain script; the same seed gives the same plan."""
    amount = Amount(jobs=20, seconds=60.0, size=0.001)
    first, second = (plan(amount, np.random.default_rng(3), {}) for _ in range(2))
    kinds = {job.name.split("-")[0] for job in first}
    assert kinds == {kind.name for kind in KINDS} | {"script"}
    assert sum(job.program is None for job in first) == 1
    assert [(job.name, job.arrival, job.program) for job in first] == [
        (job.name, job.arrival, job.program) for job in second
    ]
    assert [job.arrival for job in first] == sorted(job.arrival for job in first)
    assert first[-1].arrival <= 60.0


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ((100.0, 40.0), "60% sooner than under fair sharing (100 s)"),
        ((100.0, 110.0), "10% later than under fair sharing (100 s)"),
        ((100.0, 100.0), "as soon as under fair sharing (100 s)"),
    ],
)
def test_reading_says_what_the_numbers_say(times: tuple[float, float], sentence: str) -> None:
    """The sentence praises nothing that the table does not show."""
    summaries = dict(zip(("fair", "total-quality"), ({"time_to_90": time} for time in times), strict=True))
    assert sentence in reading(summaries)
