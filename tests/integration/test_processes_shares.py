"""Laws of the ways to keep a process tree to its share of CPU, on this machine's real ones."""

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
from slaq.engines.node.commands.stop_continue import (
    DEEPEST_DEBT,
    SAVING_SECONDS,
    SLOT,
    StopContinue,
    ThrottledTree,
)
from slaq.engines.node.commands.tree import ProcessTable

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


def run_until(throttle: Throttle, done: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(min(throttle.tick(), 0.02))


def test_shares_are_delivered(throttle: Throttle, spin: Callable[..., int]) -> None:
    """Trees that want all they can get use CPU in proportion to their shares."""
    cores = {"a": 0.05, "b": 0.15, "c": 0.30}
    for job, share in cores.items():
        throttle.add(job, spin())
        throttle.set(job, share)
    run_until(throttle, lambda: sum(map(throttle.cpu_seconds, cores)) > 0.4)
    start = {job: throttle.cpu_seconds(job) for job in cores}
    run_until(throttle, lambda: sum(map(throttle.cpu_seconds, cores)) - sum(start.values()) > 1.5)
    used = {job: throttle.cpu_seconds(job) - start[job] for job in cores}
    for job in cores:
        throttle.remove(job)
    assert 1.5 <= used["b"] / used["a"] <= 6.0
    assert 2.5 <= used["c"] / used["a"] <= 12.0


def test_whole_tree_shares_one_share(throttle: Throttle, spin: Callable[..., int]) -> None:
    """Two trees with equal shares use the same, though one has three processes."""
    throttle.add("many", spin("import os\nos.fork(); os.fork()\nwhile True: pass"))
    throttle.add("one", spin())
    for job in ("many", "one"):
        throttle.set(job, 0.2)
    run_until(throttle, lambda: throttle.cpu_seconds("many") > 0.3)
    start = {job: throttle.cpu_seconds(job) for job in ("many", "one")}
    run_until(throttle, lambda: throttle.cpu_seconds("many") - start["many"] > 0.6)
    used = {job: throttle.cpu_seconds(job) - start[job] for job in start}
    for job in start:
        throttle.remove(job)
    assert 0.4 <= used["many"] / used["one"] <= 2.5


def test_zero_cores_is_stillness_and_infinity_is_freedom(
    throttle: Throttle, spin: Callable[..., int]
) -> None:
    """A tree at 0 cores uses nothing; at infinity it is not held back; set again, it follows."""
    pid = spin()
    throttle.add("job", pid)
    throttle.tick()
    run_until(throttle, lambda: state(pid) == "T")
    before = throttle.cpu_seconds("job")
    deadline = time.monotonic() + 0.3
    run_until(throttle, lambda: time.monotonic() > deadline)
    assert throttle.cpu_seconds("job") - before < 0.02
    throttle.set("job", float("inf"))
    run_until(throttle, lambda: throttle.cpu_seconds("job") - before > 0.3)
    throttle.set("job", 0.0)
    run_until(throttle, lambda: state(pid) == "T")
    throttle.remove("job")


def test_nothing_is_left_after_the_last_job(throttle: Throttle, spin: Callable[..., int]) -> None:
    """A removed job is dead or runs free, and no group of ours is on the machine."""
    pids = [spin(), spin()]
    for number, pid in enumerate(pids):
        throttle.add(str(number), pid)
    throttle.set("0", 0.01)
    throttle.tick()
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
    run_until(throttle, lambda: state(pid) == "T")
    os.kill(pid, signal.SIGCONT)
    run_until(throttle, lambda: throttle.cpu_seconds("job") > 0.0 and state(pid) == "T")
    throttle.remove("job")
    assert state(pid) != "T"


def test_bucket_is_capped_after_credit_and_debit() -> None:
    """What was earned while more was used is not forfeited; savings and debts are bounded."""
    tree = ThrottledTree(now=0.0, used=0.0)
    tree.cores, tree.tokens = 0.9, SLOT
    tree.account(10.0, 9.0)
    assert tree.tokens == pytest.approx(SLOT)
    tree.account(100.0, 9.0)
    assert tree.tokens == pytest.approx(SLOT + 0.9 * SAVING_SECONDS)
    tree.account(100.0, 99.0)
    assert tree.tokens == -DEEPEST_DEBT


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
        """Shares become cpu.max and cpu.weight, and usage is read from cpu.stat."""
        group = self.group(kernel)
        kernel.cap([group], 30_000, 100_000)
        kernel.weigh([group], 0.3)
        assert (group / "cpu.max").read_text() == "30000 100000"
        assert (group / "cpu.weight").read_text() == "30"
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
