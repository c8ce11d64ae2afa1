"""Laws of `slaq run`, on real processes."""

import csv
import io
import json
import math
import pickle
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from slaq.algorithms import Model
from slaq.cli.batch import Moment, Row
from slaq.cli.display.live import BLOCKS, EventLines, draw, duration, sparkline
from slaq.cli.main import main
from slaq.core.job import JobState

SLAQ = Path(sysconfig.get_path("scripts")) / "slaq"
LINUX = sys.platform.startswith("linux")

JOBS = """
[cluster]
cores = 2
epoch_seconds = 0.2

[[job]]
name = "lr"
algorithm = "logistic-regression"
data = "data.npz"
parameters = {iterations = 12}

[[job]]
name = "early"
algorithm = "linear-svm"
data = "data.npz"
max_iterations = 5
parameters = {iterations = 100000}

[[job]]
name = "own"
arrival = 0.3
program = "own.py:train"
data = "data.npz"
parameters = {rate = 0.25}
"""
SCRIPT = """
[[job]]
name = "script"
command = ["{python}", "script.py"]
loss_pattern = 'loss (\\S+)'
"""
OWN = """
import time

def rows(partition):
    return len(partition)

def train(ctx, rate):
    for iteration in range(5):
        ctx.report(1.0 / (1 + iteration), seen=float(sum(ctx.map(rows))))
    print("trained at", rate)
    return {"rate": rate}

def fail(ctx):
    ctx.report(1.0)
    raise ValueError("no convergence")

def endless(ctx):
    iteration = 0
    while True:
        ctx.map(rows)
        time.sleep(0.01)
        ctx.report(1.0 / (1 + iteration))
        iteration += 1
        ctx.checkpoint(iteration)

def stubborn(ctx):
    ctx.report(1.0)
    while True:
        try:
            while True:
                time.sleep(0.01)
                ctx.report(1.0)
        except BaseException:
            pass
"""
TRAIN = """
import sys, time

for i in range(10**9 if sys.argv[1:] else 6):
    print("loss", 1 / (1 + i), flush=True)
    time.sleep(0.01)
"""
FIELDS = {
    "file", "engine", "policy", "cores", "capacity", "epoch_seconds", "directory", "interrupted",
    "mean_normalised_loss", "time_to_90", "time_to_95", "loss_seconds", "completion", "makespan", "mean_active",
    "decision_ms", "share_by_group", "jobs",
}  # fmt: skip
JOB_FIELDS = {
    "id", "group", "parameters", "algorithm", "state", "reason", "arrival", "ended", "losses", "first_loss",
    "best_loss", "last_loss", "reduction", "cpu_seconds", "directory", "result",
}  # fmt: skip


def write(folder: Path, jobs: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    np.savez(folder / "data.npz", x=x, y=(x @ rng.normal(size=4) > 0).astype(int))
    (folder / "own.py").write_text(OWN)
    (folder / "script.py").write_text(TRAIN)
    (folder / "jobs.toml").write_text(jobs.replace("{python}", sys.executable))


def slaq(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SLAQ, "run", "jobs.toml", *args],
        capture_output=True, text=True, timeout=100, check=False, cwd=folder, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@dataclass(frozen=True)
class Done:
    """A batch that has run."""

    folder: Path
    stderr: str
    found: dict[str, Any]

    def job(self, name: str) -> dict[str, Any]:
        return next(job for job in self.found["jobs"] if job["id"] == name)

    def directory(self, name: str) -> Path:
        return self.folder / str(self.job(name)["directory"])


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """An algorithm, one that is ended early, a program and a command, run to their ends."""
    folder = tmp_path_factory.mktemp("batch")
    write(folder, JOBS + (SCRIPT if LINUX else ""))
    ran = slaq(folder, "--json", "--report", "report.html", "--policy", "fair")
    assert ran.returncode == 0, ran.stderr
    return Done(folder, ran.stderr, json.loads(ran.stdout))


def test_json_has_the_documented_fields(done: Done) -> None:
    """--json prints one object with the fields of `slaq simulate` and a list of jobs; the folder keeps it too."""
    assert set(done.found) == FIELDS
    assert all(set(job) == JOB_FIELDS for job in done.found["jobs"])
    assert (done.found["policy"], done.found["cores"], done.found["interrupted"]) == ("fair", 2, False)
    assert done.found["directory"] == "slaq-results/jobs-1"
    assert json.loads((done.folder / "slaq-results/jobs-1/summary.json").read_text()) == done.found


def test_every_job_completes_with_its_losses(done: Done) -> None:
    """Each job has its state, its losses and what they cost; the loss fell."""
    assert {job["state"] for job in done.found["jobs"]} == {"completed"}
    lr = done.job("lr")
    assert (lr["algorithm"], lr["losses"], lr["arrival"]) == ("logistic-regression", 13, 0)
    assert lr["first_loss"] == pytest.approx(math.log(2))
    assert lr["best_loss"] == lr["last_loss"] < lr["first_loss"]
    assert lr["ended"] > 0
    assert lr["cpu_seconds"] > 0
    assert (done.job("own")["losses"], done.job("own")["last_loss"]) == (5, 0.2)
    if LINUX:
        assert (done.job("script")["losses"], done.job("script")["result"]) == (6, None)


def test_models_are_kept_and_usable(done: Done) -> None:
    """An algorithm leaves a model that loads and predicts, though it was ended before its last iteration."""
    with np.load(done.folder / "data.npz") as data:
        for name, iterations in (("lr", 12), ("early", 5)):
            assert done.job(name)["result"] == "model.npz"
            model = Model.load(done.directory(name) / "model.npz")
            assert len(model.losses) == iterations + 1
            assert model.score(data["x"], data["y"]) > 0.8  # type: ignore[attr-defined]


def test_a_program_leaves_its_result_log_and_losses(done: Done) -> None:
    """What a program returns is pickled; what it reports and prints is kept as text; the summary is its JSON."""
    folder = done.directory("own")
    assert pickle.loads((folder / "result.pkl").read_bytes()) == {"rate": 0.25}
    assert "trained at 0.25" in (folder / "log.txt").read_text()
    with (folder / "losses.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["iteration"], float(row["loss"]), float(row["seen"])) for row in rows[:2]] == [
        ("0", 1.0, 400.0),
        ("1", 0.5, 400.0),
    ]
    assert json.loads((folder / "summary.json").read_text()) == done.job("own")


def test_events_and_files_are_told_on_stderr(done: Done) -> None:
    """Where stderr is no terminal, each job's start and end is a line, and the places of the files follow."""
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"{len(done.found['jobs'])} jobs on 2 cores")
    for name in ("lr", "early", "own"):
        assert [line for line in lines if line.endswith(f" s  {name}: started")]
        assert [line for line in lines if f" s  {name}: completed, loss " in line]
    assert lines[-2:] == ["report: report.html", "results: slaq-results/jobs-1"]


def test_the_report_is_one_page(done: Done) -> None:
    """--report writes a page with the pictures and the command that makes it again."""
    page = (done.folder / "report.html").read_text()
    assert page.count("<svg") >= 4
    assert "slaq run jobs.toml --policy fair --cores 2 --epoch-seconds 0.2" in page


def test_a_failed_job_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    """One job's exception fails that job alone; the exit status is 1, and stderr says why and where its log is."""
    jobs = JOBS[: JOBS.index('[[job]]\nname = "early"')]
    write(tmp_path, jobs + '[[job]]\nname = "bad"\nprogram = "own.py:fail"\n')
    ran = slaq(tmp_path, "--quiet", "--results", "out")
    assert ran.returncode == 1
    told = re.fullmatch(r"slaq: job 'bad' failed: (.*)\nresults: out\n", ran.stderr)
    assert told, ran.stderr
    assert "no convergence" in told[1]
    assert "bad/log.txt" in told[1]
    assert [line.split()[2] for line in ran.stdout.splitlines()[1:]] == ["completed", "failed"]
    assert (tmp_path / "out/lr/model.npz").exists()
    assert json.loads((tmp_path / "out/bad/summary.json").read_text())["state"] == "failed"


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A batch that never ends by itself, once its jobs have reported and kept something."""
    jobs = JOBS[: JOBS.index("[[job]]")]
    jobs += '[[job]]\nname = "lr"\nalgorithm = "logistic-regression"\ndata = "data.npz"\n'
    jobs += "parameters = {iterations = 1000000, learning_rate = 1e-9}\n"
    jobs += '[[job]]\nname = "own"\nprogram = "own.py:endless"\ndata = "data.npz"\n'
    jobs += '[[job]]\nname = "late"\narrival = "1h"\nprogram = "own.py:endless"\n'
    jobs += '[[job]]\nname = "script"\ncommand = ["{python}", "script.py", "endless"]\nloss_pattern = "loss (.+)"\n'
    write(tmp_path, jobs)
    yield from _started(tmp_path, ["lr/checkpoint", "own/checkpoint", "script/log.txt"])


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A batch whose program does not end when it is told to."""
    write(tmp_path, JOBS[: JOBS.index("[[job]]")] + '[[job]]\nname = "s"\nprogram = "own.py:stubborn"\n')
    yield from _started(tmp_path, ["s/log.txt"])


def _started(folder: Path, files: list[str]) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    with subprocess.Popen(
        [SLAQ, "run", "jobs.toml", "--results", "out"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + 60
            while not all((folder / "out" / name).exists() for name in files):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, "the jobs did not start"
                time.sleep(0.05)
            assert process.stderr is not None
            yield process, process.stderr
        finally:
            process.kill()


def descendants(pid: int) -> set[tuple[int, str]]:
    """Return the processes that descend from this one: their numbers and when they started."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = (int(fields[1]), fields[19])
    found: set[int] = {pid}
    while more := {child for child, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return {(child, parents[child][1]) for child in found - {pid}}


def alive(processes: set[tuple[int, str]]) -> set[int]:
    left = set()
    for pid, started in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[19] == started and fields[0] != "Z":
            left.add(pid)
    return left


def wait_for_death(processes: set[tuple[int, str]]) -> None:
    deadline = time.monotonic() + 30
    while alive(processes):
        assert time.monotonic() < deadline, f"left behind: {alive(processes)}"
        time.sleep(0.05)


@pytest.mark.skipif(not LINUX, reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_cleanly_and_says_what_was_kept(
    endless: tuple[subprocess.Popen[str], IO[str]], number: signal.Signals, tmp_path: Path
) -> None:
    """The first Ctrl-C ends all jobs, keeps the model so far and the last states, and leaves no process."""
    process, _ = endless
    processes = descendants(process.pid)
    assert processes
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    wait_for_death(processes)
    assert "slaq: stopped; 0 of 4 jobs had completed" in stderr
    kept = re.search(r"kept of lr: model.npz \(after (\d+) iterations\)", stderr)
    assert kept, stderr
    assert len(Model.load(tmp_path / "out/lr/model.npz").losses) == int(kept[1]) + 1
    assert "kept of own: checkpoint (its last state)" in stderr
    assert "kept of late: nothing" in stderr
    assert (tmp_path / "out/script/losses.csv").exists()
    assert stderr.endswith("results: out\n")
    assert {line.split()[2] for line in stdout.splitlines()[1:]} == {"cancelled"}
    assert json.loads((tmp_path / "out/summary.json").read_text())["interrupted"] is True


@pytest.mark.skipif(not LINUX, reason="looks at /proc")
def test_a_second_interrupt_ends_everything_at_once(
    stubborn: tuple[subprocess.Popen[str], IO[str]],
) -> None:
    """Once the first was answered, the second waits for nobody, and still leaves no process."""
    process, stderr = stubborn
    processes = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    assert any("stopping; press Ctrl-C again" in line for line in stderr)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert process.returncode == 130
    assert "slaq: stopped at once; what had ended by then is in out" in stderr.read()
    wait_for_death(processes)


def test_check_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--check says what the file holds, as JSON too, and leaves no trace."""
    write(tmp_path, JOBS)
    monkeypatch.chdir(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in str(path))
    plain = CliRunner().invoke(main, ["run", "jobs.toml", "--check"])
    assert (plain.exit_code, plain.stdout) == (0, "jobs.toml: 3 jobs, no mistakes\n")
    found = json.loads(CliRunner().invoke(main, ["run", "jobs.toml", "--check", "--json"]).stdout)
    assert [job["id"] for job in found["jobs"]] == ["lr", "early", "own"]
    assert sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in str(path)) == before


def test_mistakes_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with mistakes exits with 1 before anything exists, each mistake on a line of stderr."""
    write(tmp_path, JOBS.replace("linear-svm", "linear-smv").replace("arrival = 0.3", 'arrival = "soon"'))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["run", "jobs.toml"])
    assert (result.exit_code, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert lines[0] == "slaq: jobs.toml has 2 mistakes, and nothing was started:"
    assert [re.findall(r"jobs\.toml, line (\d+): ", line) for line in lines[1:]] == [["14"], ["21"]]
    assert not (tmp_path / "slaq-results").exists()


def row(name: str, state: JobState, losses: list[float]) -> Row:
    return Row(
        name=name,
        kind="kmeans",
        state=state,
        losses=losses,
        reduction=0.5,
        expected=0.25,
        cores=3.0,
        reason="",
    )


def drawn(rows: list[Row], width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(draw(Moment(rows=rows, seconds=65.0, stopping=False), "head", width=width, height=height))
    return console.export_text().splitlines()


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 8)])
def test_the_live_table_fits_the_terminal(width: int, height: int) -> None:
    """However many jobs there are, no line is too long, and running jobs are shown before ended ones."""
    rows = [row(f"ended-{n}", JobState.COMPLETED, [2.0, 1.0]) for n in range(40)]
    rows.append(row("runs [bold]", JobState.RUNNING, [3.0, 2.0, 1.5, math.nan]))
    lines = drawn(rows, width, height)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert any("runs" in line for line in lines)
    assert "1:05" in lines[-1]


def test_the_live_table_shows_a_job_in_full() -> None:
    """A row tells the job's algorithm, state, loss, reduction, forecast, cores and curve."""
    line = drawn([row("a", JobState.RUNNING, [3.0, 2.0, 1.0])], 120, 24)[2]
    assert line.split() == ["a", "kmeans", "running", "1", "50%", "0.25", "3.00", "█▅▁"]


def test_each_event_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """However often a job is looked at, its start, a loss that is no number and its end are one line each."""
    lines = EventLines()
    for state in (JobState.QUEUED, JobState.RUNNING, JobState.RUNNING, JobState.FAILED, JobState.FAILED):
        rows = [row("a", state, [] if state is JobState.QUEUED else [1.0, math.nan])]
        lines.show(Moment(rows=rows, seconds=2.0, stopping=False))
    told = [line.split("a: ")[1] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "started",
        "its loss is nan, so it gets the smallest share",
        "failed, loss nan after 1 iterations",
    ]


@pytest.mark.parametrize(
    ("losses", "shown"),
    [([], ""), ([1.0], "▁"), ([1.0, 1.0], "▁▁"), ([math.nan], "×"), ([8.0, math.inf, 1.0], "█×▁")],
)
def test_sparklines(losses: list[float], shown: str) -> None:
    """Blocks are as high as the losses between the lowest and the highest; a cross is no number."""
    assert sparkline(losses) == shown


def test_a_long_curve_keeps_its_ends() -> None:
    """A curve with more losses than characters is averaged: it still begins high and ends low."""
    shown = sparkline([1.0 / n for n in range(1, 1000)], 10)
    assert len(shown) == 10
    assert (shown[0], shown[-1]) == (max(shown, key=BLOCKS.index), BLOCKS[0])


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7, 1e300])
def test_equal_numbers_are_drawn_as_equal(value: float) -> None:
    """However many of them go into one character, a constant is a flat line."""
    assert set(sparkline([value] * 339, 60)) == {BLOCKS[0]}


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (65.9, "1:05"), (3661, "1:01:01")])
def test_times(seconds: float, text: str) -> None:
    """Times are written as clocks show them."""
    assert duration(seconds) == text


def test_the_best_of_each_grid_is_told(tmp_path: Path) -> None:
    """At the end a line says which job of a group has the best loss; one that diverged never has."""
    write(
        tmp_path,
        """
        [[job]]
        name = "grid"
        command = ["{python}", "-c", "import slaq; [slaq.report(x) for x in ({x}, {x} / 2)]"]
        parameters = {x = {grid = [4, 2, 3]}}
        [[job]]
        name = "lost"
        group = "others"
        command = ["{python}", "-c", "import slaq; [slaq.report(float(x)) for x in ('0.1', 'nan')]"]
        """,
    )
    done = slaq(tmp_path, "--quiet")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "best of grid: grid-2 (x=2), loss 1",
        "best of others: none, because each of its jobs has diverged or has no loss",
    ]
    found = json.loads(slaq(tmp_path, "--quiet", "--json").stdout)["jobs"]
    assert [(job["group"], job["parameters"]) for job in found] == [
        *(("grid", {"x": x}) for x in (4, 2, 3)),
        ("others", {}),
    ]
