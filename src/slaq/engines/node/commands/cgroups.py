"""Lets process trees run and rest in the kernel's control groups, of version 2 and of version 1."""

import errno
import math
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from slaq.engines.node.commands.shares import Throttle
from slaq.engines.processes import STARTED, read_of, send, send_exactly, stat_fields

#: Microseconds over which a quota is usually counted.
PERIOD = 100_000
#: The kernel's longest period and its least quota: for a tree that stands still.
LONGEST_PERIOD, LEAST_QUOTA = 1_000_000, 1_000
#: Seconds to wait for a group to be empty after its processes were killed.
KILL_SECONDS = 5.0
_PREFIX = "slaq-"


class _Kernel(Protocol):
    """What differs between the versions."""

    def make(self, group: str) -> list[Path]:
        """Create a group for a job; return its directories, one in each hierarchy."""
        ...

    def cap(self, group: list[Path], quota: int | None, period: int) -> None:
        """Allow that many microseconds of CPU per period; None for any."""
        ...

    def weigh(self, group: list[Path], cores: int) -> None:
        """Weigh the group against others by its cores."""
        ...

    def count(self, jobs: int) -> None:
        """Weigh all groups together as that many processes, against the rest of the machine.

        Without it they would weigh as one, and fifty jobs get what one busy process elsewhere gets.
        """
        ...

    def usage(self, group: list[Path]) -> Path:
        """Return the file that tells what the group has used."""
        ...

    def cpu_seconds(self, content: bytes) -> float:
        """Return the CPU seconds in the content of that file."""
        ...

    def discard(self) -> None:
        """Remove what was made to hold the groups."""
        ...


class _Cgroups(Throttle):
    """One group per job below one group of ours, weighed by its cores while the job runs."""

    def __init__(self, kernel: _Kernel) -> None:
        self._kernel = kernel
        self._groups: dict[str, list[Path]] = {}
        self._runs: dict[str, bool] = {}
        self._last: dict[str, float] = {}
        #: Kept open, because they are read often.
        self._usage: dict[str, int] = {}

    @override
    def add(self, job: str, pid: int) -> None:
        group = self._kernel.make(job)
        self._groups[job] = group
        self._runs[job] = False
        self._usage[job] = os.open(self._kernel.usage(group), os.O_RDONLY | os.O_CLOEXEC)
        self._kernel.count(len(self._groups))
        for directory in group:
            _write(directory / "cgroup.procs", str(pid))
        self._halt(job)

    @override
    def run(self, job: str, seats: int) -> None:
        group = self._groups.get(job)
        if group is None:
            return
        self._kernel.weigh(group, seats)
        if not self._runs[job]:
            self._runs[job] = True
            self._kernel.cap(group, None, PERIOD)
            send(_processes(group[0]), signal.SIGCONT)

    @override
    def rest(self, job: str) -> None:
        if self._runs.get(job):
            self._runs[job] = False
            self._halt(job)

    @override
    def cpu_seconds(self, job: str) -> float:
        with suppress(OSError):
            self._last[job] = self._kernel.cpu_seconds(os.pread(self._usage[job], 4096, 0))
        return self._last.get(job, 0.0)

    @override
    def remove(self, job: str) -> None:
        group = self._groups.pop(job, None)
        self._runs.pop(job, None)
        self._last.pop(job, None)
        usage = self._usage.pop(job, None)
        if usage is not None:
            os.close(usage)
        if group is not None:
            for directory in group:
                _empty_and_remove(directory)
        if self._groups:
            with suppress(OSError):
                self._kernel.count(len(self._groups))
        else:
            self._kernel.discard()

    @override
    def rests(self, job: str) -> bool:
        return not self._runs.get(job, True)

    @override
    def holder(self, pid: int) -> str | None:
        for line in read_of(pid, "cgroup").decode(errors="replace").splitlines():
            _, _, path = line.split(":", 2)
            parent, _, job = path.rpartition("/")
            # Our group has the number of this process in its name, and only who may write to it can be in it.
            if job in self._groups and parent.endswith(f"/{self._groups[job][0].parent.name}"):
                return job
        return None

    @override
    def tend(self) -> float:
        # Processes that were being forked while their job was stopped.
        for job, runs in self._runs.items():
            if not runs:
                self._still(job)
        return 0.25 if self._runs else math.inf

    def _halt(self, job: str) -> None:
        # For what forks and exits too fast for a signal.
        self._kernel.cap(self._groups[job], LEAST_QUOTA, LONGEST_PERIOD)
        self._still(job)

    def _still(self, job: str) -> None:
        # The smallest quota still lets it run a little, so that standing still takes a signal.
        send(_processes(self._groups[job][0]), signal.SIGSTOP)


class CgroupOne(_Cgroups):
    """Version 1: quota and shares of the `cpu` hierarchy, usage of the `cpuacct` hierarchy."""

    def __init__(self) -> None:
        super().__init__(_KernelOne())


class CgroupTwo(_Cgroups):
    """Version 2: `cpu.max` and `cpu.weight`."""

    def __init__(self) -> None:
        super().__init__(_KernelTwo())


class _KernelOne(_Kernel):
    def __init__(self) -> None:
        cpu, usage = _hierarchy_one("cpu"), _hierarchy_one("cpuacct")
        self._parents = [_own_group(cpu)]
        if usage != cpu:
            self._parents.append(_own_group(usage))

    @override
    def make(self, group: str) -> list[Path]:
        directories = [parent / group for parent in self._parents]
        try:
            for directory in directories:
                directory.mkdir(parents=True)
        except OSError:
            for directory in directories:
                with suppress(OSError):
                    directory.rmdir()
            self.discard()
            raise
        return directories

    @override
    def cap(self, group: list[Path], quota: int | None, period: int) -> None:
        # Lifted first, so that no moment combines the old quota with the new period.
        _write(group[0] / "cpu.cfs_quota_us", "-1")
        _write(group[0] / "cpu.cfs_period_us", str(period))
        if quota is not None:
            _write(group[0] / "cpu.cfs_quota_us", str(quota))

    @override
    def weigh(self, group: list[Path], cores: int) -> None:
        _write(group[0] / "cpu.shares", str(_clipped(1024 * cores, 2, 262_144)))

    @override
    def count(self, jobs: int) -> None:
        _write(self._parents[0] / "cpu.shares", str(_clipped(1024 * jobs, 2, 262_144)))

    @override
    def usage(self, group: list[Path]) -> Path:
        return group[-1] / "cpuacct.usage"

    @override
    def cpu_seconds(self, content: bytes) -> float:
        return int(content) / 1e9

    @override
    def discard(self) -> None:
        for parent in self._parents:
            with suppress(OSError):
                parent.rmdir()


class _KernelTwo(_Kernel):
    def __init__(self) -> None:
        self._parent = self._place()

    @override
    def make(self, group: str) -> list[Path]:
        self._parent.mkdir(exist_ok=True)
        _write(self._parent / "cgroup.subtree_control", "+cpu")
        directory = self._parent / group
        directory.mkdir()
        return [directory]

    @override
    def cap(self, group: list[Path], quota: int | None, period: int) -> None:
        _write(group[0] / "cpu.max", f"{'max' if quota is None else quota} {period}")

    @override
    def weigh(self, group: list[Path], cores: int) -> None:
        _write(group[0] / "cpu.weight", str(_clipped(100 * cores, 1, 10_000)))

    @override
    def count(self, jobs: int) -> None:
        _write(self._parent / "cpu.weight", str(_clipped(100 * jobs, 1, 10_000)))

    @override
    def usage(self, group: list[Path]) -> Path:
        return group[0] / "cpu.stat"

    @override
    def cpu_seconds(self, content: bytes) -> float:
        found = re.search(rb"^usage_usec (\d+)$", content, re.MULTILINE)
        return int(found[1]) / 1e6 if found else 0.0

    @override
    def discard(self) -> None:
        with suppress(OSError):
            self._parent.rmdir()

    @staticmethod
    def _place() -> Path:
        """Find the nearest group above us whose children may control CPU.

        Our own group holds processes, so that it cannot hand the controller on; under systemd the slice above
        it does, and belongs to the user.
        """
        mount = _mount("cgroup2", None)
        own = _member_of("")
        candidates = [mount / own, *(mount / own).parents]
        last = OSError(errno.ENOENT, "no cgroup v2 with the cpu controller")
        for candidate in candidates:
            if not candidate.is_relative_to(mount):
                break
            try:
                _sweep(candidate)
                controllers = (candidate / "cgroup.subtree_control").read_text().split()
                if "cpu" not in controllers:
                    _write(candidate / "cgroup.subtree_control", "+cpu")
                directory = candidate / f"{_PREFIX}{os.getpid()}"
                directory.mkdir()
                directory.rmdir()
            except OSError as error:
                if error.errno != errno.ENOENT:
                    last = error
                continue
            return directory
        raise last


def _hierarchy_one(controller: str) -> Path:
    mount = _mount("cgroup", controller)
    own = mount / _member_of(controller)
    # Inside a container the path may be the host's, which is not seen from here.
    return own if own.is_dir() else mount


def _own_group(parent: Path) -> Path:
    _sweep(parent)
    return parent / f"{_PREFIX}{os.getpid()}"


def _mount(kind: str, controller: str | None) -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, found, options, *_ = line.split()
        if found == kind and (controller is None or controller in options.split(",")):
            return Path(path.replace("\\040", " "))
    raise OSError(errno.ENOENT, f"no {kind}{f' with {controller}' if controller else ''} is mounted")


def _member_of(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return ""


def _sweep(parent: Path) -> None:
    """Remove the groups, and kill the processes, that a killed supervisor left behind."""
    for directory in parent.glob(f"{_PREFIX}*"):
        owner = directory.name.removeprefix(_PREFIX)
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            for group in [*directory.glob("*/"), directory]:
                _empty_and_remove(group, patience=0.1)


def _empty_and_remove(directory: Path, patience: float = KILL_SECONDS) -> None:
    deadline = time.monotonic() + patience
    while directory.is_dir():
        # Stopped first, so that none forks while the others are being killed.
        send(_processes(directory), signal.SIGSTOP)
        _kill(directory)
        with suppress(OSError):
            directory.rmdir()
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.002)


def _kill(directory: Path) -> None:
    began = {pid: row[STARTED] for pid in _processes(directory) if (row := stat_fields(pid))}
    # Listed again: one that began when it was looked at, and is in the group now, was in it then.
    for pid in _processes(directory):
        if pid in began:
            send_exactly(pid, began[pid], signal.SIGKILL)


def _processes(directory: Path) -> list[int]:
    try:
        # A process of another namespace is listed as 0, which to kill(2) would mean ourselves.
        return [int(pid) for pid in (directory / "cgroup.procs").read_text().split() if pid != "0"]
    except OSError:
        return []


def _write(path: Path, text: str) -> None:
    # Unbuffered, and neither created nor truncated: these are not regular files.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _clipped(value: float, least: int, most: int) -> int:
    return most if math.isinf(value) else min(max(round(value), least), most)
