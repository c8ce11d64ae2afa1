"""Laws of commands that mean harm: what a command writes, prints or leaves concerns its own job alone."""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

from slaq.core.errors import LossSourceError
from slaq.core.events import LossObserved
from slaq.engines.node.commands.records import (
    CommandExited,
    CommandSpec,
    LossSourceFailed,
    Record,
    RunAs,
)
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.jobs.loss_pattern import checked_pattern
from tests.integration.test_processes import collect, losses, plain, processes_with, python, run, wait_until

__all__ = ["plain"]

#: Writes lines to its own reports as they are, and then one real loss.
WRITES = """
import os, sys, slaq
with open(os.environ["SLAQ_REPORTS"], "ab") as file:
    file.write(bytes.fromhex(sys.argv[1]))
slaq.report(0.5)
"""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="runs commands as another user")
NOBODY = RunAs(uid=65534, gid=65534)
SOMEBODY = RunAs(uid=54321, gid=54321)


def line(**fields: object) -> bytes:
    """Return a report with some fields changed."""
    usual = {"iteration": 0, "loss": 1.0, "time": time.time(), "cpu": 0.1, "pid": 7}
    return json.dumps(usual | fields).encode() + b"\n"


def number_of_losses(records: list[Record], job: str = "job") -> int:
    return sum(isinstance(one, LossObserved) and one.job_id == job for one in records)


def failures(records: list[Record]) -> list[str]:
    return [one.reason for one in records if isinstance(one, LossSourceFailed)]


@pytest.mark.parametrize(
    "written",
    [
        line(pid=2**63),
        line(pid=10**400),
        line(pid=-1),
        line(pid=True),
        line(pid=0),
        line(iteration=10**400),
        line(time=1e308),
        line(time=-1e308),
        line(cpu=10**400),
        line(cpu=-1e308),
        line(loss="1" * 5000),
        line(loss=10**5000) if sys.get_int_max_str_digits() == 0 else b'{"loss":1' + b"0" * 5000 + b"}\n",
        line(metrics={"\ud800": 1.0}),
        line(metrics={"x" * 60000: 1.0}),
        line(metrics={str(n): n for n in range(5000)}),
        line(can_use={"min_cores": 10**400, "sizes": [[[]]]}),
        line(learning_rate=math.nan),
        b"[" * 60000 + b"\n",
        b'{"a":' * 10000 + b"\n",
        b"\xff\xfe\x00\n" * 1000,
        b"\n" * 100000,
        b"x" * 3_000_000 + b"\n",
    ],
    ids=range(22),
)
def test_what_a_job_reports_concerns_that_job_alone(
    plain: SupervisorClient, tmp_path: Path, written: bytes
) -> None:
    """Whatever lines it writes, its supervisor lives on, and another command's losses are heard."""
    plain.start("other", python(tmp_path / "other", "import slaq, time\ntime.sleep(0.5)\nslaq.report(2.0)"))
    plain.set_share("other", 1.0)
    pid = plain.pid
    reports = tmp_path / "hex"
    reports.write_text(written.hex())
    code = WRITES.replace("bytes.fromhex(sys.argv[1])", f"bytes.fromhex(open({str(reports)!r}).read())")
    plain.start("job", python(tmp_path / "job", code))
    plain.set_share("job", 1.0)
    records = collect(plain, lambda found: sum(isinstance(one, CommandExited) for one in found) == 2)
    ends = {one.job_id: one for one in records if isinstance(one, CommandExited)}
    assert {one.status for one in ends.values()} == {0}
    assert number_of_losses(records, "other") == 1
    assert plain.pid == pid
    for one in records:
        if isinstance(one, LossObserved):
            assert len(one.metrics) <= 64
            assert all(len(name) <= 100 and name.isprintable() for name in one.metrics)
            assert 0.0 <= one.observation.cpu_seconds < 1e12


@pytest.mark.parametrize("between", [600_000, 20_000_000, pytest.param(60_000_000, marks=pytest.mark.slow)])
def test_all_that_a_job_wrote_is_read_at_its_end(
    plain: SupervisorClient, tmp_path: Path, between: int
) -> None:
    """Losses that stand behind a flood of other output are heard, however shortly the command ends after them."""
    code = f"""
    for i in range(5): print("loss", 9.0 - i)
    print("x" * 99 + "\\n" * 1, end="")
    import sys
    sys.stdout.write(("y" * 99 + "\\n") * {between // 100})
    for i in range(20): print("loss", 4.0 - i / 10)
    print("loss 0.125", end="")
    """
    records, end = run(plain, python(tmp_path, code, loss_pattern=r"loss (\S+)"))
    assert end.status == 0
    found = losses(records)
    assert [iteration for iteration, _ in found] == list(range(26))
    assert found[-1][1] == 0.125


def test_all_rows_of_a_loss_file_are_read_at_its_end(plain: SupervisorClient, tmp_path: Path) -> None:
    """The same holds for a file of losses that is larger than what is read at a time."""
    code = """
    with open("losses.csv", "w") as file:
        file.write("step,pad,loss\\n")
        for i in range(5000): file.write(f"{i},{'p' * 200},{1 / (1 + i)}\\n")
    """
    records, _ = run(plain, python(tmp_path, code, cwd=tmp_path, loss_file=Path("losses.csv")))
    assert number_of_losses(records) == 5000


def test_a_pipe_for_a_loss_file_holds_nobody_up(plain: SupervisorClient, tmp_path: Path) -> None:
    """A loss file that is no file is told of; the command runs to its end."""
    os.mkfifo(tmp_path / "losses")
    records, end = run(plain, python(tmp_path, "print(1)", loss_file=tmp_path / "losses"))
    assert end.status == 0
    assert "is not a regular file" in failures(records)[0]


def test_a_leased_loss_file_holds_nobody_up(plain: SupervisorClient, tmp_path: Path) -> None:
    """Its owner may hold a lease on the file, which makes every other opening wait: the command runs meanwhile."""
    code = """
    import fcntl, os, slaq, time
    file = os.open("losses", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.fcntl(file, fcntl.F_SETSIG, 0)
    import signal
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    print("leased", flush=True)
    time.sleep(1.0)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.write(file, b"loss\\n0.5\\n0.25\\n")
    """
    records, end = run(plain, python(tmp_path, code, cwd=tmp_path, loss_file=tmp_path / "losses"))
    assert (end.status, end.tail) == (0, "leased")
    assert [loss for _, loss in losses(records)] == [0.5, 0.25]


def reader_of(supervisor: int, uid: int) -> Callable[[], int | None]:
    """Return a search for the process that reads for a user: a child of the supervisor with its command line."""

    def search() -> int | None:
        line = Path(f"/proc/{supervisor}/cmdline").read_bytes()
        for tasks in Path(f"/proc/{supervisor}/task").glob("*/children"):
            for child in tasks.read_text(encoding="ascii").split():
                place = Path("/proc", child)
                same = place.joinpath("cmdline").read_bytes() == line
                if same and place.stat().st_uid in (uid, 0) and _uid(place) == uid:
                    return int(child)
        return None

    return search


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _uid(place: Path) -> int:
    (row,) = [row for row in place.joinpath("status").read_text().splitlines() if row.startswith("Uid:")]
    return int(row.split()[1])


def found(search: Callable[[], int | None]) -> int:
    wait_until(lambda: search() is not None)
    pid = search()
    assert pid is not None
    return pid


def open_to(folder: Path, user: RunAs) -> Path:
    """Make a folder in which a user may run commands."""
    folder.mkdir()
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.getuid() and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o011)
    os.chown(folder, user.uid, user.gid)
    job = folder / "job"
    job.mkdir()
    for name in ("log", "reports.jsonl"):
        (job / name).touch()
        os.chown(job / name, user.uid, user.gid)
    return folder


#: Reports a loss from a shell, which every user may run.
REPORT = """
report() {
    printf '{"iteration":0,"loss":%s,"time":%s.0,"pid":%s}\\n' "$1" "$(date +%s)" "$$" >> "$SLAQ_REPORTS"
}
"""


def as_user(folder: Path, user: RunAs, script: str, loss_pattern: str | None = None) -> CommandSpec:
    open_to(folder, user)
    return CommandSpec(
        argv=("/bin/sh", "-c", REPORT + script),
        directory=folder / "job",
        log=folder / "job" / "log",
        cwd=folder,
        run_as=user,
        loss_pattern=loss_pattern,
    )


@needs_root
def test_a_reader_that_stands_still_holds_up_its_own_user_alone(
    plain: SupervisorClient, tmp_path: Path
) -> None:
    """A file may block whoever reads it: then that user's losses wait, and nobody else's do."""
    plain.start("stuck", as_user(tmp_path / "stuck", NOBODY, "while true; do sleep 0.1; done"))
    plain.set_share("stuck", 1.0)
    assert plain.pid is not None
    reader = found(reader_of(plain.pid, NOBODY.uid))
    os.kill(reader, signal.SIGSTOP)
    told = "for i in 5 4 3 2 1; do report $i; done"
    records, _ = run(plain, as_user(tmp_path / "free", SOMEBODY, told))
    assert number_of_losses(records) == 5
    # The user's own next command is let run all the same, and its end is told.
    records, end = run(plain, as_user(tmp_path / "later", NOBODY, "echo ran"))
    assert (end.status, end.tail) == (0, "ran")
    assert failures(records) != []
    os.kill(reader, signal.SIGKILL)
    plain.stop("stuck")
    collect(plain, lambda found: any(isinstance(one, CommandExited) for one in found))


@needs_root
def test_a_job_can_kill_only_the_reader_of_its_own_user(plain: SupervisorClient, tmp_path: Path) -> None:
    """Readers run as the user whose commands they read; one that is killed is replaced, and no loss is lost."""
    slow = "for i in $(seq 60); do report $i; echo value $i; sleep 0.02; done"
    plain.start("a", as_user(tmp_path / "a", NOBODY, slow))
    plain.start("b", as_user(tmp_path / "b", NOBODY, slow, loss_pattern=r"value (\S+)"))
    for job in "ab":
        plain.set_share(job, 1.0)
    assert plain.pid is not None
    records: list[Record] = []
    for _ in range(3):
        pid = found(reader_of(plain.pid, NOBODY.uid))
        before = len(records)
        records += collect(plain, lambda found: len(found) > 4)
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(gone, pid))
        assert len(records) > before
    records += collect(
        plain, lambda found: sum(isinstance(one, CommandExited) for one in [*records, *found]) == 2
    )
    for job in "ab":
        heard = [one for one in records if isinstance(one, LossObserved) and one.job_id == job]
        assert [one.observation.loss for one in heard] == [1.0 + i for i in range(60)]


#: Ways to tell five losses, and what is asked for each; one of the files has rows of an older run.
TELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "reports": ("for i in range(5): slaq.report(i)", {}),
    "output": ("for i in range(5): print('loss', i, flush=True)", {"loss_pattern": r"loss (\S+)"}),
    "found output": ("for i in range(5): print('loss', i, flush=True)", {"loss_series": "loss"}),
    "found file": ("add_rows('metrics.csv')", {"loss_series": "loss"}),
    "old file": ("add_rows('old.csv')", {"loss_file": Path("old.csv")}),
    "new file": ("add_rows('new.csv')", {"loss_file": Path("new.csv")}),
}
#: Tells them once in each turn, when it is told to.
IN_TURNS = """
import os, slaq, sys, time
def add_rows(name):
    new = not os.path.exists(name)
    with open(name, "a") as file:
        file.write("step,loss\\n" * new + "".join(f"{i},{i}\\n" for i in range(5)))
def wait_for(name):
    while not os.path.exists(name): time.sleep(0.01)
for turn in range(TURNS):
    open(f"begun{turn}", "w")
    wait_for(f"go{turn}")
    TELL
    open(f"told{turn}", "w")
wait_for("end")
"""


@pytest.mark.parametrize("way", TELLS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_reader_killed_before_it_told_a_loss_loses_none(
    plain: SupervisorClient, tmp_path: Path, way: str, after: int
) -> None:
    """The next reader goes on from where the command began, or where the one before had come."""
    tell, options = TELLS[way]
    (tmp_path / "old.csv").write_text("step,loss\n0,9\n1,8\n")
    code = IN_TURNS.replace("TURNS", str(after + 1)).replace("TELL", tell)
    plain.start("job", python(tmp_path, code, cwd=tmp_path, **options))
    plain.set_share("job", 1.0)
    heard: list[Record] = []
    for turn in range(after):
        wait_until((tmp_path / f"begun{turn}").exists)
        (tmp_path / f"go{turn}").touch()
        heard += collect(plain, lambda found: number_of_losses(found) == 5)
    wait_until((tmp_path / f"begun{after}").exists)
    assert plain.pid is not None
    reader = found(reader_of(plain.pid, os.getuid()))
    os.kill(reader, signal.SIGSTOP)
    (tmp_path / f"go{after}").touch()
    wait_until((tmp_path / f"told{after}").exists)
    os.kill(reader, signal.SIGKILL)
    heard += collect(plain, lambda found: number_of_losses(found) >= 5)
    (tmp_path / "end").touch()
    heard += collect(plain, lambda found: any(isinstance(one, CommandExited) for one in found))
    assert [loss for _, loss in losses(heard)] == [float(i) for i in range(5)] * (after + 1)


def test_readers_end_with_their_commands(plain: SupervisorClient, tmp_path: Path) -> None:
    """Once the last command of a user has ended, no reader is left."""
    run(plain, python(tmp_path, "print(1)"))
    assert plain.pid is not None
    search = reader_of(plain.pid, os.getuid())
    wait_until(lambda: search() is None)
    assert processes_with(str(tmp_path)) == []


def test_patterns_that_take_long_to_compile_are_refused() -> None:
    """Wide character classes are expanded when a pattern is compiled; a thousand of them would stop everything."""
    wide = "[a-\U0010ffff]"
    checked_pattern(f"(?i)({wide * 8})")
    for pattern in (f"(?i)({wide * 9})", r"(?i)([\u0100-\uffff]" + "[x]" * 9 + ")", f"({wide * 199})"):
        with pytest.raises(LossSourceError, match="character classes"):
            checked_pattern(pattern)
    ranges = "".join(f"{chr(first)}-\U0010ffff" for first in range(0x100, 0x126))
    for pattern in (f"(?i)(loss){f'[{ranges}]' * 8}", f"(?i)(loss)[{ranges}]", f"(?i:([^{ranges}]))"):
        with pytest.raises(LossSourceError, match="character ranges"):
            checked_pattern(pattern)
    checked_pattern("([a-z]+)" * 1 + "[0-9][.][0-9][a-f][x][y][z][.][-][+]")
