"""How process trees are let run and kept still: the interface, and the choice of what works here."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from slaq.core.errors import ThrottleError, UnknownNameError
from slaq.core.scarcity import scarce
from slaq.engines.node.commands.tree import ProcessTable


class Throttle(Protocol):
    """Lets process trees run or rest, as `Turns` decides. Lives in one thread.

    Once the last job is removed, no trace is left on the machine: no group, and no process that stands still.
    """

    def add(self, job: str, pid: int) -> None:
        """Take charge of a process and all its descendants to come, which rest from now on."""
        ...

    def run(self, job: str, seats: int) -> None:
        """Let a tree run on about so many cores."""
        ...

    def rest(self, job: str) -> None:
        """Let a tree stand still."""
        ...

    def cpu_seconds(self, job: str) -> float:
        """Return the CPU seconds used by the whole tree so far."""
        ...

    def remove(self, job: str) -> None:
        """Stop controlling a job: a control group kills what is left in it, any other way lets it run free."""
        ...

    def rests(self, job: str) -> bool:
        """Return whether a job is to stand still now."""
        ...

    def holder(self, pid: int) -> str | None:
        """Return the job whose control group holds a process; None where there is no group to tell it."""
        ...

    def tend(self) -> float:
        """Stop what resting trees have started or what was continued; return the seconds until the next call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The way to let trees run and rest that is used, and why better ones are not."""

    name: str
    throttle: Throttle
    refused: Mapping[str, str]


def _cgroup2(table: ProcessTable) -> Throttle:
    from slaq.engines.node.commands.cgroups import CgroupTwo

    return CgroupTwo()


def _cgroup1(table: ProcessTable) -> Throttle:
    from slaq.engines.node.commands.cgroups import CgroupOne

    return CgroupOne()


def _stop_continue(table: ProcessTable) -> Throttle:
    from slaq.engines.node.commands.stop_continue import StopContinue

    return StopContinue(table)


#: The ways to enforce shares, best first.
WAYS: Mapping[str, Callable[[ProcessTable], Throttle]] = {
    "cgroup2": _cgroup2,
    "cgroup1": _cgroup1,
    "stop-continue": _stop_continue,
}


def choose(table: ProcessTable, force: str | None = None) -> Choice:
    """Return the best way that works here, or the one that is forced.

    Whether a control group can be used is found by using one: creating it, capping it, moving a process into it.
    Raises OSError where that cannot be found out, because the system is short of descriptors, processes or memory.
    """
    if force is not None and force not in WAYS:
        raise UnknownNameError("way to enforce CPU shares", force, WAYS)
    refused: dict[str, str] = {}
    for name, make in WAYS.items():
        if force is not None and name != force:
            continue
        try:
            throttle = make(table)
            _try_out(throttle)
        except OSError as error:
            if scarce(error):
                raise  # says nothing of this way
            refused[name] = error.strerror or str(error)
        else:
            return Choice(name=name, throttle=throttle, refused=refused)
    name, reason = next(iter(refused.items()))
    raise ThrottleError(name, reason, usable(table))


def usable(table: ProcessTable) -> list[str]:
    """Return the names of all ways that work here, best first."""
    names = []
    for name, make in WAYS.items():
        try:
            _try_out(make(table))
        except OSError:
            continue
        names.append(name)
    return names


def _try_out(throttle: Throttle) -> None:
    """Try the throttle on a process of our own; raises OSError where that fails."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0), open(writing, "wb", buffering=0) as kept:
        pid = os.fork()
        if pid == 0:
            # Waits for the end of the pipe, which also comes when the parent dies.
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        try:
            throttle.add("probe", pid)
            throttle.run("probe", 1)
            throttle.cpu_seconds("probe")
            throttle.rest("probe")
        finally:
            kept.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            throttle.remove("probe")
