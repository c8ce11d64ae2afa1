"""Laws of process trees: whatever a process does to hide, it ends with its job, and harms no other job."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

from hypothesis import given
from hypothesis import strategies as st

from slaq.core.events import CpuUsed, JobDelayed
from slaq.engines import processes
from slaq.engines.node.commands import descriptors
from slaq.engines.node.commands.marks import MARK, clear_away, kill_marked, mark
from slaq.engines.node.commands.records import CommandExited, CommandSpec, Record, RunAs
from slaq.engines.node.commands.shares import WAYS, usable
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.engines.node.commands.tree import ProcessTable
from slaq.kinds.processes import mark_processes
from slaq.stores.sqlite import SqliteStore
from tests.integration.test_processes import ENV, collect, processes_with, wait_until

USABLE = usable(ProcessTable())
#: A Python that other users may execute.
PYTHON = "/usr/bin/python3"
needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not Path(PYTHON).exists(), reason="only root can run commands as other users"
)
#: Two users without an account.
ANN, BOB = RunAs(uid=64_101, gid=64_101), RunAs(uid=64_102, gid=64_102)

#: Says `ready` once it has left behind a process with another parent, another session and no environment.
ESCAPING = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "while True: pass", sys.argv[1]], {})
    os._exit(0)
os.wait()
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""

#: Leaves behind processes that fork and exit without end, each in a session of its own and without a mark.
LINK = """
import os
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
"""
CHAIN = f"""
import os, sys
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-SEc", {LINK!r}, sys.argv[1]], {{}})
os.wait()
print("ready", flush=True)
import time
while True:
    time.sleep(0.01)
"""


@pytest.fixture(params=list(WAYS))
def commands(request: pytest.FixtureRequest) -> Iterator[SupervisorClient]:
    if request.param not in USABLE:
        pytest.skip(f"{request.param} does not work on this machine")
    with SupervisorClient(throttle=request.param, grace=0.1) as made:
        yield made


@pytest.fixture
def stop_continue() -> Iterator[SupervisorClient]:
    """Commands without the help of control groups."""
    with SupervisorClient(throttle="stop-continue", grace=0.1) as made:
        yield made


def spec(folder: Path, code: str, *arguments: str, run_as: RunAs | None = None) -> CommandSpec:
    return CommandSpec(
        argv=(sys.executable if run_as is None else PYTHON, "-c", textwrap.dedent(code), *arguments),
        directory=folder,
        log=folder / "log",
        cwd=Path("/"),
        env=ENV,
        run_as=run_as,
    )


def begin(commands: SupervisorClient, job: str, what: CommandSpec, cores: float = 1.0) -> None:
    """Start a command and wait until it says that it is ready."""
    commands.start(job, what)
    commands.set_share(job, cores)

    def ready() -> bool:
        commands._pump(0.01)
        return what.log.exists() and "ready" in what.log.read_text()

    wait_until(ready)


def ends(records: list[Record]) -> list[CommandExited]:
    return [record for record in records if isinstance(record, CommandExited)]


def end_of(commands: SupervisorClient) -> CommandExited:
    return ends(collect(commands, lambda records: bool(ends(records))))[0]


# Nothing escapes


@pytest.mark.parametrize("victim", ["supervisor", "keeper"])
def test_nothing_is_left_when_a_lost_command_is_told(
    commands: SupervisorClient, tmp_path: Path, victim: str
) -> None:
    """When supervisor or keeper is killed, the end of a command is told after the last of its processes is gone."""
    name = str(tmp_path)
    begin(commands, "job", spec(tmp_path, ESCAPING, name))
    wait_until(lambda: len(processes_with(name)) == 2)
    lost = commands.pid if victim == "supervisor" else commands.keeper
    assert lost is not None
    os.kill(lost, signal.SIGKILL)
    end = end_of(commands)
    assert processes_with(name) == []
    assert "was lost" in end.fault
    assert not end.stopped
    begin(commands, "job", spec(tmp_path, "print('ready', flush=True)"))
    assert end_of(commands).status == 0


def test_supervisor_told_to_end_is_a_lost_one(commands: SupervisorClient, tmp_path: Path) -> None:
    """Where somebody else has the supervisor end, its commands are lost: their node had not asked for that."""
    begin(commands, "job", spec(tmp_path, ESCAPING, str(tmp_path)))
    assert commands.pid is not None
    os.kill(commands.pid, signal.SIGTERM)
    end = end_of(commands)
    assert processes_with(str(tmp_path)) == []
    assert ("was lost" in end.fault, end.stopped) == (True, False)


def test_marks_find_what_is_left_of_both(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """When supervisor and keeper are killed at once, all that bears a mark is gone before the end is told."""
    marked = ESCAPING.replace("], {})", "], dict(os.environ))")
    begin(stop_continue, "job", spec(tmp_path, marked, str(tmp_path)))
    pids = [stop_continue.keeper, stop_continue.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        processes.send([pid for pid in pids if pid], number)
    assert "was lost" in end_of(stop_continue).fault
    assert processes_with(str(tmp_path)) == []


NODE = """
import sys
from pathlib import Path
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.engines.node.commands.records import CommandSpec
folder, way = Path(sys.argv[1]), sys.argv[2]
commands = SupervisorClient(throttle=way)
argv = (sys.executable, "-c", sys.argv[3], str(folder / "job"))
commands.start("job", CommandSpec(argv=argv, directory=folder / "job", log=folder / "log"))
commands.set_share("job", 1.0)
(folder / "pids").write_text(f"{commands.pid} {commands.keeper}")
while True:
    commands.poll(0.1)
"""


@pytest.mark.parametrize("with_supervisor", [False, True])
@pytest.mark.parametrize("way", list(WAYS))
def test_nothing_is_left_of_a_killed_node(tmp_path: Path, way: str, with_supervisor: bool) -> None:
    """When the node is killed, with its supervisor or without, nothing of its commands is left, and no keeper."""
    if way not in USABLE:
        pytest.skip(f"{way} does not work on this machine")
    node = subprocess.Popen([sys.executable, "-c", NODE, str(tmp_path), way, ESCAPING], env=os.environ | ENV)
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    supervisor, keeper = map(int, (tmp_path / "pids").read_text().split())
    node.kill()
    if with_supervisor:
        os.kill(supervisor, signal.SIGKILL)
    node.wait()
    wait_until(lambda: processes_with(str(tmp_path / "job")) == [])
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (supervisor, keeper)))


def test_who_comes_after_a_killed_node_finds_nothing_of_it(tmp_path: Path) -> None:
    """Once what a killed node left was cleared away under its secret, not even what bears no mark runs on."""
    code = NODE.replace("throttle=way", "throttle=way, token='secret'")
    command = [sys.executable, "-c", code, str(tmp_path), "stop-continue", ESCAPING]
    node = subprocess.Popen(command, env=os.environ | ENV)
    log = tmp_path / "log"
    wait_until(lambda: log.exists() and "ready" in log.read_text())
    node.kill()
    clear_away("secret")
    assert processes_with(str(tmp_path / "job")) == []
    node.wait()


def test_keeper_is_small_and_holds_no_socket(stop_continue: SupervisorClient) -> None:
    """The keeper has none of the supervisor's modules in memory, and no socket that could hide its end."""
    stop_continue.prepare()
    folder = Path(f"/proc/{stop_continue.keeper}")
    assert not [fd for fd in (folder / "fd").iterdir() if "socket" in str(fd.readlink())]
    assert "numpy" not in (folder / "maps").read_text()


@pytest.mark.parametrize("end", ["stop", "kill supervisor"])
def test_chain_of_short_lived_processes_is_ended(
    commands: SupervisorClient, tmp_path: Path, end: str
) -> None:
    """Processes that fork and exit all the time, faster than anyone looks, are gone when their end is told."""
    begin(commands, "job", spec(tmp_path, CHAIN, str(tmp_path)))
    wait_until(lambda: processes_with(str(tmp_path)) != [])
    if end == "stop":
        commands.stop("job")
    else:
        assert commands.pid is not None
        os.kill(commands.pid, signal.SIGKILL)
    told = end_of(commands)
    assert processes_with(str(tmp_path)) == []
    assert told.stopped == (end == "stop")
    time.sleep(0.05)  # what had been missed would go on
    assert processes_with(str(tmp_path)) == []


def test_chain_counts_and_is_held_to_its_share(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """The CPU time of processes too short-lived to be seen counts, and without a share they stand still."""
    begin(stop_continue, "job", spec(tmp_path, CHAIN, str(tmp_path)), cores=2.0)

    def used(records: list[Record]) -> bool:
        return any(isinstance(record, CpuUsed) and record.cpu_seconds > 0.5 for record in records)

    collect(stop_continue, used)
    stop_continue.set_share("job", 0.0)

    def stands_still() -> bool:
        states = set()
        for pid in processes_with(str(tmp_path)):
            row = processes.stat_fields(pid)
            states |= {row[0]} if row else {b"R"}
        return states == {b"T"}

    wait_until(stands_still)


@needs_root
def test_orphan_belongs_to_its_own_user(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """A process that hides where it comes from ends with its user's job, whoever's jobs came later."""
    begin(stop_continue, "bobs", spec(tmp_path / "b", ESCAPING, f"{tmp_path}/b", run_as=BOB))
    begin(stop_continue, "anns", spec(tmp_path / "a", ESCAPING, f"{tmp_path}/a", run_as=ANN))
    stop_continue.stop("bobs")
    assert end_of(stop_continue).job_id == "bobs"
    assert processes_with(f"{tmp_path}/b") == []
    assert len(processes_with(f"{tmp_path}/a")) == 2


def test_orphan_belongs_to_the_group_that_holds_it(commands: SupervisorClient, tmp_path: Path) -> None:
    """Where control groups are used, they tell to which of one user's jobs a hidden process belongs."""
    if commands._force == "stop-continue":
        pytest.skip("there are no groups")
    for name in ("old", "new"):
        begin(commands, name, spec(tmp_path / name, ESCAPING, f"{tmp_path}/{name}"))
    commands.stop("new")
    assert end_of(commands).job_id == "new"
    assert processes_with(f"{tmp_path}/new") == []
    assert len(processes_with(f"{tmp_path}/old")) == 2


@needs_root
def test_hidden_work_is_counted_where_it_belongs(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """CPU time of processes too short-lived to be seen counts for a job of their own user, not for a newer one."""
    begin(stop_continue, "bobs", spec(tmp_path / "b", CHAIN, str(tmp_path), run_as=BOB))
    idle = "import time; print('ready', flush=True); time.sleep(600)"
    begin(stop_continue, "anns", spec(tmp_path / "a", idle, run_as=ANN))
    most = {"bobs": 0.0, "anns": 0.0}

    def used(records: list[Record]) -> bool:
        for record in records:
            if isinstance(record, CpuUsed):
                most[record.job_id] = record.cpu_seconds
        return most["bobs"] > 1.0

    collect(stop_continue, used)
    assert most["anns"] < 0.5


@needs_root
def test_process_that_nobody_answers_for_is_killed(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """An orphan of a user who has no job does not outlive the next look."""
    left = ESCAPING.replace("os.execve", "os.setuid(64_103); os.execve")
    begin(stop_continue, "job", spec(tmp_path, left, str(tmp_path)), cores=float("inf"))
    stop_continue.stop("job")
    end_of(stop_continue)
    wait_until(lambda: processes_with(str(tmp_path)) == [])


# Marks


@given(
    secret=st.text(min_size=1),
    known=st.text("0123456789", min_size=1),
    other=st.text("0123456789", min_size=1),
)
def test_marks_of_two_trees_have_nothing_in_common(secret: str, known: str, other: str) -> None:
    """A mark under another number, or made under another secret, is another mark."""
    if known != other:
        assert mark(secret, known).partition(".")[2] != mark(secret, other).partition(".")[2]
    assert mark(secret, known) != mark(secret + "x", known)


def test_forged_mark_changes_nothing() -> None:
    """Who bears a mark that was not made with the secret is left alone; who bears a genuine one is killed."""
    genuine, forged = mark("secret", "1"), mark("secret", "1")[2:]

    def start(bears: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], env={MARK: bears})

    others = [start(f"2.{forged}"), start("2."), start("secret.2"), start(""), start("2.\udcff")]
    mine = start(genuine)
    try:
        kill_marked("secret")
        assert mine.wait(30) == -signal.SIGKILL
        assert [other.poll() for other in others] == [None] * len(others)
    finally:
        for process in (mine, *others):
            process.kill()
            process.wait()


@needs_root
def test_forged_mark_takes_no_place_in_anothers_tree(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """A process that bears another tree's name, group or former mark stays its own user's."""
    begin(
        stop_continue,
        "anns",
        spec(tmp_path / "a", "print('ready', flush=True)\nwhile True: pass", run_as=ANN),
    )
    for forged in ("1", "1.", f"1.{'0' * 64}"):
        code = ESCAPING.replace("], {})", f"], {{'{MARK}': '{forged}'}})")
        begin(stop_continue, "bobs", spec(tmp_path / "b", code, f"{tmp_path}/b", run_as=BOB))
        stop_continue.stop("bobs")
        assert end_of(stop_continue).job_id == "bobs"
        assert processes_with(f"{tmp_path}/b") == []
        (tmp_path / "b" / "log").unlink()


@needs_root
def test_mark_is_seen_by_its_own_user_only(commands: SupervisorClient, tmp_path: Path) -> None:
    """What anyone can read of a process and of its control group does not hold its mark."""
    begin(commands, "job", spec(tmp_path, ESCAPING, str(tmp_path), run_as=ANN))
    pid = processes_with(str(tmp_path))[0]
    folder = Path(f"/proc/{pid}")
    digest = next(
        entry for entry in (folder / "environ").read_bytes().split(b"\0") if entry.startswith(MARK.encode())
    ).partition(b".")[2]
    assert len(digest) == 64
    assert (folder / "environ").stat().st_mode & 0o077 == 0
    assert digest not in (folder / "cgroup").read_bytes() + (folder / "cmdline").read_bytes()


# Numbers of processes are used again


def test_a_later_process_of_the_same_number_is_not_signalled() -> None:
    """A signal goes to the process that began at the known time, and to no other that has its number."""
    process = subprocess.Popen(["sleep", "600"])
    try:
        began = processes.stat_fields(process.pid)[processes.STARTED]
        processes.send_exactly(process.pid, b"%d" % (int(began) - 1), signal.SIGKILL)
        table = ProcessTable()
        table.plant("tree", process.pid)
        table._began[process.pid] = b"%d" % (int(began) - 1)
        table.send(table.members("tree"), signal.SIGKILL)
        time.sleep(0.05)
        assert process.poll() is None
        table.scan(thorough=True)
        assert table.members("tree") == set()
        processes.send_exactly(process.pid, began, signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL
        processes.send_exactly(process.pid, began, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


# Short of descriptors


def test_a_scan_without_descriptors_loses_nobody() -> None:
    """Where no file can be opened, the trees stay as they were; nobody is taken for gone."""
    child = subprocess.Popen(["sleep", "600"])
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        table = ProcessTable()
        table.plant("tree", child.pid)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        for _ in range(60):
            table.scan()
        table.scan(thorough=True)
        table.send([child.pid], signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert table.members("tree") == {child.pid}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        child.kill()
        child.wait()


def open_files(pid: int | None) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.parametrize("cores", [0.0, 1.0])
def test_a_command_takes_no_more_descriptors_than_is_counted(
    commands: SupervisorClient, tmp_path: Path, cores: float
) -> None:
    """In the supervisor a command holds as many descriptors as admission counts, and in its node none."""
    commands.prepare()
    before, mine = open_files(commands.pid), open_files(os.getpid())
    assert before + descriptors.SPARE <= descriptors.RESERVED
    code = "import slaq; slaq.report(1.0)\nfor n in range(20000): print('loss 1', flush=True)"
    for number in range(6):
        made = spec(tmp_path / str(number), code)
        made = CommandSpec(
            **{name: getattr(made, name) for name in made.__slots__} | {"loss_pattern": r"loss (\d)"}
        )
        commands.start(str(number), made)
        commands.set_share(str(number), cores)
    most = 0
    for _ in range(100):
        commands._pump(0.01)
        most = max(most, open_files(commands.pid) - before)
    # One more may be open for a moment.
    assert most <= 6 * descriptors.EACH + 1
    assert open_files(os.getpid()) <= mine
    commands.close()


def test_commands_wait_until_there_are_descriptors(stop_continue: SupervisorClient, tmp_path: Path) -> None:
    """A command for which there are no descriptors waits, can be stopped, and starts once there are some."""
    begin(stop_continue, "first", spec(tmp_path / "first", "print('ready', flush=True); input()"))
    stop_continue.stop("first")
    end_of(stop_continue)
    assert stop_continue.pid is not None
    limits = resource.prlimit(stop_continue.pid, resource.RLIMIT_NOFILE)
    for few in (descriptors.RESERVED, open_files(stop_continue.pid) + 1):
        resource.prlimit(stop_continue.pid, resource.RLIMIT_NOFILE, (few, limits[1]))
        for name in ("one", "two"):
            stop_continue.start(name, spec(tmp_path / name, "print('done')"))
            stop_continue.set_share(name, 1.0)
        collect(stop_continue, lambda found: sum(isinstance(one, JobDelayed) for one in found) == 2)
        stop_continue.stop("two")
        end = end_of(stop_continue)
        assert (end.job_id, end.stopped, end.fault) == ("two", True, "")
        resource.prlimit(stop_continue.pid, resource.RLIMIT_NOFILE, limits)
        told = collect(stop_continue, lambda found: bool(ends(found)))
        delays = [record for record in told if isinstance(record, JobDelayed) and not record.waits]
        assert [delay.reason for delay in delays] == [""]
        (end,) = ends(told)
        assert (end.job_id, end.status, end.tail) == ("one", 0, "done")


def test_a_node_without_descriptors_starts_its_commands_later(tmp_path: Path) -> None:
    """Where the node itself cannot open a file, commands wait until it can, and none fails."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with SupervisorClient(throttle="stop-continue", grace=0.1) as commands:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            commands.start("one", spec(tmp_path / "one", "print('done')"))
            commands.start("two", spec(tmp_path / "two", "print('done')"))
            commands.set_share("one", 1.0)
            told = commands.poll(0.0)
            commands.stop("two")
            (stopped,) = ends(commands.poll(0.0))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert [type(record) for record in told] == [JobDelayed, JobDelayed]
        assert (stopped.job_id, stopped.stopped) == ("two", True)
        told = collect(commands, lambda found: bool(ends(found)))
        assert [record.reason for record in told if isinstance(record, JobDelayed)] == [""]
        assert ends(told)[0].tail == "done"


def test_a_command_gets_what_was_there_before(tmp_path: Path) -> None:
    """The supervisor raises its own limit of open files and its precedence, not its node's nor its commands'."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, limits[1]))
        with SupervisorClient(grace=0.1) as commands:
            code = """
            import os, resource
            print(os.getpriority(os.PRIO_PROCESS, 0), *resource.getrlimit(resource.RLIMIT_NOFILE))
            """
            commands.start("job", spec(tmp_path, code))
            commands.set_share("job", 1.0)
            assert end_of(commands).tail == f"{os.getpriority(os.PRIO_PROCESS, 0)} 512 {limits[1]}"
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# One command's trouble


def test_a_command_stopped_as_it_starts_ends_no_other(commands: SupervisorClient, tmp_path: Path) -> None:
    """A signal that comes before a command is executed meets the command alone, not what its process came from."""
    code = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: print("told to end", flush=True))
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
    """
    good = spec(tmp_path / "good", code)
    begin(commands, "good", good)
    for number in range(30):
        commands.start(str(number), spec(tmp_path / str(number), "pass"))
        commands.stop(str(number))
    found = ends(collect(commands, lambda records: len(ends(records)) == 30))
    assert {end.job_id for end in found} == {str(number) for number in range(30)}
    assert good.log.read_text() == "ready\n"


TROUBLED = """
import sys
from slaq.engines.node.commands import supervisor_process
from slaq.engines.node.commands.supervisor import Supervisor
def troubled(method):
    def act(self, command, *arguments, **options):
        if command.launch.job_id == "bad":
            raise RuntimeError("trouble")
        return method(self, command, *arguments, **options)
    return act
setattr(Supervisor, {name!r}, troubled(getattr(Supervisor, {name!r})))
"""


@pytest.mark.parametrize("name", ["_take_in", "_measure", "_end", "_finish_reading", "_conclude"])
def test_trouble_with_one_command_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whatever goes wrong in the care of a command ends that command, with the reason, and no other."""
    from slaq.engines.node import spawn

    monkeypatch.setattr(
        spawn, "_BOOT", f"exec(sys.argv.pop(1)); {spawn._BOOT}".replace("exec", "import sys; exec", 1)
    )
    popen = subprocess.Popen

    def start(argv: list[str], **options: object) -> "subprocess.Popen[bytes]":
        place = argv.index("-c") + 2
        code = f"import sys, json; sys.path[:] = json.loads(sys.argv[1])\n{TROUBLED.format(name=name)}"
        return popen([*argv[:place], code, *argv[place:]], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(subprocess, "Popen", start)
    with SupervisorClient(throttle="stop-continue", grace=0.1) as commands:
        commands.start("good", spec(tmp_path / "good", "import time; time.sleep(1); print('done')"))
        commands.start("bad", spec(tmp_path / "bad", "import time; time.sleep(600)"))
        for job in ("good", "bad"):
            commands.set_share(job, 1.0)
        if name in ("_end", "_finish_reading", "_conclude"):
            commands.stop("bad")
        found = ends(collect(commands, lambda records: len(ends(records)) == 2))
    by_job = {end.job_id: end for end in found}
    assert (by_job["good"].status, by_job["good"].tail) == (0, "done")
    assert "trouble" in by_job["bad"].fault
    assert processes_with(str(tmp_path / "bad")) == []


# A service that comes after another


def test_a_service_clears_away_what_the_one_before_left(tmp_path: Path) -> None:
    """Each start has a secret of its own, under which the next finds its processes; an old prefix is dropped."""
    with SqliteStore(tmp_path / "slaq.db") as store:
        store.set_meta("processes", "0123456789abcdef")
        secret = mark_processes(store)
        left = subprocess.Popen(["sleep", "600"], env={MARK: mark(secret, "1")})
        other = subprocess.Popen(["sleep", "600"], env={MARK: "0123456789abcdef.1"})
        try:
            assert mark_processes(store) != secret
            assert left.wait(30) == -signal.SIGKILL
            assert other.poll() is None
            assert store.meta("processes") is None
        finally:
            for process in (left, other):
                process.kill()
                process.wait()
