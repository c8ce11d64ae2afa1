"""Laws of commands as jobs: real processes, started, heard, held to their shares, and ended."""

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

from slaq.core.errors import CommandError, DuplicateJobError, LossSourceError, ThrottleError, UnknownNameError
from slaq.core.events import CpuUsed, LearningRateChanged, LossObserved, LossSourceChanged
from slaq.engines.node.commands.records import CommandExited, CommandSpec, LossSourceFailed, Record
from slaq.engines.node.commands.shares import WAYS, usable
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.engines.node.commands.tree import ProcessTable

USABLE = usable(ProcessTable())
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

#: Forks a child that starts a session of its own and one whose parent is gone; all of them ignore SIGTERM, and
#: the last goes on forking. Each has written its number once `ready` holds three lines.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def ready():
    with open(sys.argv[1], "a") as file:
        file.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    ready()
    while True:
        time.sleep(0.01)
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        ready()
        while True:
            if os.fork() == 0:
                time.sleep(0.05)
                os._exit(0)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
            time.sleep(0.01)
    os._exit(0)
os.wait()
ready()
while True:
    time.sleep(0.01)
"""


@pytest.fixture(params=list(WAYS))
def commands(request: pytest.FixtureRequest) -> Iterator[SupervisorClient]:
    if request.param not in USABLE:
        pytest.skip(f"{request.param} does not work on this machine")
    with SupervisorClient(throttle=request.param, grace=0.3) as made:
        yield made


@pytest.fixture
def plain() -> Iterator[SupervisorClient]:
    """Commands under whatever way suits this machine, for laws that do not depend on it."""
    with SupervisorClient(grace=0.3) as made:
        yield made


def python(folder: Path, code: str, *arguments: str, **rest: Any) -> CommandSpec:
    return CommandSpec(
        argv=(sys.executable, "-c", textwrap.dedent(code), *arguments),
        directory=folder / "job",
        log=folder / "job" / "log",
        env=ENV | rest.pop("env", {}),
        **rest,
    )


def collect(
    commands: SupervisorClient, done: Callable[[list[Record]], bool], seconds: float = 100.0
) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + seconds
    while not done(records):
        assert time.monotonic() < deadline, records
        time.sleep(0.01)
        records += commands.poll()
    return records


def end_of(commands: SupervisorClient) -> CommandExited:
    """Return how the only command ended."""
    records = collect(commands, lambda found: any(isinstance(item, CommandExited) for item in found))
    assert isinstance(records[-1], CommandExited)
    return records[-1]


def run(
    commands: SupervisorClient, spec: CommandSpec, cores: float = 2.0
) -> tuple[list[Record], CommandExited]:
    """Run a command to its end; return all there was to tell, and the end."""
    commands.start("job", spec)
    commands.set_share("job", cores)
    records = collect(commands, lambda found: any(isinstance(item, CommandExited) for item in found))
    end = records[-1]
    assert isinstance(end, CommandExited)
    return records, end


def losses(records: list[Record]) -> list[tuple[int, float]]:
    return [
        (item.observation.iteration, item.observation.loss)
        for item in records
        if isinstance(item, LossObserved)
    ]


def processes_with(text: str) -> list[int]:
    """Return the live processes that have the text on their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if text.encode() in line and state not in "ZX":
                found.append(int(folder.name))
    return found


def wait_until(done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def line_count(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


# Losses and output


def test_reports_become_observations(commands: SupervisorClient, tmp_path: Path) -> None:
    """Losses, metrics and rates that a script reports arrive in order, with what they cost; the end comes last."""
    code = """
    import slaq, time
    def work():
        end = time.process_time() + 0.05
        while time.process_time() < end: pass
    slaq.report(1.0)
    for n in range(4):
        work()
        slaq.report(1 / (n + 2), accuracy=n)
    slaq.announce(learning_rate=0.01)
    """
    records, end = run(commands, python(tmp_path, code))
    assert losses(records) == [(0, 1.0), (1, 1 / 2), (2, 1 / 3), (3, 1 / 4), (4, 1 / 5)]
    seen = [item for item in records if isinstance(item, LossObserved)]
    assert [dict(item.metrics) for item in seen] == [{}, *({"accuracy": float(n)} for n in range(4))]
    assert [item.learning_rate for item in records if isinstance(item, LearningRateChanged)] == [0.01]
    costs = [item.observation.cpu_seconds for item in seen]
    assert sum(costs) <= end.cpu_seconds + 1e-9
    assert sum(costs[1:]) > 0.1
    assert all(item.observation.wall_seconds >= 0.0 for item in seen)
    assert all(earlier.at <= later.at for earlier, later in pairwise(seen))
    assert (end.status, end.stopped, end.reason) == (0, False, "")


def test_unmodified_script_is_heard_through_its_output(commands: SupervisorClient, tmp_path: Path) -> None:
    """Losses are found in the output as it appears, though the script never flushes it."""
    code = """
    import time
    for n in range(3):
        print(f"epoch {n} loss {1 / (n + 1):.3f}, lr 0.1")
    while True: time.sleep(0.01)
    """
    pattern = r"epoch (?P<iteration>\d+) loss (?P<loss>\S+)"
    commands.start("job", python(tmp_path, code, loss_pattern=pattern))
    commands.set_share("job", 1.0)
    records = collect(commands, lambda found: len(losses(found)) == 3)
    assert losses(records) == [(0, 1.0), (1, 0.5), (2, 0.333)]
    commands.stop("job")
    end = end_of(commands)
    assert end.stopped
    assert "epoch 2 loss 0.333" in (tmp_path / "job" / "log").read_text()


def test_loss_file_is_read(plain: SupervisorClient, tmp_path: Path) -> None:
    """A CSV file, named relative to where the command runs, yields its column."""
    code = """
    with open("metrics.csv", "w") as file:
        print("epoch,val", file=file)
        for n in range(3): print(f"{n},{n / 2}", file=file, flush=True)
    """
    spec = python(tmp_path, code, cwd=tmp_path, loss_file=Path("metrics.csv"), loss_column="val")
    records, _ = run(plain, spec)
    assert losses(records) == [(0, 0.0), (1, 0.5), (2, 1.0)]


def test_where_a_source_is_named_reported_losses_do_not_count(
    plain: SupervisorClient, tmp_path: Path
) -> None:
    """A script that reports and prints is not heard twice; its announcements still count."""
    code = "import slaq; slaq.report(9.0); slaq.announce(learning_rate=0.5); print('loss 1.0')"
    records, _ = run(plain, python(tmp_path, code, loss_pattern=r"loss (\S+)", first_iteration=7))
    assert losses(records) == [(7, 1.0)]
    assert [item.learning_rate for item in records if isinstance(item, LearningRateChanged)] == [0.5]


def test_losses_that_cannot_be_read_are_told_and_the_command_goes_on(
    plain: SupervisorClient, tmp_path: Path
) -> None:
    """A source that fails is told of once, with its reason; the command still ends well."""
    code = "print('a,b'); open('m.csv', 'w').write('a,b\\n1,2\\n')"
    spec = python(tmp_path, code, cwd=tmp_path, loss_file=Path("m.csv"))
    records, end = run(plain, spec)
    (source,) = [item for item in records if isinstance(item, LossSourceChanged)]
    assert "no column 'loss'" in source.trouble
    assert end.status == 0


def test_runaway_pattern_holds_up_nobody(plain: SupervisorClient, tmp_path: Path) -> None:
    """While one pattern runs away and is given up, another command is heard."""
    line = "print('a' * 4000 + '!', flush=True)\n"
    loop = "import time\nwhile True:\n    " + line + "    time.sleep(0.01)"
    plain.start("bad", python(tmp_path / "bad", loop, loss_pattern=r"^(a+)+$"))
    plain.start(
        "good",
        python(tmp_path / "good", loop.replace("'a' * 4000 + '!'", "'loss 1'"), loss_pattern=r"s (\d)"),
    )
    for job in ("bad", "good"):
        plain.set_share(job, 1.0)

    def both(found: list[Record]) -> bool:
        failed = [item.job_id for item in found if isinstance(item, LossSourceFailed)]
        return failed == ["bad"] and any(isinstance(item, LossObserved) for item in found)

    collect(plain, both)


def test_failure_carries_the_end_of_the_output(plain: SupervisorClient, tmp_path: Path) -> None:
    """A command that fails leaves its status and the last lines of this run's output, errors included."""
    spec = python(tmp_path, "print('from here'); raise SystemExit('no such data')")
    spec.log.parent.mkdir()
    spec.log.write_text("an earlier run\n")
    _, end = run(plain, spec)
    assert (end.status, end.reason) == (1, "exit status 1")
    assert end.tail == "from here\nno such data"
    assert spec.log.read_text().startswith("an earlier run\n")


def test_death_by_signal_is_told(plain: SupervisorClient, tmp_path: Path) -> None:
    """A command that is killed ends with the name of the signal."""
    _, end = run(plain, python(tmp_path, "import os; os.kill(os.getpid(), 11)"))
    assert (end.status, end.reason) == (-11, "killed by SIGSEGV")


# Surroundings


def test_surroundings_of_a_command(plain: SupervisorClient, tmp_path: Path) -> None:
    """It runs where it should, reads nothing, leads its session, and finds thread counts fit for its cores."""
    code = """
    import json, os, signal, sys
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MINE")
    print(json.dumps({
        "cwd": os.getcwd(), "stdin": sys.stdin.read(), "leader": os.getsid(0) == os.getpid(),
        "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        **{name: os.environ.get(name) for name in names},
    }))
    """
    env = {"MKL_NUM_THREADS": "7", "MINE": "\udcff"}
    _, end = run(plain, python(tmp_path, code, cwd=tmp_path, env=env, max_cores=0.3))
    found = json.loads(end.tail)
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    assert found == {
        "cwd": str(tmp_path),
        "stdin": "",
        "leader": True,
        "int": True,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": "7",
        "MINE": "\udcff",
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"argv": ()}, "empty"),
        ({"argv": ("no-such-program",)}, "no program 'no-such-program'"),
        ({"argv": ("./no-such-file",)}, "there is no file"),
        ({"argv": ("/etc/passwd",)}, "not executable"),
        ({"argv": ("echo", "a\0b")}, "NUL"),
        ({"env": {"A=B": "c"}}, "'='"),
        ({"cwd": Path("/no/such/place")}, "not a directory"),
        ({"log": Path("/proc/nowhere/log")}, "cannot be written"),
        ({"loss_pattern": "("}, "not a regular expression"),
        ({"loss_pattern": "(a)", "loss_file": Path("a")}, "both"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(
    plain: SupervisorClient, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """A command that cannot run, or whose loss cannot be found, is an error at once."""
    given: dict[str, Any] = {"argv": ("true",), "directory": tmp_path, "log": tmp_path / "log"}
    with pytest.raises((CommandError, LossSourceError), match=said):
        plain.start("job", CommandSpec(**(given | changes)))
    assert plain.pid is None


def test_command_that_cannot_be_executed_says_why(plain: SupervisorClient, tmp_path: Path) -> None:
    """A file that looks like a program and is none ends in a clear fault."""
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF rubbish")
    program.chmod(0o755)
    spec = CommandSpec(argv=(str(program),), directory=tmp_path, log=tmp_path / "log")
    _, end = run(plain, spec)
    assert end.status == 127
    assert "could not be executed" in end.reason


def test_an_id_can_be_used_again_once_its_command_has_ended(plain: SupervisorClient, tmp_path: Path) -> None:
    """Two commands of one id at a time are refused; one after another they are not."""
    spec = python(tmp_path, "import slaq; slaq.report(1.0)")
    plain.start("job", spec)
    with pytest.raises(DuplicateJobError):
        plain.start("job", spec)
    plain.set_share("job", 1.0)
    collect(plain, lambda found: any(isinstance(item, CommandExited) for item in found))
    records, _ = run(plain, spec)
    assert losses(records) == [(0, 1.0)]


# Shares


def test_command_stands_still_until_it_gets_a_share(commands: SupervisorClient, tmp_path: Path) -> None:
    """Without a share nothing of the command runs."""
    commands.start("job", python(tmp_path, "print('ran')"))
    time.sleep(0.3)
    assert all(isinstance(item, CpuUsed) for item in commands.poll())
    assert (tmp_path / "job" / "log").read_text() == ""
    commands.set_share("job", 1.0)
    end_of(commands)
    assert (tmp_path / "job" / "log").read_text() == "ran\n"


def test_cpu_time_of_children_that_have_exited_counts(commands: SupervisorClient, tmp_path: Path) -> None:
    """All that a tree used is counted, in its children that are gone and those that changed their parent too."""
    code = """
    import os, slaq, subprocess, sys, time
    burn = "import time\\nwhile time.process_time() < 0.2: pass"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", burn])
        slaq.report(1.0)
    for _ in range(10):  # so that the time is told with some loss, however late it is measured
        time.sleep(0.1)
        slaq.report(1.0)
    subprocess.run(["sh", "-c", 'setsid "$0" -c "$1" & exit', sys.executable, burn])
    """
    records, end = run(commands, python(tmp_path, code))
    assert end.cpu_seconds >= 0.6
    costs = [item.observation.cpu_seconds for item in records if isinstance(item, LossObserved)]
    assert 0.1 < sum(costs) <= end.cpu_seconds + 1e-9


def test_forced_way_is_used_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The way to enforce shares can be forced, and the choice is an event in the log."""
    with caplog.at_level(logging.INFO), SupervisorClient(throttle="stop-continue") as commands:
        commands.prepare()
        assert commands.throttle == "stop-continue"
    (event,) = [record for record in caplog.records if record.message == "cpu shares chosen"]
    assert vars(event)["throttle"] == "stop-continue"
    with pytest.raises(UnknownNameError, match="stop-continue"):
        SupervisorClient(throttle="magic")


@pytest.mark.skipif(set(WAYS) == set(USABLE), reason="every way works on this machine")
def test_forced_way_that_fails_is_refused() -> None:
    """A forced way that does not work here is an error that names those that do."""
    unusable = next(name for name in WAYS if name not in USABLE)
    with SupervisorClient(throttle=unusable) as commands, pytest.raises(ThrottleError, match="stop-continue"):
        commands.prepare()


# Ends


def test_stubborn_tree_is_ended(commands: SupervisorClient, tmp_path: Path) -> None:
    """A tree that forks, takes other sessions and parents, and ignores signals, is gone when its end is told."""
    ready = tmp_path / "ready"
    commands.start("job", python(tmp_path, STUBBORN, str(ready)))
    commands.set_share("job", 1.0)
    wait_until(lambda: line_count(ready) == 3)
    commands.set_share("job", 0.02)
    commands.stop("job")
    end = end_of(commands)
    assert (end.stopped, end.reason) == (True, "killed by SIGKILL")
    assert processes_with(str(ready)) == []


def test_what_a_command_leaves_behind_is_ended(commands: SupervisorClient, tmp_path: Path) -> None:
    """When the command itself has ended, so does whatever it started."""
    code = """
    import subprocess, sys
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], start_new_session=True)
    """
    mark = str(tmp_path / "left")
    _, end = run(commands, python(tmp_path, code, mark))
    assert end.status == 0
    assert processes_with(mark) == []


def test_command_may_clear_up_when_asked_to_end(commands: SupervisorClient, tmp_path: Path) -> None:
    """A stopped command is continued and has time to handle SIGTERM."""
    code = """
    import signal, sys, time
    def end(*_):
        print("cleared up")
        sys.exit(3)
    signal.signal(signal.SIGTERM, end)
    print("ready")
    while True: time.sleep(0.01)
    """
    spec = python(tmp_path, code)
    with SupervisorClient(throttle=commands._force, grace=60.0) as patient:
        patient.start("job", spec)
        patient.set_share("job", 1.0)
        wait_until(lambda: spec.log.read_text() == "ready\n")
        patient.set_share("job", 0.0)
        patient.stop("job")
        end = end_of(patient)
    assert (end.status, end.tail) == (3, "ready\ncleared up")


def test_close_ends_everything_and_tells_it(commands: SupervisorClient, tmp_path: Path) -> None:
    """After close nothing runs or stands still, no group is left, and the last records can be had."""
    mark = str(tmp_path / "mark")
    for number in range(3):
        commands.start(str(number), python(tmp_path / str(number), "while True: pass", mark))
    commands.set_share("1", 0.05)
    wait_until(lambda: len(processes_with(mark)) >= 1)
    supervisor = commands.pid
    commands.close()
    ends = [item for item in commands.poll() if isinstance(item, CommandExited)]
    assert sorted(end.job_id for end in ends) == ["0", "1", "2"]
    assert all(end.stopped for end in ends)
    assert processes_with(mark) == []
    assert list(Path("/sys/fs/cgroup").glob(f"**/slaq-{supervisor}")) == []
    commands.close()


PARENT = """
import sys, time
from pathlib import Path
from slaq.engines.node.commands.supervisor_client import SupervisorClient
from slaq.engines.node.commands.records import CommandSpec
folder, way, code, ready = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
commands = SupervisorClient(throttle=way)
for n in range(3):
    argv = (sys.executable, "-c", code, ready)
    commands.start(str(n), CommandSpec(argv=argv, directory=folder, log=folder / str(n)))
    commands.set_share(str(n), 0.3)
(folder / "supervisor").write_text(str(commands.pid))
while True:
    commands.poll()
    time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("way", list(WAYS))
def test_death_of_the_engine_ends_everything(tmp_path: Path, way: str, number: signal.Signals) -> None:
    """However the engine ends, no process of its commands is left, running or stopped, and no group."""
    if way not in USABLE:
        pytest.skip(f"{way} does not work on this machine")
    ready = tmp_path / "ready"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), way, STUBBORN, str(ready)],
        env=os.environ | ENV,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: line_count(ready) == 9)
    finally:
        parent.send_signal(number)
        parent.wait()
    wait_until(lambda: processes_with(str(ready)) == [])
    supervisor = (tmp_path / "supervisor").read_text()
    wait_until(lambda: not Path(f"/proc/{supervisor}").exists())
    assert list(Path("/sys/fs/cgroup").glob(f"**/slaq-{supervisor}")) == []


def test_death_of_the_supervisor_is_survived(commands: SupervisorClient, tmp_path: Path) -> None:
    """When the supervising process itself is killed, its commands are ended and told of, and others can start."""
    ready = tmp_path / "ready"
    commands.start("job", python(tmp_path, STUBBORN, str(ready)))
    commands.set_share("job", 1.0)
    wait_until(lambda: line_count(ready) == 3)
    assert commands.pid is not None
    os.kill(commands.pid, signal.SIGKILL)
    end = end_of(commands)
    assert "was lost" in end.reason
    wait_until(lambda: processes_with(str(ready)) == [])
    _, end = run(commands, python(tmp_path, "print('again')"))
    assert end.tail == "again"


# Examples


def test_unmodified_example_yields_losses(plain: SupervisorClient, tmp_path: Path) -> None:
    """The example of a plain script is heard by the pattern that it names."""
    script = Path(__file__).parents[2] / "examples" / "unmodified_script.py"
    spec = CommandSpec(
        argv=(sys.executable, str(script), "5"),
        directory=tmp_path,
        log=tmp_path / "log",
        loss_pattern=r"epoch (?P<iteration>\d+) loss (?P<loss>\S+)",
    )
    records, end = run(plain, spec)
    assert (end.status, end.tail.count("loss")) == (0, 6)
    found = losses(records)
    assert [iteration for iteration, _ in found] == list(range(6))
    assert found[-1][1] < found[0][1]


def test_pytorch_example_trains_or_says_what_to_install(plain: SupervisorClient, tmp_path: Path) -> None:
    """The PyTorch example reports falling losses; without PyTorch it names the extra to install."""
    script = Path(__file__).parents[2] / "examples" / "pytorch_script.py"
    spec = CommandSpec(
        argv=(sys.executable, str(script), "3"), directory=tmp_path, log=tmp_path / "log", env=ENV
    )
    records, end = run(plain, spec)
    if end.status:
        assert "pip install 'slaq[torch]'" in end.tail
    else:
        found = losses(records)
        assert found[-1][1] < found[0][1]
