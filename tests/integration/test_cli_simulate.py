"""Laws of `slaq simulate`."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slaq.bootstrap import POLICIES
from slaq.cli.main import main

KEYS = {
    "mean_normalised_loss",
    "time_to_90",
    "time_to_95",
    "loss_seconds",
    "completion",
    "mean_active",
    "makespan",
    "decision_ms",
    "share_by_group",
}
SMALL = ("--capacity", "8", "--epoch-seconds", "1")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five jobs that together keep eight cores busy for about half a minute."""
    path = tmp_path_factory.mktemp("workload") / "jobs.jsonl"
    records = [
        {
            "id": f"job-{n}",
            "arrival": 2.0 * n,
            "cpu_seconds_per_iteration": 2.0 + n,
            "losses": [1.0 / (1 + 0.5 * k) + n for k in range(12)],
        }
        for n in range(5)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def simulate(*args: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["simulate", *SMALL, *args], input=text, prog_name="slaq")


def test_json_of_one_policy_is_one_object(jobs: Path) -> None:
    """With one policy, --json prints one object with the documented keys, and nothing else anywhere."""
    result = simulate(str(jobs), "--policy", "fair", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    assert set(found) == KEYS
    assert set(found["decision_ms"]) == {"median", "p99"}
    assert set(found["share_by_group"]) == {"high", "medium", "low"}


def test_json_of_several_policies_is_keyed_by_policy(jobs: Path) -> None:
    """With several, there is one such object under each policy's name, however often it was named."""
    args = [word for policy in (*POLICIES, "fair") for word in ("--policy", policy)]
    found = json.loads(simulate(str(jobs), *args, "--json").stdout)
    assert tuple(found) == POLICIES
    assert all(set(summary) == KEYS for summary in found.values())


def test_standard_input_is_a_workload_too(jobs: Path) -> None:
    """`-` reads the workload from standard input, with the same outcome."""
    piped, read = (
        json.loads(simulate(path, "--policy", "fair", "--json", text=jobs.read_text()).stdout)
        for path in ("-", str(jobs))
    )
    assert piped | {"decision_ms": None} == read | {"decision_ms": None}


def test_table_compares_with_fair(jobs: Path) -> None:
    """The table has a column per policy, and changes in percent against fair wherever it stands."""
    lines = simulate(str(jobs), "--policy", "fifo", "--policy", "fair").stdout.splitlines()
    assert lines[0].split() == ["fifo", "fair"]
    assert lines[-1] == "Changes are against fair."
    assert "%" in next(line for line in lines if line.startswith("time to 90%")).removeprefix("time to 90%")


def test_table_of_one_policy_compares_nothing(jobs: Path) -> None:
    """One policy alone has no baseline."""
    assert "against" not in simulate(str(jobs), "--policy", "fair").stdout


def test_unknown_policy_lists_the_known(jobs: Path) -> None:
    """A policy that does not exist is a usage error that names all that do."""
    result = simulate(str(jobs), "--policy", "best")
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(policy in result.stderr for policy in POLICIES)


def test_malformed_workload_gets_one_sentence(jobs: Path, tmp_path: Path) -> None:
    """A mistake in the file ends with status 1, its place, and nothing on stdout."""
    path = tmp_path / "bad.jsonl"
    path.write_text(jobs.read_text() + '{"id": "x", "arrival": -1}\n')
    result = simulate(str(path), "--json")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"slaq: {path}, line 6: " in result.stderr


def test_losing_cores_slows_jobs_down(jobs: Path, tmp_path: Path) -> None:
    """--nodes sets the capacity from its moments on, and --capacity holds before the first."""
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("time,cores\n4,1\n")
    steady, shrunk = (
        json.loads(simulate(str(jobs), "--policy", "fair", "--json", *more).stdout)
        for more in ((), ("--nodes", str(nodes)))
    )
    assert shrunk["makespan"] > 3 * steady["makespan"]
    nodes.write_text("0,8\n")
    same = json.loads(
        simulate(str(jobs), "--policy", "fair", "--json", "--nodes", str(nodes), "--capacity", "1").stdout
    )
    assert same["makespan"] == steady["makespan"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ": the file has no line of time,cores; "),
        ("0,8\nx,3\n", ", line 2: 'x,3' is not time,cores; "),
        ("0,8,1\n", ", line 1: '0,8,1' is not time,cores; "),
        ("0,-8\n", ", line 1: '0,-8' is out of range; "),
        ("nan,8\n", ", line 1: 'nan,8' is out of range; "),
        ("5,8\n5,9\n", ", line 2: the time is not after the time of the line before; "),
        ("0,8\n5,0\n", ": the last line leaves 0 cores, so jobs would never end; "),
    ],
)
def test_malformed_nodes_get_one_sentence(jobs: Path, tmp_path: Path, text: str, sentence: str) -> None:
    """A changes of capacity that cannot be is reported like a malformed workload."""
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    result = simulate(str(jobs), "--nodes", str(path), "--json")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"slaq: {path}{sentence}" in result.stderr


@pytest.mark.parametrize("args", [["--capacity", "0"], ["--epoch-seconds", "0"], ["--epoch-seconds", "nan"]])
def test_impossible_numbers_are_usage_errors(jobs: Path, args: list[str]) -> None:
    """A cluster without cores and an epoch without length are refused."""
    assert simulate(str(jobs), *args).exit_code == 2


def test_pictures_and_pages_are_written_beside_the_json(jobs: Path, tmp_path: Path) -> None:
    """--plot and --report write their files, say so on stderr, and leave stdout to the JSON."""
    plot, report = tmp_path / "out.svg", tmp_path / "out.html"
    result = simulate(str(jobs), "--json", "--plot", str(plot), "--report", str(report))
    assert set(json.loads(result.stdout)) == {"fair", "total-quality"}
    assert result.stderr == f"picture: {plot}\nreport: {report}\n"
    assert plot.read_text().startswith("<?xml")
    assert str(jobs) in report.read_text()


@pytest.mark.parametrize("option", ["--plot", "--report"])
def test_files_that_cannot_be_written_are_refused_first(jobs: Path, tmp_path: Path, option: str) -> None:
    """A run never ends only to find that there is no folder for its picture."""
    result = simulate(str(jobs), option, str(tmp_path / "none" / "out.svg"))
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr


def test_progress_needs_a_terminal(jobs: Path) -> None:
    """The bar is drawn on stderr when that is a terminal, and not a byte otherwise."""
    command = [
        sys.executable,
        "-c",
        "from slaq.cli.main import main; main(prog_name='slaq')",
        "simulate",
        str(jobs),
        *SMALL,
    ]
    quiet = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert quiet.stderr == b""
    reader, writer = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    shown = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=writer, env=environment, timeout=60, check=True
    )
    drawn = os.read(reader, 100_000)
    os.close(writer)
    os.close(reader)
    assert b"\xe2\x94\x81" in drawn  # a piece of the bar
    assert b"time to 90%" in shown.stdout
