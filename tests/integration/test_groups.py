"""Laws of groups of jobs, on a real service: made by a grid, ranked, exported, steered and waited for as one."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slaq.cli.display.job_rows import RowField, loss_fields
from slaq.cli.display.tabular import BATCH, csv_pieces
from slaq.cli.main import main
from slaq.client import Client, connect
from slaq.core.errors import ForbiddenError, GridError, UnknownGroupError
from slaq.core.job import JobState
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ANN, BOB, ME, reports
from tests.integration.serving import Served, until

#: Prints its words, and a loss that its first word chooses.
SAYS = "import sys; print(*sys.argv[1:]); print('loss', sys.argv[1])"
SLEEPS = "import sys, time; print(sys.argv[1], flush=True); time.sleep(600)"
PROGRAM = """
def train(ctx, rate, steps=2):
    for step in range(steps):
        ctx.report(rate / (1 + step))
"""


@pytest.fixture
def client(here: Path, served: Served) -> Iterator[Client]:
    with connect(served.unix) as found:
        yield found


def slaq(*words: str, status: int = 0) -> Result:
    """Type it, and see it exit as it should."""
    done = CliRunner().invoke(main, list(words), prog_name="slaq")
    assert done.exit_code == status, f"{words}: {done.exit_code}\n{done.output}"
    return done


def told(*words: str) -> Any:
    """Return the JSON that it prints."""
    return json.loads(slaq(*words, "--json").stdout)


def reported(
    client: Client,
    group: str,
    *losses: float,
    state: str = "completed",
    maximize: bool = False,
    **parameters: Any,
) -> str:
    """Add a job to a group that has reported these losses elsewhere, and ended so; return its id."""
    options: Any = {"name": f"{group}-job", "group": group, "parameters": parameters, "maximize": maximize}
    options["on_nan"] = "go-on"
    job = client.send(Submission(external=True, options=options))
    client.report(job.id, reports(*losses), offset=0)
    until(lambda: client.show_job(job.id)["iteration"] == len(losses) - 1)
    if state:
        client.end(job.id, state=state)
        until(lambda: client.show_job(job.id)["ended_at"] is not None)
    return job.id


# Made by a grid.


def test_a_grid_makes_a_group(here: Path, client: Client) -> None:
    """Each combination is a job of one group, with the values as they were typed in its command."""
    words = ("submit", "--loss-pattern", r"loss (\S+)", "--grid", "lr=0.10,1e-2", "--grid", 'opt=adam,"a,b"')
    typed = ("--", sys.executable, "-c", SAYS, "{lr}", "--opt={opt}", "{{lr}}", "-p")
    ids = slaq(*words, "--group", "made", *typed).stdout.split()
    assert ids == ["made-1", "made-2", "made-3", "made-4"]
    slaq("wait", "--group", "made")
    assert [client.job(job).log().splitlines()[0] for job in ids] == [
        "0.10 --opt=adam {lr} -p", "0.10 --opt=a,b {lr} -p", "1e-2 --opt=adam {lr} -p", "1e-2 --opt=a,b {lr} -p",
    ]  # fmt: skip
    jobs = client.list_jobs(group="made")
    assert [job["parameters"] for job in jobs[:3:2]] == [
        {"lr": 0.1, "opt": "adam"},
        {"lr": 0.01, "opt": "adam"},
    ]
    assert {job["group"] for job in jobs} == {"made"}
    assert "parameters" in slaq("ls", "--group", "made").stdout
    assert "lr=0.1 opt=a,b" in slaq("ls", "--group", "made").stdout
    shown = slaq("show", "made-3").stdout
    assert "group" in shown
    assert "lr=0.01 opt=adam" in shown
    assert client.job("made-3").parameters == {"lr": 0.01, "opt": "adam"}
    assert client.job("made-3").group == "made"


def test_a_group_without_a_name_gets_one_that_no_other_has(here: Path, client: Client) -> None:
    """It is named after what the jobs run, or after their name, with a number where there is such a group."""
    (here / "sweep.py").write_text("")
    for group in ("sweep", "sweep-2", "sweep-3"):
        ids = slaq("submit", "--grid", "x=1,2", "--", sys.executable, "sweep.py", "{x}").stdout.split()
        assert ids == [f"{group}-1", f"{group}-2"]
        assert [job.id for job in client.group(group).jobs] == ids
    slaq("submit", "--name", "net", "--grid", "x=1", "--", sys.executable, "sweep.py", "{x}")
    assert [job.id for job in client.group("net").jobs] == ["net-1"]


def test_a_grid_of_a_program_gives_it_arguments(here: Path, client: Client) -> None:
    """A program takes each combination as its keyword arguments, beside the parameters that all jobs share."""
    (here / "own.py").write_text(PROGRAM)
    slaq("submit", "own.py:train", "-p", "steps=3", "--grid", "rate=0.5,2", "--group", "program")
    assert client.group("program").wait(timeout=60)
    jobs = client.group("program").ranked()
    assert [(job.parameters, job.losses[0]) for job in jobs] == [
        ({"steps": 3, "rate": 0.5}, 0.5),
        ({"steps": 3, "rate": 2}, 2.0),
    ]
    alone = slaq("submit", "own.py:train", "-p", "rate=0.5").stdout.strip()
    assert client.job(alone).parameters == {"rate": 0.5}
    assert client.job(alone).group is None


def test_parameters_without_a_grid_stand_in_the_command(here: Path, client: Client) -> None:
    """With --param alone there is one job, of no group; without parameters braces mean nothing."""
    job = slaq("submit", "-p", "x=1.50", "--", sys.executable, "-c", SAYS, "{x}").stdout.strip()
    plain = slaq("submit", "--", sys.executable, "-c", SAYS, "1", "{x} {{").stdout.strip()
    slaq("wait", job, plain)
    assert [client.job(one).log().splitlines()[0] for one in (job, plain)] == ["1.50", "1 {x} {{"]
    assert (client.job(job).parameters, client.job(job).group) == ({"x": 1.5}, None)


def test_a_dry_run_asks_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --dry-run the jobs are printed, and no service is needed."""
    monkeypatch.setenv("SLAQ_HOME", str(here))
    words = (
        "submit",
        "--dry-run",
        "--grid",
        "x=1,2",
        "--group",
        "dry",
        "--",
        sys.executable,
        "-c",
        "pass",
        "{x}",
    )
    assert slaq(*words).stdout.splitlines() == [
        f"dry-1  {sys.executable} -c pass 1",
        f"dry-2  {sys.executable} -c pass 2",
    ]
    found = json.loads(slaq(*words[:2], "--json", *words[2:]).stdout)
    assert [(one["name"], one["group"], one["parameters"]) for one in found] == [
        ("dry-1", "dry", {"x": 1}),
        ("dry-2", "dry", {"x": 2}),
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--grid", "lr=1", "--", "true"], "the command does not use the parameter lr; write {lr} where it goes"),
        (["--grid", "lr=1", "--", "true", "{lr}", "{x}"], "the command has {x}, and there is no parameter x"),
        (["-p", "lr=1", "--", "true", "{lr}", "{"], "'{' in the word '{' names no parameter"),
        (["--grid", "lr=1", "-p", "lr=1", "--", "true", "{lr}"], "--grid and --param both give lr"),
        (["--grid", "lr", "--", "true"], "the grid 'lr' has no values"),
        (["-p", "lr", "--", "true"], "parameters is 'lr'; give NAME=VALUE"),
        (["--grid", f"n={','.join(map(str, range(1001)))}", "--", "true", "{n}"], "the grids stand for 1,001 jobs"),
        (["-p", "lr=1", "-p", "lr=2", "--", "true", "{lr}"], "give several values with --grid lr=VALUE,VALUE"),
        (["true", "--lr", "1"], "put -- before a command, as in: slaq submit"),
        (["--grid", "lr=1", "--external"], "--grid is for a command or a program"),
        (["--grid", "lr=1", "jobs.toml"], "--grid is for a command or a program"),
        (["-p", "lr=1", "jobs.toml"], "--param is for a command or a program"),
    ],
)  # fmt: skip
def test_a_grid_with_a_mistake_submits_nothing(
    words: list[str], found: str, here: Path, client: Client
) -> None:
    """It is refused with one sentence, before any job is submitted."""
    (here / "jobs.toml").write_text("[[job]]\ncommand = 'true'\n")
    before = len(client.list_jobs())
    done = slaq("submit", *words, status=2)
    assert found in " ".join(done.stderr.split())
    assert len(client.list_jobs()) == before


def test_a_grid_of_a_script_without_its_interpreter_says_what_to_type(here: Path) -> None:
    """That a script is no program is said before that it does not use the parameter."""
    (here / "train.py").write_text("")
    done = slaq("submit", "--grid", "lr=1", "train.py", status=1)
    assert done.stderr.endswith("type -- python train.py\n")


def test_a_grid_of_a_jobs_file_is_a_group(here: Path, client: Client) -> None:
    """Its jobs belong to the group that the file names, or to a new one of the table's name; other jobs to none."""
    grid = f"command = ['{sys.executable}', '-c', 'pass', '{{x}}']\nparameters.x = {{grid = [1, 2]}}\n"
    text = f"[[job]]\nname = 'tuned'\n{grid}[[job]]\nname = 'other'\ngroup = 'chosen'\n{grid}"
    (here / "jobs.toml").write_text(f"{text}[[job]]\nname = 'alone'\ncommand = 'true'\n")
    for tuned in ("tuned", "tuned-2"):
        jobs = told("submit", "jobs.toml")
        assert [job["group"] for job in jobs] == [tuned, tuned, "chosen", "chosen", None]
        assert [job["parameters"] for job in jobs] == [{"x": 1}, {"x": 2}] * 2 + [{}]
    given = told("submit", "jobs.toml", "--group", "given")
    assert [job["group"] for job in given] == ["given", "given", "chosen", "chosen", "given"]


# Ranked.


@pytest.fixture(scope="module")
def ranks(served: Served) -> str:
    """A group with two jobs that are equally good, a worse one, one that diverged, and one without a loss."""
    with connect(served.unix) as client:
        reported(client, "ranks", 1.0, 0.5, lr=0.1)
        reported(client, "ranks", 1.0, 0.25, lr=0.2, note="\x1b[31mred")
        reported(client, "ranks", 1.0, 0.25, 0.5, lr=0.3)
        reported(client, "ranks", 1.0, 0.01, float("nan"), state="failed", lr=0.4)
        options: Any = {"name": "ranks-silent", "group": "ranks", "parameters": {"lr": 0.5}}
        client.send(Submission(external=True, options=options))
    return "ranks"


RANKS = ["ranks-job-2", "ranks-job-3", "ranks-job", "ranks-job-4", "ranks-silent"]


def test_the_best_job_of_a_group_comes_first(here: Path, ranks: str) -> None:
    """Then the others by their best loss, equals in the order of submission, diverged jobs and silent ones last."""
    found = told("best", ranks)
    assert [row["id"] for row in found] == RANKS
    assert [row["rank"] for row in found] == [1, 2, 3, 4, 5]
    assert [row["best_loss"] for row in found] == [0.25, 0.25, 0.5, 0.01, None]
    assert [row["diverged"] for row in found] == [False, False, False, True, False]
    assert [row["iterations"] for row in found] == [1, 2, 1, 2, None]
    assert found[0]["parameters"] == {"lr": 0.2, "note": "\x1b[31mred"}
    assert [row["id"] for row in told("best", ranks, "--top", "2")] == RANKS[:2]
    assert slaq("ls", "--group", ranks, "--sort", "best", "--quiet").stdout.split() == RANKS
    listed = slaq("ls", "--group", ranks, "--sort", "best").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == RANKS
    assert "best" in listed[0].split()


def test_the_best_of_what_should_rise_is_the_highest(here: Path, client: Client) -> None:
    """Of jobs that maximize, the one with the highest number wins."""
    for lr, reached in ((0.1, 0.7), (0.2, 0.9), (0.3, 0.8)):
        reported(client, "risen", 0.5, reached, maximize=True, lr=lr)
    assert [(row["parameters"]["lr"], row["best_loss"]) for row in told("best", "risen")] == [
        (0.2, 0.9),
        (0.3, 0.8),
        (0.1, 0.7),
    ]
    best = client.group("risen").best()
    assert best is not None
    assert best.parameters == {"lr": 0.2}


def test_a_ranking_that_may_change_says_so(here: Path, client: Client, ranks: str) -> None:
    """While jobs have not ended, a line on stderr says how many; and no text of a job controls the terminal."""
    done = slaq("best", ranks)
    assert done.stderr == "slaq: 1 of 5 jobs has not ended, so that the order may change\n"
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["job", "state", "lr", "note", "best", "loss", "iterations", "time", "CPU"]
    assert "\x1b" not in done.stdout
    assert r"\x1b[31mred" in lines[1]
    assert lines[4].split()[:2] == ["ranks-job-4", "diverged"]
    reported(client, "ended", 1.0)
    assert slaq("best", "ended").stderr == ""


def test_a_ranking_as_csv_has_a_column_for_each_parameter(here: Path, ranks: str) -> None:
    """Every row has the parameters in columns of their own; what is unknown is empty."""
    rows = list(csv.DictReader(io.StringIO(slaq("best", ranks, "--csv").stdout)))
    assert [row["id"] for row in rows] == RANKS
    assert [row["lr"] for row in rows] == ["0.2", "0.3", "0.1", "0.4", "0.5"]
    assert [row["best_loss"] for row in rows][3:] == ["0.01", ""]
    assert "\x1b" not in slaq("best", ranks, "--csv").stdout


@pytest.mark.parametrize("verb", ["best", "pause", "resume", "cancel", "wait", "weight"])
def test_an_unknown_group_is_told_in_one_sentence(verb: str, here: Path) -> None:
    """A group that nobody made is a failure that names it."""
    words = [
        verb,
        *(["2"] if verb == "weight" else []),
        *(["none"] if verb == "best" else ["--group", "none"]),
    ]
    assert "slaq: you have no group of jobs 'none'; " in slaq(*words, status=1).stderr


# Steered.


def test_a_group_is_steered_as_one(here: Path, client: Client) -> None:
    """It is paused, resumed, weighed, cancelled and waited for by its name; jobs of others stay as they are."""
    words = ("submit", "--grid", "x=1,2", "--group", "steered", "--", sys.executable, "-c", SLEEPS, "{x}")
    ids = slaq(*words).stdout.split()
    other = slaq("submit", "--name", "bystander", "--", sys.executable, "-c", SLEEPS, "x").stdout.strip()
    paused = told("pause", "--group", "steered")
    assert [(job["id"], job["state"]) for job in paused] == [(job, "paused") for job in ids]
    assert client.show_job(other)["state"] != "paused"
    assert {job["state"] for job in told("resume", "--group", "steered")} <= {"queued", "running"}
    assert [job["weight"] for job in told("weight", "--group", "steered", "2.5")] == [2.5, 2.5]
    assert [client.show_job(job)["weight"] for job in (*ids, other)] == [2.5, 2.5, 1.0]
    assert slaq("wait", "--group", "steered", "--timeout", "0.1s", status=5).stdout == ""
    slaq("cancel", ids[0])
    slaq("wait", ids[0], status=4)
    assert [job["id"] for job in told("cancel", "--group", "steered")] == ids[1:]
    slaq("wait", "--group", "steered", status=4)
    assert not client.job(other).done()
    done = slaq("cancel", "--group", "steered", status=1)
    assert "every job of group 'steered' has ended" in done.stderr
    slaq("cancel", other)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["pause"], "there is no JOB; name one, or a group by --group"),
        (["wait"], "there is no JOB"),
        (["weight", "2"], "there is no JOB"),
        (["cancel", "a", "--group", "b"], "JOB and --group exclude each other"),
        (["cancel", "a", "--user", "ann"], "--user says whose group it is"),
        (["best", "a", "--csv", "--json"], "--csv and --json exclude each other"),
    ],
)
def test_what_is_meant_is_said_once(words: list[str], found: str, here: Path) -> None:
    """A verb that is given no job, or jobs in two ways, is refused with what to type."""
    assert found in slaq(*words, status=2).stderr


def test_a_group_has_a_handle(here: Path, client: Client) -> None:
    """The client submits a grid, and its handle does what the verbs do."""
    words = [sys.executable, "-c", SAYS, "{loss}"]
    group = client.submit_grid(words, {"loss": [0.5, 0.25]}, loss_pattern=r"loss (\S+)", group="handle")
    assert group.wait(timeout=60)
    assert group.done()
    best = group.best()
    assert best is not None
    assert (best.id, best.parameters) == ("handle-2", {"loss": 0.25})
    assert [job.id for job in group.ranked()] == ["handle-2", "handle-1"]
    assert [job.id for job in group.jobs] == ["handle-1", "handle-2"]
    assert group.cancel() is False
    sleeping = client.submit_grid([sys.executable, "-c", SLEEPS, "{n}"], {"n": [1, 2]}, name="slept")
    assert sleeping.name == "slept"
    sleeping.pause()
    assert {job.state for job in sleeping.jobs} == {JobState.PAUSED}
    sleeping.resume()
    sleeping.change(weight=3.0)
    assert {job.view.weight for job in sleeping.jobs} == {3.0}
    assert sleeping.wait(timeout=0.1) is False
    assert sleeping.best() is None
    assert sleeping.cancel() is True
    assert sleeping.wait(timeout=60)
    assert (
        client.submit_grid([sys.executable, "-c", "pass", "{n}"], {"n": [1]}, name="slept").name == "slept-2"
    )
    assert [job.id for job in client.group("slept-2").jobs] == ["slept-2-1"]
    with pytest.raises(UnknownGroupError, match="'nobody'"):
        _ = client.group("nobody").jobs


def test_a_grid_of_programs_may_hold_any_value(here: Path, client: Client) -> None:
    """The client's grid gives a program values that a command cannot hold, and keeps them as text."""
    (here / "lists.py").write_text("def train(ctx, sizes):\n    ctx.report(sum(sizes))\n")
    group = client.submit_grid("lists.py:train", {"sizes": [[1, 2], [3, 4]]})
    assert group.name == "train"
    assert group.wait(timeout=60)
    assert [(job.parameters, job.losses) for job in group.jobs] == [
        ({"sizes": "[1, 2]"}, [3.0]),
        ({"sizes": "[3, 4]"}, [7.0]),
    ]


def test_a_grid_that_a_command_cannot_take_submits_nothing(here: Path, client: Client) -> None:
    """The client refuses it before the first job."""
    with pytest.raises(GridError, match="does not use the parameter n"):
        client.submit_grid([sys.executable, "-c", "pass"], {"n": [1, 2]}, group="unmade")
    assert client.list_jobs(group="unmade") == []


def test_a_report_is_about_one_group(here: Path, client: Client) -> None:
    """With --group it tells of the jobs of the group alone, and the recorded command says so."""
    job = reported(client, "told-of", 1.0, 0.5)
    assert told("report", "--group", "told-of")["jobs"] == [job]
    slaq("report", "page.html", "--group", "told-of")
    assert "--group told-of" in (here / "page.html").read_text()


def test_all_jobs_of_a_group_are_waited_for(here: Path, client: Client) -> None:
    """That one job has failed says nothing about the others: the wait goes on, and then tells of the one."""
    reported(client, "awaited", 1.0, state="failed")
    going = client.send(Submission(external=True, options={"name": "awaited-on", "group": "awaited"})).id
    done = slaq("wait", "--group", "awaited", "--timeout", "0.1s", status=5)
    assert f"job {going!r} is still" in done.stderr
    client.end(going, state=JobState.COMPLETED)
    slaq("wait", "--group", "awaited", status=4)


# Exported.


@pytest.fixture(scope="module")
def exported(served: Served) -> str:
    """A group of two jobs with losses, one without, and a parameter that has the name of another column."""
    with connect(served.unix) as client:
        reported(client, "exported", 1.0, 0.5, lr=0.1, loss="hinge")
        reported(client, "exported", 2.0, float("nan"), lr=1)
        client.send(Submission(external=True, options={"name": "exported-silent", "group": "exported"}))
    return "exported"


LOSSES = [
    "job",
    "group",
    "lr",
    "parameter_loss",
    "iteration",
    "loss",
    "time",
    "cpu_seconds",
    "wall_seconds",
    "metrics",
]


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_losses_are_exported_with_parameters(here: Path, exported: str) -> None:
    """Each loss is a row, with the parameters of its job in columns; the file is the same as stdout."""
    text = slaq("export", "--group", exported).stdout
    rows = rows_of(text)
    assert list(rows[0]) == LOSSES
    found = [(row["job"], row["lr"], row["parameter_loss"], row["iteration"], row["loss"]) for row in rows]
    assert found == [
        ("exported-job", "0.1", "hinge", "0", "1.0"), ("exported-job", "0.1", "hinge", "1", "0.5"),
        ("exported-job-2", "1.0", "", "0", "2.0"), ("exported-job-2", "1.0", "", "1", ""),
    ]  # fmt: skip
    slaq("export", "--group", exported, "-o", "losses.csv")
    assert (here / "losses.csv").read_text() == text
    assert list(here.iterdir()) == [here / "losses.csv"]


def test_jobs_are_exported_with_parameters(here: Path, exported: str) -> None:
    """With --what jobs each job is a row, those without a loss too."""
    rows = rows_of(slaq("export", "--group", exported, "--what", "jobs").stdout)
    assert [
        (row["job"], row["lr"], row["best_loss"], row["iterations"], row["diverged"]) for row in rows
    ] == [
        ("exported-job", "0.1", "0.5", "1", "false"),
        ("exported-job-2", "1.0", "2.0", "1", "true"),
        ("exported-silent", "", "", "", "false"),
    ]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@sum", "'@sum"),
        ("+x", "'+x"),
        ("-x y", "'-x y"),
        ("-0.5", "-0.5"),
        ("a=b", "a=b"),
    ],
)
def test_no_cell_of_csv_is_a_formula(text: str, cell: str) -> None:
    """A text that a spreadsheet would compute begins with an apostrophe; numbers and other texts stay."""
    field = RowField(name="note", kind=str, value=lambda row: row)
    assert rows_of(b"".join(csv_pieces([field], [text])).decode()) == [{"note": cell}]


def test_parquet_holds_what_csv_holds(here: Path, exported: str) -> None:
    """A Parquet file has the same columns and values, numbers as numbers."""
    parquet = pytest.importorskip("pyarrow.parquet")
    slaq("export", "--group", exported, "-o", "losses.parquet")
    table = parquet.read_table(here / "losses.parquet")
    assert table.column_names == LOSSES
    rows = rows_of(slaq("export", "--group", exported).stdout)
    for name in LOSSES:
        shown = ["" if value is None else str(value) for value in table[name].to_pylist()]
        assert shown == [row[name] for row in rows]
    slaq("export", "--group", exported, "--what", "jobs", "--format", "parquet", "-o", "jobs.data")
    assert parquet.read_table(here / "jobs.data").num_rows == 3


def test_parquet_without_its_library_names_the_extra(
    here: Path, exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where PyArrow is missing, the error names the extra that installs it, and no file is left."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = slaq("export", "--group", exported, "-o", "losses.parquet", status=1)
    assert "slaq[parquet]" in done.stderr
    assert list(here.iterdir()) == []


def test_the_jobs_to_export_are_chosen_as_elsewhere(here: Path, client: Client, exported: str) -> None:
    """Jobs are named, or chosen by group, tag, state and user, or all of them are taken."""
    tagged = client.send(Submission(external=True, options={"name": "tagged", "tags": ("mark",)})).id

    def jobs(*words: str) -> list[str]:
        return [row["job"] for row in rows_of(slaq("export", *words, "--what", "jobs").stdout)]

    assert jobs("--tag", "mark") == [tagged]
    assert jobs(tagged, "exported-job") == [tagged, "exported-job"]
    assert jobs("--group", exported, "--state", "completed") == ["exported-job"]
    assert jobs("--group", exported, "--state", "diverged") == ["exported-job-2"]
    assert jobs("--all") == [job["id"] for job in client.list_jobs()]
    owner = client.show_job(tagged)["owner"]
    assert jobs("--user", owner) == jobs("--all")


@pytest.mark.parametrize(
    ("words", "status", "found"),
    [
        ([], 2, "say which jobs: JOB, --group, --tag, --state, --user or --all"),
        (["a", "--all"], 2, "JOB excludes the options that choose jobs"),
        (["--all", "--format", "parquet"], 2, "Parquet is not written to stdout"),
        (["--all", "-o", "losses.xls"], 2, "does not end in .csv, .parquet or .pq"),
        (["--all", "-o", "no/losses.csv"], 2, "there is no folder"),
        (["none-such"], 1, "there is no job 'none-such'"),
        (["--tag", "none"], 1, "no job is as these options say"),
        (["--group", "none"], 1, "you have no group of jobs 'none'"),
    ],
)
def test_what_cannot_be_exported_is_refused(words: list[str], status: int, found: str, here: Path) -> None:
    """Each mistake is told in one sentence, and no file is left."""
    assert found in " ".join(slaq("export", *words, status=status).stderr.split())
    assert list(here.iterdir()) == []


def test_a_file_is_replaced_only_on_request_and_as_a_whole(
    here: Path, exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that exists stays without --force, and also where the export fails half-way."""
    file = here / "losses.csv"
    file.write_text("mine")
    assert "exists already" in slaq("export", "--all", "-o", "losses.csv", status=1).stderr
    with monkeypatch.context() as patch:
        patch.setattr(Client, "observations", lambda *_: (_ for _ in ()).throw(UnknownGroupError("gone")))
        slaq("export", "--group", exported, "-o", "losses.csv", "--force", status=1)
    assert file.read_text() == "mine"
    slaq("export", "--group", exported, "-o", "losses.csv", "--force")
    assert len(rows_of(file.read_text())) == 4
    assert list(here.iterdir()) == [file]


def test_losses_are_written_as_they_come() -> None:
    """Of any number of losses only some are held at a time: each piece is written before the next is read."""
    read = 0

    def losses() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        nonlocal read
        for read in range(10 * BATCH):
            yield (
                job,
                {
                    "iteration": read,
                    "loss": 1.0,
                    "at": 0.0,
                    "cpu_seconds": 0.0,
                    "wall_seconds": 0.0,
                    "metrics": {},
                },
            )

    job: dict[str, Any] = {"id": "a", "group": None, "parameters": {}}
    pieces = csv_pieces(loss_fields([job]), losses())
    seen = []
    for piece in pieces:
        seen.append(piece.count(b"\n"))
        assert read <= sum(seen)
    assert sum(seen) == 10 * BATCH + 1
    assert max(seen) == BATCH


# Kept.


def test_a_group_survives_a_restart(open_service: Callable[..., Service]) -> None:
    """After a restart, jobs of a group are found and steered as before, those that have ended too."""
    service = open_service()
    for lr in (0.1, 0.2, 0.3):
        options: Any = {"name": "kept", "group": "kept", "parameters": {"lr": lr}}
        service.submit(ME, Submission(external=True, options=options))
    service.end(ME, "kept", state=JobState.COMPLETED)
    service = open_service()
    until(lambda: service.job(ME, "kept").state is JobState.COMPLETED)
    found = service.jobs(ME, group="kept")
    assert [(view.id, view.group, view.parameters) for view in found] == [
        ("kept", "kept", {"lr": 0.1}),
        ("kept-2", "kept", {"lr": 0.2}),
        ("kept-3", "kept", {"lr": 0.3}),
    ]
    assert [view.id for view in service.jobs(ME, group="kept", after="kept", limit=1)] == ["kept-2"]
    assert service.last_jobs(ME, 2, group="kept")[1] == 3
    assert [view.id for view in service.pause_group(ME, "kept")] == ["kept-2", "kept-3"]


def test_groups_of_one_name_are_apart(open_service: Callable[..., Service]) -> None:
    """Each user's group is their own, whoever else has one of that name; an admin names whose it is."""
    service = open_service(visibility="all")
    for who in (ANN, BOB):
        service.submit(who, Submission(external=True, options={"name": who.user, "group": "same"}))
    assert [view.id for view in service.jobs(ANN, group="same")] == ["ann"]
    assert service.jobs(ANN, group="same", owner="bob") == []
    assert service.jobs(ME, group="same") == []
    assert [view.id for view in service.jobs(ME, group="same", owner="bob")] == ["bob"]
    assert [view.id for view in service.change_group(ANN, "same", weight=2.0)] == ["ann"]
    assert service.job(ME, "bob").weight == 1.0
    with pytest.raises(ForbiddenError):
        service.cancel_group(ANN, "same", "bob")
    with pytest.raises(UnknownGroupError):
        service.cancel_group(ME, "same")
    assert [view.id for view in service.cancel_group(ME, "same", "bob")] == ["bob"]
    # Others may read that a job is there, but not what its owner called the group.
    seen = service.job(BOB, "ann")
    assert (seen.group, seen.parameters) == (None, {})
