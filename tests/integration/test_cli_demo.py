"""Laws of `slaq demo`, with real jobs that are tiny."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from slaq.cli.demo.jobs import KINDS, Amount, plan
from slaq.cli.main import main
from slaq.cli.verbs.demo import reading

TINY = ["--jobs", "3", "--over", "0.5", "--size", "0.003", "--cores", "2"]


def demo(*args: str) -> Result:
    return CliRunner().invoke(main, ["demo", *TINY, *args], prog_name="slaq")


@pytest.mark.slow
def test_demo_needs_no_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder the demo trains, says what the table means, draws, and says where to go next."""
    monkeypatch.chdir(tmp_path)
    result = demo()
    assert result.exit_code == 0, result.output
    assert result.stdout.split()[:2] == ["fair", "total-quality"]
    assert "Under slaq a job reaches 90% of its loss reduction" in result.stdout
    first, *written, last = result.stderr.splitlines()
    assert first == "training 3 jobs on 2 cores under fair, then under total-quality"
    assert written == ["picture: slaq-demo.png", "report: slaq-demo.html"]
    assert last.startswith("Next: `")
    assert "run examples/jobs.toml" in last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slaq-demo.html", "slaq-demo.png"]


@pytest.mark.slow
def test_demo_json_is_keyed_by_policy(tmp_path: Path) -> None:
    """--json prints what `slaq simulate` prints for these policies, and files go where told."""
    plot, report = tmp_path / "a.pdf", tmp_path / "a.html"
    result = demo(
        "--policy", "fair", "--policy", "min-quality", "--json", "--plot", str(plot), "--report", str(report)
    )
    assert result.exit_code == 0, result.output
    assert "Next:" not in result.stderr
    assert list(json.loads(result.stdout)) == ["fair", "min-quality"]
    assert plot.exists()
    assert report.exists()


def test_the_plan_has_every_kind_and_the_script() -> None:
    """Thirty jobs are of all nine algorithms and one is the plain script; the same seed gives the same plan."""
    amount = Amount(jobs=30, seconds=60.0, size=0.001)
    first, second = (plan(amount, np.random.default_rng(3), {}) for _ in range(2))
    kinds = {job.name.split("-")[0] for job in first}
    assert kinds == {kind.name for kind in KINDS} | {"script"}
    assert sum(job.program is None for job in first) == 1
    assert [(job.name, job.arrival, job.program) for job in first] == [
        (job.name, job.arrival, job.program) for job in second
    ]
    assert [job.arrival for job in first] == sorted(job.arrival for job in first)
    assert first[-1].arrival <= 60.0


def test_the_plan_leaves_out_what_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SciPy there is no LDA, and off Linux there is no script; the number of jobs is the same."""
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    monkeypatch.setattr(sys, "platform", "darwin")
    planned = plan(Amount(jobs=30, seconds=60.0, size=0.001), np.random.default_rng(3), {})
    assert len(planned) == 30
    assert {job.name.split("-")[0] for job in planned} == {kind.name for kind in KINDS} - {"lda"}


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
    fair, ours = ({"time_to_90": time, "completion": time, "makespan": time} for time in times)
    told = reading({"fair": fair, "total-quality": ours})
    assert sentence in told
    change = sentence.partition(" under")[0]
    assert (
        f"Whole jobs end {change} under fair sharing on average, and the last of them {change} there." in told
    )
