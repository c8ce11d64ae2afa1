"""Laws of the ways to let process trees run and rest, on this machine's real ones."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

from slaq.core.errors import ThrottleError, UnknownNameError
from slaq.engines.node.commands import cgroups
from slaq.engines.node.commands.shares import WAYS, Throttle, choose, usable
from slaq.engines.node.commands.stop_continue import StopContinue
from slaq.engines.node.commands.tree import ProcessTable
from slaq.engines.node.commands.turn_keeper import TurnKeeper
from slaq.engines.processes import SESSION, stat_fields

SPIN = "while True: pass"
USABLE = usable(ProcessTable())


@pytest.fixture
def spin() -> Iterator[Callable[[str], int]]:
    """Start Python code in a session of its own; all its processes are killed in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str = SPIN) -> int:
        started.append(subprocess.Popen([sys.executable, "-c", code], start_new_session=True))
        return started[-1].pid

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(params=list(WAYS))
def throttle(request: pytest.FixtureRequest) -> Throttle:
    if request.param not in USABLE:
        pytest.skip(f"{request.param} does not work on this machine")
    return choose(ProcessTable(), request.param).throttle


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def run_until(act: Callable[[], float], done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(min(act(), 0.02))


def test_a_tree_runs_or_rests(throttle: Throttle, spin: Callable[..., int]) -> None:
    """A tree that rests uses nothing, one that runs is not held back, and either can follow the other."""
    pid = spin()
    throttle.add("job", pid)
    run_until(throttle.tend, lambda: state(pid) == "T")
    assert throttle.rests("job")
    before = throttle.cpu_seconds("job")
    deadline = time.monotonic() + 0.3
    run_until(throttle.tend, lambda: time.monotonic() > deadline)
    assert throttle.cpu_seconds("job") - before < 0.02
    throttle.run("job", 1)
    assert not throttle.rests("job")
    run_until(throttle.tend, lambda: throttle.cpu_seconds("job") - before > 0.3)
    throttle.rest("job")
    run_until(throttle.tend, lambda: state(pid) == "T")
    throttle.remove("job")


def test_what_a_resting_tree_starts_rests_too(throttle: Throttle, spin: Callable[..., int]) -> None:
    """All processes of a tree rest, those included that were being forked when the tree was told to rest."""
    pid = spin("import os\nos.fork(); os.fork()\nwhile True: pass")
    throttle.add("many", pid)
    throttle.run("many", 1)
    run_until(throttle.tend, lambda: throttle.cpu_seconds("many") > 0.2)
    throttle.rest("many")

    def all_still() -> bool:
        states = [row[0] for row in map(stat_fields, processes()) if row and int(row[SESSION]) == pid]
        return len(states) == 4 and set(states) == {b"T"}

    run_until(throttle.tend, all_still)
    throttle.remove("many")


def test_nothing_is_left_after_the_last_job(throttle: Throttle, spin: Callable[..., int]) -> None:
    """A removed job is dead or runs free, and no group of ours is on the machine."""
    pids = [spin(), spin()]
    for number, pid in enumerate(pids):
        throttle.add(str(number), pid)
    throttle.run("0", 1)
    throttle.tend()
    for number in range(2):
        throttle.remove(str(number))
    assert [pid for pid in pids if state(pid) == "T"] == []
    assert list(Path("/sys/fs/cgroup").glob(f"**/slaq-{os.getpid()}")) == []


def test_continued_behind_our_back_is_stopped_again(spin: Callable[..., int]) -> None:
    """Someone else's SIGCONT does not free a tree for good."""
    table = ProcessTable()
    throttle = StopContinue(table)
    pid = spin()
    throttle.add("job", pid)
    run_until(throttle.tend, lambda: state(pid) == "T")
    os.kill(pid, signal.SIGCONT)
    run_until(throttle.tend, lambda: throttle.cpu_seconds("job") > 0.0 and state(pid) == "T")
    throttle.remove("job")
    assert state(pid) != "T"


def test_turns_are_carried_out(throttle: Throttle, spin: Callable[..., int]) -> None:
    """Trees that want all they can get use CPU in proportion to their shares, however many processes they have."""
    keeper = TurnKeeper(throttle)
    cores = {"one": 0.2, "many": 0.2, "large": 0.6}
    pids = {"one": spin(), "many": spin("import os\nos.fork()\nwhile True: pass"), "large": spin()}
    for job, share in cores.items():
        keeper.add(job, pids[job], None)
        keeper.grant(job, share)
    run_until(keeper.tick, lambda: sum(keeper.usage(job).cpu_seconds for job in cores) > 8.0, 120.0)
    used = {job: keeper.usage(job) for job in cores}
    for job in cores:
        keeper.remove(job)
    assert 1.5 <= used["large"].cpu_seconds / used["one"].cpu_seconds <= 6.0
    assert 0.4 <= used["many"].cpu_seconds / used["one"].cpu_seconds <= 2.5
    assert all(one.run_seconds <= one.seat_seconds + 1e-9 for one in used.values())


def test_a_tree_without_a_share_never_begins(throttle: Throttle, spin: Callable[..., int]) -> None:
    """A tree stands still until it is granted something, also where cores are lent, and again once told to."""
    keeper = TurnKeeper(throttle)
    pid = spin()
    keeper.lend(1.0)
    keeper.add("job", pid, None)
    run_until(keeper.tick, lambda: state(pid) == "T")
    keeper.tick()
    assert not keeper.has_begun("job")
    keeper.grant("job", 1.0)
    run_until(keeper.tick, lambda: keeper.usage("job").cpu_seconds > 0.1)
    keeper.grant("job", None)
    run_until(keeper.tick, lambda: state(pid) == "T")
    keeper.remove("job")


def test_one_of_the_ways_always_works() -> None:
    """Stopping and continuing needs no privilege; the choice is the best that works, the others have a reason."""
    assert USABLE[-1] == "stop-continue"
    choice = choose(ProcessTable())
    assert choice.name == USABLE[0]
    assert [name for name in WAYS if name in choice.refused] == list(WAYS)[: list(WAYS).index(choice.name)]
    assert all(choice.refused.values())


def test_unknown_way_lists_the_known_ones() -> None:
    """A name that no way has is refused with the names there are."""
    with pytest.raises(UnknownNameError, match="cgroup2, cgroup1, stop-continue"):
        choose(ProcessTable(), "cgroup3")


def test_forced_way_that_does_not_work_lists_the_usable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forced way that fails is an error that names the ways that work."""

    def nowhere(kind: str, controller: str | None) -> Path:
        raise OSError(2, "nothing is mounted")

    monkeypatch.setattr(cgroups, "_mount", nowhere)
    with pytest.raises(ThrottleError, match=r"'cgroup2' here \(nothing is mounted\); usable: stop-continue"):
        choose(ProcessTable(), "cgroup2")


class TestVersionTwo:
    """The files of version 2, in a directory that stands for its mount."""

    @pytest.fixture
    def kernel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cgroups._KernelTwo:
        slice_ = tmp_path / "user.slice"
        own = slice_ / "session.scope"
        own.mkdir(parents=True)
        (slice_ / "cgroup.subtree_control").write_text("cpu memory\n")
        monkeypatch.setattr(cgroups, "_mount", lambda kind, controller: tmp_path)
        monkeypatch.setattr(cgroups, "_member_of", lambda controller: "user.slice/session.scope")
        return cgroups._KernelTwo()

    def group(self, kernel: cgroups._KernelTwo) -> Path:
        group = kernel._parent / "job"
        group.mkdir(parents=True)
        for name in ("cpu.max", "cpu.weight"):
            (group / name).touch()
        return group

    def test_the_nearest_group_that_hands_on_the_controller_is_used(self, kernel: cgroups._KernelTwo) -> None:
        """Our own group holds processes and cannot; the slice above it can."""
        assert kernel._parent.parent.name == "user.slice"

    def test_quota_weight_and_usage(self, kernel: cgroups._KernelTwo) -> None:
        """Caps and weights become cpu.max and cpu.weight, and usage is read from cpu.stat."""
        group = self.group(kernel)
        kernel.cap([group], 30_000, 100_000)
        kernel.weigh([group], 3)
        assert (group / "cpu.max").read_text() == "30000 100000"
        assert (group / "cpu.weight").read_text() == "300"
        (group / "cpu.max").write_text("")
        kernel.cap([group], None, 100_000)
        assert (group / "cpu.max").read_text() == "max 100000"
        (kernel._parent / "cpu.weight").touch()
        kernel.count(3)
        assert (kernel._parent / "cpu.weight").read_text() == "300"
        assert kernel.usage([group]) == group / "cpu.stat"
        assert kernel.cpu_seconds(b"usage_usec 2500000\nuser_usec 1\n") == 2.5


@pytest.mark.skipif("cgroup1" not in USABLE, reason="needs cgroup v1 that can be written")
def test_groups_of_a_dead_owner_are_swept() -> None:
    """What a killed process left behind, with whoever is in it, is gone when the next one begins."""
    parent = cgroups._hierarchy_one("cpu")
    dead = subprocess.Popen(["true"])
    dead.wait()
    victim = subprocess.Popen([sys.executable, "-c", SPIN])
    group = parent / f"slaq-{dead.pid}" / "job"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(str(victim.pid))
    os.kill(victim.pid, signal.SIGSTOP)
    cgroups.CgroupOne()
    assert victim.wait(30) == -signal.SIGKILL
    cgroups.CgroupOne()
    assert not group.parent.exists()
