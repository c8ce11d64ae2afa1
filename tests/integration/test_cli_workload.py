"""Laws of `slaq workload`."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slaq.cli.main import main
from slaq.simulation.generator import ALGORITHMS
from slaq.simulation.workload import Workload

KEYS = {
    "jobs",
    "other",
    "first_arrival",
    "last_arrival",
    "arrivals",
    "iterations",
    "cpu_seconds_per_iteration",
    "cpu_seconds",
    "capacity",
    "load",
    "algorithms",
}
JOBS = """\
{"id": "a", "arrival": 10, "cpu_seconds_per_iteration": 5, "losses": [3, 2, 1], "algorithm": "SVM"}
{"id": "b", "arrival": 20, "cpu_seconds_per_iteration": 10, "losses": [3, 2, 1, 0, 0]}
{"id": "c", "arrival": 30, "kind": "other", "cpu_seconds": 150}
"""


def workload(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["workload", *args], input=text, prog_name="slaq")


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    """A workload is a function of its options; the seed is one of them."""
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for path, seed in ((one, "5"), (same, "5"), (other, "6")):
        result = workload("generate", "--jobs", "4", "--seed", seed, "-o", str(path))
        assert (result.exit_code, result.stdout) == (0, "")
    assert one.read_bytes() == same.read_bytes() != other.read_bytes()


def test_generated_workloads_pass_inspection() -> None:
    """What generate prints is a workload with as many jobs as were asked for, and inspect reads it."""
    made = workload("generate", "--jobs", "7", "--algorithm", "SVM", "--algorithm", "LDA")
    assert (made.exit_code, made.stderr) == (0, "")
    found = json.loads(workload("inspect", "-", "--json", text=made.stdout).stdout)
    assert (found["jobs"], sum(found["arrivals"])) == (7, 7)
    assert set(found["algorithms"]) <= {"SVM", "LDA"}


def test_inspect_counts(tmp_path: Path) -> None:
    """The numbers follow from the file by their definitions."""
    path = tmp_path / "jobs.jsonl"
    path.write_text(JOBS)
    found = json.loads(workload("inspect", str(path), "--capacity", "5", "--json").stdout)
    assert set(found) == KEYS
    assert found["iterations"] == {"min": 2, "median": 3, "max": 4}
    assert found["cpu_seconds_per_iteration"] == {"min": 5, "median": 7.5, "max": 10}
    assert found["cpu_seconds"] == 200.0
    assert found["load"] == pytest.approx(200 / (5 * 20))
    assert (found["jobs"], found["other"], found["algorithms"]) == (3, 1, {"SVM": 1})
    assert (found["first_arrival"], found["last_arrival"]) == (10.0, 30.0)


def test_inspect_tells_people_the_same() -> None:
    """Without --json every fact has its line, and the arrivals their sparkline."""
    shown = workload("inspect", "-", "--capacity", "5", text=JOBS).stdout
    assert "3, 1 of them without a loss" in shown
    assert "200% of 5 cores" in shown
    assert "█" in shown


def test_jobs_that_arrive_at_once_have_no_load() -> None:
    """Load is work per second of arrivals; without such a second there is none."""
    alone = JOBS.splitlines()[0]
    assert json.loads(workload("inspect", "-", "--json", text=alone).stdout)["load"] is None
    assert "load" not in workload("inspect", "-", text=alone).stdout


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"id": "b"}', "the field 'arrival' is missing"),
        (JOBS.splitlines()[0].replace("10", "-1"), "arrival"),
        (JOBS.splitlines()[0].replace("2,", "NaN,"), "losses[1]"),
        (JOBS.splitlines()[0], "'a'"),
        ("nonsense", "JSON"),
    ],
)
def test_malformed_file_gets_one_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    """A mistake is reported with file and line, on stderr, with exit status 1."""
    path = tmp_path / "jobs.jsonl"
    path.write_text(JOBS.splitlines()[0] + "\n" + line + "\n")
    result = workload("inspect", str(path), "--json")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"slaq: {path}, line 2: " in result.stderr
    assert sentence in result.stderr


def test_empty_file_gets_one_sentence() -> None:
    """A workload without a job is a mistake too."""
    result = workload("inspect", "-")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)


def test_recorded_curves_are_followed(tmp_path: Path) -> None:
    """With a folder of curves every job follows one of them, named after its file."""
    curves = tmp_path / "curves"
    curves.mkdir()
    (curves / "steep.txt").write_text("3\n1\n0.5\n")
    (curves / "flat.csv").write_text("n,loss\n0,2\n1,1.9\n2,1.8\n")
    path = tmp_path / "jobs.jsonl"
    assert workload("generate", "--curves", str(curves), "--jobs", "6", "-o", str(path)).exit_code == 0
    found = {(job.algorithm, *job.losses.tolist()) for job in Workload.read(path)}
    assert found == {("steep", 3.0, 1.0, 0.5), ("flat", 2.0, 1.9, 1.8)}


@pytest.mark.parametrize(
    "args",
    [
        ["--jobs", "0"],
        ["--mean-arrival", "0"],
        ["--cpu-seconds", "nan"],
        ["--mean-arrival", "1e8"],
        ["--family", "gbt"],
        ["--curves", ".", "--algorithm", "SVM"],
        ["--curves", "no-such-folder"],
    ],
)
def test_options_that_make_no_sense_are_usage_errors(args: list[str]) -> None:
    """Impossible numbers and contradictions end with status 2 and no workload."""
    result = workload("generate", *args)
    assert (result.exit_code, result.stdout) == (2, "")


def test_unknown_algorithm_lists_the_known() -> None:
    """A misspelt algorithm is a usage error that names all there are."""
    result = workload("generate", "--algorithm", "LogRegg")
    assert result.exit_code == 2
    assert all(name in result.stderr for name in ALGORITHMS)
