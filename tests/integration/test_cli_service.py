"""Laws of the verbs that ask a service: a real one, on real sockets, with real jobs."""

import contextlib
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from slaq.cli.display.job_columns import COLUMNS
from slaq.cli.main import VERBS, main
from slaq.cli.verbs.ls import NAMES
from slaq.client import Client, connect
from slaq.jobs.options import ServiceOptions
from slaq.service.records import Submission
from tests.integration.opening import reports
from tests.integration.serving import PATIENCE, Served, until

#: Prints losses that fall, for ever.
TRAINS = """
import itertools, time
for i in itertools.count():
    print(f"loss {1 / (1 + i)}", flush=True)
    time.sleep(0.01)
"""
SAYS = """
import os, sys
print(os.getcwd(), os.environ.get("MARK"), sys.argv[1:])
print("loss 1")
print("loss 0.5")
"""
PROGRAM = """
def train(ctx, rate, steps=5):
    value = 1.0
    for _ in range(steps):
        value *= rate
        ctx.report(value)
    return value
"""
#: Verbs that ask a service, each with arguments that are right.
ASKING = {
    "submit": ["--", "true"],
    "ls": [],
    "best": ["x"],
    "export": ["--all"],
    "show": ["x"],
    "logs": ["x"],
    "wait": ["x"],
    "pause": ["x"],
    "resume": ["x"],
    "cancel": ["x"],
    "weight": ["x", "2"],
    "why": ["x"],
    "whatif": [],
    "report": ["--json"],
    "cluster": [],
    "users": ["ls"],
    "prune": ["--older-than", "1d", "--yes"],
    "backup": ["copy.db"],
}
#: Verbs of the service that ask nothing of it, or not without a terminal.
OTHERS = {"serve", "token", "top"}


def slaq(*words: str, status: int = 0, **more: Any) -> Result:
    """Type it, and see it exit as it should."""
    done = CliRunner().invoke(main, list(words), prog_name="slaq", **more)
    assert done.exit_code == status, f"{words}: {done.exit_code}\n{done.output}"
    return done


def told(*words: str, **more: Any) -> Any:
    """Return the JSON that it prints."""
    return json.loads(slaq(*words, "--json", **more).stdout)


def submit(*words: str) -> str:
    """Submit a job; return its id."""
    return slaq("submit", *words).stdout.strip()


@pytest.fixture
def endless(here: Path) -> Iterator[str]:
    """A job that trains until it is cancelled."""
    job = submit("--name", "endless", "--loss-pattern", r"loss (\S+)", "--", sys.executable, "-c", TRAINS)
    yield job
    CliRunner().invoke(main, ["cancel", job])
    slaq("wait", job, status=4)


def test_every_verb_is_tried(here: Path) -> None:
    """No verb of the service is missing below."""
    local = {"demo", "run", "simulate", "forecast", "workload", "bench", "completion", "detect"}
    assert set(VERBS) - local == set(ASKING) | OTHERS


@pytest.mark.parametrize("verb", ASKING)
def test_no_service_is_told_in_one_sentence(verb: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no service answers, every verb exits with 3 and says how to start one."""
    monkeypatch.setenv("SLAQ_HOME", str(here))
    done = slaq(verb, *ASKING[verb], status=3)
    assert done.stdout == ""
    assert done.stderr.startswith(f"slaq: no service answers at unix://{here}/slaq.sock")
    assert "start one with `slaq serve`" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["show", "logs", "wait", "pause", "resume", "cancel", "weight", "why"])
def test_an_unknown_job_is_told_in_one_sentence(verb: str, here: Path) -> None:
    """A job that nobody submitted is a failure that names it."""
    done = slaq(verb, "no-such", *(["2"] if verb == "weight" else []), status=1)
    assert "slaq: there is no job 'no-such'" in done.stderr


def test_a_command_runs_where_and_as_it_was_typed(here: Path) -> None:
    """It finds the folder, the variables and the words of the command line; its id alone is printed."""
    done = slaq(
        "submit", "--name", "says", "--env", "MARK=a b", "--tags", "t1", "--loss-pattern", r"loss (\S+)",
        "--", sys.executable, "-c", SAYS, "--lr", "0.1",
    )  # fmt: skip
    job = done.stdout.removesuffix("\n")
    assert job.startswith("says")
    assert done.stderr == ""
    slaq("wait", job, "--timeout", "60s")
    assert slaq("logs", job).stdout.splitlines()[0] == f"{here} a b ['--lr', '0.1']"
    assert slaq("logs", job, "-n", "1").stdout == "loss 0.5\n"
    assert slaq("logs", job, "-n", "0").stdout == ""
    assert slaq("logs", job, "-f").stdout.count("\n") == 3
    view = told("show", job)
    assert (view["state"], view["loss"], view["iteration"]) == ("completed", 0.5, 1)
    assert view["submission"]["command"][1:] == ["-c", SAYS, "--lr", "0.1"]
    assert job in slaq("show", job).stdout


def test_ls_prints_a_list_of_jobs(endless: str) -> None:
    """With --json it is a list; filters keep what they say; --quiet prints ids for other verbs to take."""
    found = {job["id"]: job for job in told("ls")}
    assert found[endless]["summary"].startswith(sys.executable)
    assert endless in slaq("ls", "--active", "--quiet").stdout.split()
    assert told("ls", "--state", "failed", "--user", "nobody-here") == []
    assert told("ls", "--tag", "no-such-tag") == []
    assert endless in slaq("ls").stdout
    slaq("ls", "--all", "--active", status=2)


def test_show_tells_what_a_job_needs_and_waits_for(endless: str) -> None:
    """Its sizes, its memory, the jobs it comes after, and when it is due, as they were given."""
    words = ["--sizes", "0.5,1", "--memory", "1GB", "--after", endless, "--arrival", "1h"]
    job = submit("--trains", *words, "--", "true")
    view = told("show", job)
    assert (view["sizes"], view["memory"], view["after"]) == ([0.5, 1.0], 10**9, [endless])
    assert view["arrival"] - view["submitted_at"] == pytest.approx(3600.0, abs=1.0)
    lines = {line.split()[0]: line for line in slaq("show", job).stdout.splitlines() if line.strip()}
    assert lines["sizes"].endswith(" 0.5, 1 cores")
    assert lines["memory"].endswith(" 1 GB declared")
    assert lines["after"].endswith(f" {endless}")
    assert "(in 5" in lines["due"] or "(in 1" in lines["due"]
    with connect() as client:
        (seen,) = (one.view for one in client.jobs() if one.id == job)
        assert (seen.sizes, seen.after) == ((0.5, 1.0), (endless,))
    slaq("cancel", job)


def test_show_tells_what_a_job_says_it_can_use_and_its_other_numbers(here: Path) -> None:
    """What `slaq.can_use` was told, and the course of the numbers beside the last loss with the last of each."""
    script = here / "telling.py"
    script.write_text(
        "import time, slaq\n"
        "slaq.can_use(max_cores=2, sizes='whole', worth=3, change_seconds=0.5)\n"
        "for i in range(5):\n    slaq.report(1 / (i + 1), workers=i + 1)\n"
        "time.sleep(60)\n"
    )
    job = submit("--", sys.executable, str(script))
    until(lambda: told("show", job)["iteration"] == 4)
    shown = slaq("show", job).stdout
    assert "at most 2 cores; whole workers; all of its workers advance it like 3 single ones at most" in shown
    assert "a change of size costs it 0.5 s" in shown
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert lines["workers"].endswith("  5")
    slaq("cancel", job)


def _moment_of_end(client: Client, job: str) -> float | None:
    moment: float | None = client.show_job(job)["ended_at"]
    return moment


def test_tables_and_reports_tell_what_they_leave_out(
    served: Served, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many ended jobs `ls` shows the last ones and says how many more there are; a report says so too."""
    monkeypatch.setattr("slaq.cli.verbs.ls.SHOWN", 2)
    with served.client("kim") as client:
        for name in ("kim-1", "kim-2", "kim-3", "kim-4"):
            client.send(Submission(external=True, options={"name": name}))
        for name in ("kim-1", "kim-4", "kim-2"):
            client.end(name, state="completed")
            until(partial(_moment_of_end, client, name))
    done = slaq("ls", "--user", "kim")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["kim-2", "kim-3", "kim-4"]
    assert "and 1 more that ended within a day; slaq ls --ended-within 1d" in done.stderr
    every = ["kim-1", "kim-2", "kim-3", "kim-4"]
    assert slaq("ls", "--user", "kim", "--quiet").stdout.split() == every
    for words in (("ls", "--user", "kim", "--ended-within", "1d"), ("ls", "--user", "kim", "--all")):
        plain = slaq(*words).stdout
        with monkeypatch.context() as long:
            long.setattr("slaq.cli.verbs.ls.LONG", 0)
            assert slaq(*words).stdout.splitlines()[0] == plain.splitlines()[0]
            assert [line.split()[:2] for line in slaq(*words).stdout.splitlines()] == [
                line.split()[:2] for line in plain.splitlines()
            ]
    report = slaq("report", "--user", "kim", "--jobs", "2", "--json")
    assert json.loads(report.stdout)["jobs"] == ["kim-2", "kim-3"]
    assert "only the last 2 of 4 jobs" in report.stderr
    with served.client("kim") as client:
        client.end("kim-3", state="completed")


def test_jobs_are_steered(endless: str) -> None:
    """Pause holds a job without cores, resume lets it go on, and a new weight is in force at once."""
    until(lambda: told("show", endless)["state"] == "running")
    slaq("pause", endless)
    until(lambda: told("show", endless)["state"] == "paused" and told("show", endless)["cores"] == 0)
    assert [job["id"] for job in told("ls", "--state", "paused")] == [endless]
    assert told("resume", endless)[0]["id"] == endless
    until(lambda: told("show", endless)["state"] == "running")
    assert told("weight", endless, "2.5")["weight"] == 2.5
    slaq("weight", endless, "0", status=2)
    slaq("weight", endless, "nan", status=2)


def test_one_job_that_cannot_be_steered_does_not_keep_the_others_from_it(endless: str) -> None:
    """Of several jobs, those that can be are; the exit status tells that one was not."""
    done = slaq("pause", "no-such", endless, status=1)
    assert "no-such" in done.stderr
    until(lambda: told("show", endless)["state"] == "paused")


def test_wait_tells_how_it_ended(here: Path, endless: str) -> None:
    """0 when it came to that, 4 when a job failed or was cancelled before, 5 when the time was up."""
    good = submit("--", "true")
    bad = submit("--", "sh", "-c", "exit 3")
    slaq("wait", good)
    done = slaq("wait", bad, good, status=4)
    assert f"job {bad!r} has failed" in done.stderr
    assert good not in done.stderr
    assert "still running" in slaq("wait", endless, "--timeout", "0.2", status=5).stderr
    slaq("wait", endless, "--reduction", "0.5", "--timeout", "60s")
    slaq("wait", endless, good, "--any")
    slaq("wait", good, "--reduction", "0.9")
    slaq("wait", bad, "--reduction", "0.9", status=4)
    slaq("cancel", endless)
    slaq("wait", endless, status=4)
    assert endless in slaq("cancel", endless, status=1).stderr


def test_a_table_has_the_columns_and_the_order_that_are_asked_for(here: Path, served: Served) -> None:
    """`ls` sorts by any column, the best first, and shows the chosen ones; JSON has all of each job."""
    with connect(served.unix) as client:
        for name, losses in (("sorted-b", (3.0, 0.25)), ("sorted-a", (2.0, 0.5)), ("sorted-c", (9.0, 0.125))):
            options: ServiceOptions = {"name": name, "tags": ["sorted"]}
            client.send(Submission(external=True, options=options))
            client.report(name, reports(*losses), offset=0)
        until(lambda: all(job["best_loss"] for job in told("ls", "--tag", "sorted")))
    words = ["ls", "--tag", "sorted", "--columns", "job,best,comm"]
    shown = [line.split() for line in slaq(*words, "--sort", "best").stdout.splitlines()]
    assert shown == [
        ["job", "best", "command"],
        ["sorted-c", "0.125", "runs", "elsewhere"],
        ["sorted-b", "0.25", "runs", "elsewhere"],
        ["sorted-a", "0.5", "runs", "elsewhere"],
    ]
    ids = slaq(*words, "--sort", "best", "--reverse", "--quiet").stdout.split()
    assert ids == ["sorted-a", "sorted-b", "sorted-c"]
    assert [job["id"] for job in told(*words, "--sort", "best")] == ["sorted-c", "sorted-b", "sorted-a"]
    assert [job["id"] for job in told(*words)] == ["sorted-b", "sorted-a", "sorted-c"]
    assert "column 'c' may be cores or chance or CPU or command; type more" in (
        slaq("ls", "--sort", "c", status=2).stderr.replace("\n", " ")
    )
    assert "there is no column 'colour'; known: job, " in slaq("ls", "--columns", "colour", status=2).stderr
    assert "takes one column" in slaq("ls", "--sort", "job,best", status=2).stderr
    assert tuple(COLUMNS) == NAMES
    for name in ids:
        slaq("cancel", name)
        slaq("wait", name, status=4)


def test_a_program_is_run_by_its_name(here: Path) -> None:
    """file.py:function runs in a process of its own, with parameters read as TOML; mistakes are told here."""
    Path("prog.py").write_text(PROGRAM)
    job = submit("prog.py:train", "-p", "rate=0.5", "--max-iterations", "3")
    slaq("wait", job, "--timeout", "60s")
    view = told("show", job)
    assert (view["work"], view["loss"]) == ("program", pytest.approx(0.5**4))
    for words, sentence in (
        (["prog.py:other", "-p", "rate=1"], "there is no function in prog.py 'other'"),
        (["prog.py:train"], "rate"),
        (["no.py:train"], "there is no file"),
    ):
        assert sentence in slaq("submit", *words, status=1).stderr
    assert "give NAME=VALUE" in slaq("submit", "prog.py:train", "-p", "rate", status=2).stderr


JOBS = """
[cluster]
cores = 1
[[job]]
name = "km"
algorithm = "kmeans"
data = {generate = "blobs", rows = 100, features = 2}
parameters = {k = {grid = [2, 3]}, iterations = 2}
[[job]]
name = "cmd"
arrival = "5s"
command = "echo {word}"
weight = 3
max_cores = 0.5
parameters = {word = "hello"}
"""


def test_a_file_of_jobs_is_submitted_whole_or_not_at_all(here: Path) -> None:
    """Each job of the file is submitted, grids included; with a mistake in it, none is."""
    Path("jobs.toml").write_text(JOBS)
    before = len(told("ls", "--all"))
    Path("wrong.toml").write_text(JOBS + "wieght = 2\n")
    assert "did you mean" in slaq("submit", "wrong.toml", status=1).stderr
    assert len(told("ls", "--all")) == before
    done = slaq("submit", "jobs.toml", "--tags", "sweep", "--weight", "2")
    assert "[cluster] is for `slaq run`" in done.stderr
    ids = done.stdout.split()
    assert len(ids) == 3
    slaq("wait", *ids, "--timeout", "90s")
    views = [told("show", job) for job in ids]
    assert [view["weight"] for view in views] == [2.0, 2.0, 3.0]
    assert all(view["tags"] == ["sweep"] for view in views)
    assert views[2]["max_cores"] == 0.5
    assert slaq("logs", ids[2]).stdout == "hello\n"
    assert list(Path(views[0]["directory"]).rglob("model.npz"))


MISUSES: dict[str, list[str]] = {
    "nothing to do": [],
    "external with a command": ["--external", "--", "true"],
    "a name for a file": ["jobs.toml", "--name", "x"],
    "data for a command": ["--data", "x.npz", "--", "true"],
    "a parameter for a command": ["-p", "a=1", "--", "true"],
    "a loss of other work": ["--no-trains", "--loss-file", "l.csv", "--", "true"],
    "no duration": ["--deadline", "soon", "--", "true"],
    "no number": ["--weight", "nan", "--", "true"],
    "beyond the whole": ["--stop-at", "1.5", "--", "true"],
    "unknown option": ["--lr", "3", "--", "true"],
    "an option of a program": ["--partitions", "3", "--", "true"],
    "a variable that is not set": ["--env", "NOT_SET_HERE", "--", "true"],
    "not a variable": ["--env", "1A=2", "--", "true"],
    "a pattern without a group": ["--loss-pattern", "loss", "--", "true"],
    "not a name": ["--name", "../x", "--", "true"],
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_of_submit_starts_nothing(misuse: str, here: Path) -> None:
    """What makes no sense is a usage error, before anything is asked of the service."""
    done = slaq("submit", *MISUSES[misuse], status=2)
    assert "Error:" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [["--", "no-such-program-here"], ["--", "./nothing"], ["no.toml"]],
)
def test_what_cannot_run_is_refused_with_a_remedy(words: list[str], here: Path) -> None:
    """A program or a file that is not there: one sentence, status 1."""
    before = len(told("ls", "--all"))
    done = slaq("submit", *words, status=1)
    assert done.stderr.startswith("slaq: ")
    assert done.stdout == ""
    assert len(told("ls", "--all")) == before


def test_external_jobs_wait_for_reports(here: Path, served: Served) -> None:
    """An external job starts nothing here, and takes reports."""
    job = submit("--external", "--name", "outside")
    assert told("show", job)["work"] == "external"
    slaq("cancel", job)


def test_users_and_policy_are_set_by_admins(here: Path) -> None:
    """Limits and the policy change at once; what is not given stays, and none lifts a limit."""
    view = told("users", "set", "ann", "--weight", "2", "--max-jobs", "3", "--max-cores", "1.5")
    assert (view["weight"], view["max_jobs"], view["max_cores"]) == (2.0, 3, 1.5)
    view = told("users", "set", "ann", "--max-jobs", "none")
    assert (view["weight"], view["max_jobs"], view["max_cores"]) == (2.0, None, 1.5)
    assert "ann" in slaq("users", "ls").stdout
    slaq("users", "set", "ann", status=2)
    before = told("cluster")["policy"]
    assert told("cluster", "--policy", "fair")["policy"] == "fair"
    assert "there is no policy" in slaq("cluster", "--policy", "fiar", status=1).stderr
    slaq("cluster", "--policy", before)


def test_over_tcp_a_token_says_who_asks(here: Path, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token from a file or the environment lets its user in, who sees no job of others; none lets nobody in."""
    theirs = submit("--", "true")
    slaq("token", "create", "carl-laptop", "--user", "carl", "--expires", "1d", "-o", "token")
    assert Path("token").stat().st_mode & 0o077 == 0
    url = served.tcp
    assert told("ls", "--url", url, "--token-file", "token") == []
    assert "no job" in slaq("show", theirs, "--url", url, "--token-file", "token", status=1).stderr
    assert (
        "may not"
        in slaq("users", "set", "x", "--weight", "9", "--url", url, "--token-file", "token", status=1).stderr
    )
    monkeypatch.setenv("SLAQ_URL", url)
    assert "token" in slaq("ls", status=1).stderr
    monkeypatch.setenv("SLAQ_TOKEN", Path("token").read_text().strip())
    assert told("ls") == []
    assert [one["name"] for one in told("token", "ls") if one["user"] == "carl"] == ["carl-laptop"]
    slaq("token", "revoke", "carl-laptop")
    assert "the token is unknown" in slaq("ls", status=1).stderr
    assert "there is no token" in slaq("token", "revoke", "carl-laptop", status=1).stderr


def test_a_token_file_has_to_hold_one(here: Path) -> None:
    """A file that holds anything else is refused; one that others can read is told of."""
    Path("none").write_text("two words\n")
    assert "does not hold a token" in slaq("ls", "--token-file", "none", status=1).stderr
    Path("open").write_text("slaq_abc\n")
    Path("open").chmod(0o644)
    assert "chmod 600" in slaq("ls", "--token-file", "open").stderr
    assert slaq("ls", "--token-file", "missing", status=1).stderr.startswith("slaq: missing: ")


def test_backup_is_a_whole_database(here: Path) -> None:
    """The copy is sound, for its owner alone, and replaces nothing unless told to."""
    job = submit("--", "true")
    slaq("wait", job)
    slaq("backup", "copy.db")
    assert Path("copy.db").stat().st_mode & 0o777 == 0o600
    with contextlib.closing(sqlite3.connect("copy.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT count(*) FROM jobs WHERE id = ?", (job,)).fetchone() == (1,)
    slaq("backup", "copy.db", status=2)
    slaq("backup", "copy.db", "--force")
    assert os.listdir() == ["copy.db"]


def test_prune_asks_before_it_removes(here: Path, endless: str) -> None:
    """A dry run removes nothing, nobody to ask is a usage error, and jobs that have not ended stay."""
    job = submit("--", "true")
    slaq("wait", job)
    found = told("prune", "--keep-jobs", "0", "--dry-run")
    assert job in found["jobs"]
    assert found["left"] == {}
    slaq("prune", "--keep-jobs", "0", status=2)
    slaq("prune", status=2)
    folder = Path(told("show", job)["directory"])
    assert folder.exists()
    assert "removed" in slaq("prune", "--keep-jobs", "0", "--yes").stdout
    slaq("show", job, status=1)
    assert not folder.exists()
    assert told("show", endless)["state"] in ("queued", "running")


def test_whatif_plays_the_present_jobs_forward(endless: str) -> None:
    """It tells of each job as things are and under the alternative, and nothing changes for the jobs."""
    until(lambda: told("show", endless)["iteration"] > 5)
    before = told("cluster")
    found = told("whatif", "--policy", "fair", "--cores", "4", "--horizon", "30s")
    assert [(one["policy"], one["cores"]) for one in found["replays"]] == [("total-quality", 2), ("fair", 4)]
    assert all([job["id"] for job in one["jobs"]] == [endless] for one in found["replays"])
    assert len(told("whatif", "--horizon", "10s", "--seed", "1")["replays"]) == 1
    printed = slaq("whatif", "--cores", "1", "--horizon", "10s").stdout
    assert endless in printed
    assert "as now" in printed
    assert "there is no policy" in slaq("whatif", "--policy", "fiar", status=1).stderr
    assert (told("cluster")["policy"], told("cluster")["capacity"]) == (before["policy"], before["capacity"])


def test_show_has_every_option_that_was_given(here: Path) -> None:
    """What differs from what is usual is shown, each option once; what is usual is not."""
    words = [
        "--retry",
        "2",
        "--notify",
        "echo done",
        "--max-iterations",
        "9",
        "--stop-at",
        "0.5",
        "--max-cores",
        "1",
    ]
    job = submit(*words, "--", sys.executable, "-c", "pass")
    lines = [
        line for line in slaq("show", job).stdout.splitlines() if line.split()[0] in ("options", "weight")
    ]
    assert [line.split(maxsplit=1)[1] for line in lines] == [
        "1, at most 1 core",
        "stop_at 0.5, max_iterations 9, retry 2, notify 'echo done'",
    ]


def test_report_is_one_page(here: Path) -> None:
    """It tells of the jobs of the service, as a page and as numbers."""
    words = ["--tags", "told", "--weight", "3", "--max-cores", "0.5"]
    job = submit(*words, "--loss-pattern", r"loss (\S+)", "--", sys.executable, "-c", SAYS)
    slaq("wait", job)
    found = told("report", "--tag", "told")
    assert (found["jobs"], found["policy"]) == ([job], "total-quality")
    (row,) = found["table"]
    assert row["id"] in found["jobs"]
    assert row["options"] == {"weight": "3", "max_cores": "0.5", "tags": "told"}
    view = told("show", row["id"])
    for name in ("state", "best_loss", "reduction", "cpu_seconds"):
        assert row[name] == view[name]
    slaq("report", "page.html", "--tag", "told", "--since", "1h", "--user", row["owner"])
    page = Path("page.html").read_text()
    assert "<h2>The jobs</h2>" in page
    assert f"<td>{row['best_loss']:.4g}</td>" in page
    assert "weight 3, max_cores 0.5, tags told" in page
    for option in ("--url unix://", "--since 3600", f"--user {row['owner']}", "--tag told", "--jobs 1000"):
        assert option in page
    assert "<html" in Path("page.html").read_text()
    slaq("report", status=2)
    assert "longer --since" in slaq("report", "--json", "--since", "0.001s", status=1).stderr


def test_ids_of_jobs_complete(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab after a verb offers the ids of jobs that begin so, and nothing where no service answers."""

    def complete(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        env = {"COMP_WORDS": words, "COMP_CWORD": count, "_SLAQ_COMPLETE": "bash_complete"}
        return CliRunner().invoke(main, prog_name="slaq", env=env).stdout.split()

    assert f"plain,{endless}" in complete(f"slaq logs {endless[:3]}")
    assert complete("slaq logs no-such") == []
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SLAQ_HOME", "/nonexistent")
        assert complete(f"slaq logs {endless[:3]}") == []


def test_logs_follow_a_job_to_its_end(here: Path) -> None:
    """-f prints what comes later too, and returns when the job has ended."""
    code = "import time; print('first', flush=True); time.sleep(1.5); print('last', flush=True)"
    job = submit("--", sys.executable, "-c", code)
    found: list[str] = []
    follower = threading.Thread(target=lambda: found.append(slaq("logs", job, "-f").stdout))
    follower.start()
    follower.join(PATIENCE)
    assert found == ["first\nlast\n"]
