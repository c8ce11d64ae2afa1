"""Laws of `slaq.report` and `slaq.announce`, as a training script meets them."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import slaq
from slaq import reporting
from slaq.jobs import variables


def run_script(code: str, reports: Path | None) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != variables.REPORTS}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if reports is not None:
        env[variables.REPORTS] = str(reports)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "reports.jsonl"
    monkeypatch.setenv(variables.REPORTS, str(path))
    monkeypatch.setattr(reporting, "_pen", None)
    return path


def test_public_names_are_these_functions() -> None:
    """`slaq.report` and `slaq.announce` are the functions of the reporting module."""
    assert slaq.report is reporting.report
    assert slaq.announce is reporting.announce


def test_outside_slaq_nothing_happens(tmp_path: Path) -> None:
    """Without the variable, anything may be reported, nothing is written or said."""
    done = run_script(
        "import slaq; slaq.report(1.0); slaq.report('rubbish'); slaq.announce(learning_rate=1)", None
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_reporting_loads_no_heavy_module() -> None:
    """A script that reports pays for no other library: not even json, typing or re."""
    code = (
        "import sys; before = set(sys.modules); from slaq import report; report(1.0); "
        "print(sorted(set(sys.modules) - before - {'slaq', 'slaq.reporting', 'slaq.jobs',"
        " 'slaq.jobs.variables', 'importlib', 'warnings', 'math',"
        " '_warnings', 'time', 'importlib._bootstrap', 'importlib._bootstrap_external', '_imp'}))"
    )
    assert run_script(code, None).stdout.strip() == "[]"


def test_reports_are_numbered_lines(reports: Path) -> None:
    """Each report is one line with its number, the loss, the metrics, the time, the CPU time and the process."""
    slaq.report(0.5, accuracy=0.25)
    slaq.announce(learning_rate=0.01)
    slaq.report(0.25)
    first, rate, second = lines(reports)
    assert (first["iteration"], first["loss"], first["metrics"]) == (0, 0.5, {"accuracy": 0.25})
    assert (second["iteration"], second["loss"], "metrics" in second) == (1, 0.25, False)
    assert rate["learning_rate"] == 0.01
    assert first["pid"] == os.getpid()
    assert isinstance(first["time"], float)
    assert isinstance(first["cpu"], float)


def test_whatever_float_takes_is_a_loss(reports: Path) -> None:
    """Arrays of one element, strings, and numbers that are not finite are written as floats."""
    numpy = pytest.importorskip("numpy")
    given = (numpy.array(0.5), numpy.float32(0.25), "0.125", 3, math.nan, math.inf, -math.inf)
    for loss in given:
        slaq.report(loss)
    found = [record["loss"] for record in lines(reports)]
    assert found[:4] == [0.5, 0.25, 0.125, 3.0]
    assert isinstance(found[4], float)
    assert math.isnan(found[4])
    assert found[5:] == [math.inf, -math.inf]


def test_rubbish_is_noted_once_and_never_raises(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is no number is left out, with one note on standard error; a bad metric does not cost the loss."""
    slaq.report([1, 2])  # type: ignore[arg-type]
    slaq.report("loss")
    slaq.announce(learning_rate=None)  # type: ignore[arg-type]
    slaq.report(1.0, good=2.0, bad="x", **{'with "quotes"': 3.0})
    (record,) = lines(reports)
    assert (record["iteration"], record["loss"]) == (0, 1.0)
    assert record["metrics"] == {"good": 2.0, 'with "quotes"': 3.0}
    assert capsys.readouterr().err.count("slaq: a report was lost") == 1


def test_file_that_cannot_be_opened_is_noted_once(tmp_path: Path) -> None:
    """A directory that is gone does not end the training."""
    done = run_script(
        "import slaq\nfor _ in range(3): slaq.report(1.0)\nprint('done')", tmp_path / "gone" / "reports"
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("slaq:") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_full_disk_is_noted_once() -> None:
    """A disk without room does not end the training."""
    done = run_script("import slaq\nfor _ in range(3): slaq.report(1.0)\nprint('done')", Path("/dev/full"))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("slaq:") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_share_the_file_without_mixing_lines(tmp_path: Path) -> None:
    """Forked processes each number their own reports, and no line is torn."""
    path = tmp_path / "reports.jsonl"
    code = """
import os, slaq
slaq.report(0.0)
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        for n in range(200):
            slaq.report(n, metric=n)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
slaq.report(1.0)
"""
    assert run_script(code, path).returncode == 0
    records = lines(path)
    by_process: dict[object, list[object]] = {}
    for record in records:
        by_process.setdefault(record["pid"], []).append(record["iteration"])
    assert sorted(by_process.values(), key=len) == [[0, 1], *[list(range(200))] * 3]
