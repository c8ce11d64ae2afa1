"""A node in a child process: what goes in and out, and what the death of either end leaves behind."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("commands as jobs need Linux", allow_module_level=True)

from slaq.core.errors import CommandError, DuplicateJobError, UnknownJobError
from slaq.core.job import JobState
from slaq.engines.clock import WallClock
from slaq.engines.files import LOG
from slaq.engines.journal import Ending, Journal
from slaq.engines.node import child
from slaq.engines.node.child import ChildNode
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.node import Node, make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.engines.packing import unpack, unpack_error
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset

PATIENCE = 60.0


def eventually(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Return whether a process is no more, or is dead and only not waited for."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


class Endings:
    """Polls a node for the ends of its jobs."""

    def __init__(self, node: ChildNode) -> None:
        self._node = node
        self._found: dict[str, Ending] = {}

    def of(self, job_id: str) -> Ending:
        """Wait for the end of a job; each job ends once."""

        def found() -> Ending | None:
            for entry in self._node.poll():
                if entry.ending is not None:
                    ended = entry.event.job_id  # type: ignore[union-attr]
                    assert ended not in self._found
                    self._found[ended] = entry.ending
            return self._found.get(job_id)

        ending: Ending = eventually(found)
        return ending


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ChildNode]:
    node = ChildNode(Site(cores=2, epoch_seconds=0.2, directory=tmp_path), Journal(WallClock()))
    yield node
    node.close()


def program(work: Callable[[Context], Any], data: Dataset | None = None) -> ProgramJob:
    return ProgramJob(program=cloudpickle.dumps(work), data=data or Dataset(), partitions=2)


def sleeps(directory: Path) -> CommandJob:
    """Return a command that leaves its process id in a file and sleeps."""
    script = f"echo $$ > {directory}/pid; exec sleep 3600"
    return CommandJob(
        command=CommandSpec(argv=("sh", "-c", script), directory=directory, log=directory / LOG)
    )


def test_values_come_back_as_they_were(node: ChildNode) -> None:
    """Data goes in, a result and an exception with its traceback come out."""
    x = np.arange(12.0).reshape(6, 2)

    def adds(ctx: Context) -> Any:
        return np.array(ctx.map(lambda partition: partition.x.sum(axis=0)))

    def raises(ctx: Context) -> None:
        raise ValueError("no such luck")

    node.prepare("adds", program(adds, Dataset(x)))
    node.prepare("raises", program(raises))
    for job_id in ("adds", "raises"):
        node.start(job_id)
    node.grant({"adds": 1.0, "raises": 1.0})
    endings = Endings(node)
    np.testing.assert_array_equal(
        unpack(endings.of("adds").result.payload), [x[:3].sum(axis=0), x[3:].sum(axis=0)]
    )
    error, text = unpack_error(endings.of("raises").error.payload)
    assert repr(error) == "ValueError('no such luck')"
    assert "in raises" in text


@pytest.mark.parametrize("make", [make_node, ChildNode], ids=["called directly", "in a child process"])
def test_a_node_refuses_what_cannot_run(make: Callable[[Site, Journal], Node], tmp_path: Path) -> None:
    """With the same errors and their data, in whatever process it lives; an id is used for one job at a time."""
    node = make(Site(cores=1, epoch_seconds=0.2, directory=tmp_path), Journal(WallClock()))
    spec = CommandSpec(argv=("no-such-program",), directory=tmp_path / "job", log=tmp_path / "job" / LOG)
    with pytest.raises(CommandError, match="no-such-program") as caught:
        node.prepare("job", CommandJob(command=spec))
    assert caught.value.remedy
    node.prepare("job", sleeps(tmp_path / "job"))
    with pytest.raises(DuplicateJobError):
        node.prepare("job", sleeps(tmp_path / "job"))
    node.start("job")
    for job_id in ("job", "nobody prepared this"):
        with pytest.raises(UnknownJobError):
            node.start(job_id)
    node.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_child_ends_its_jobs_and_what_they_run(
    node: ChildNode, tmp_path: Path, number: signal.Signals
) -> None:
    """Each job ends once, with a reason; nothing of it runs on; whoever asks for more is answered at once."""

    def waits(ctx: Context) -> None:
        (tmp_path / "driver").write_text(str(os.getpid()))
        time.sleep(3600)

    node.prepare("program", program(waits))
    node.prepare("command", sleeps(tmp_path / "command"))
    node.prepare("late", program(waits))
    for job_id in ("program", "command"):
        node.start(job_id)
    node.grant({"program": 1.0, "command": 1.0})
    pids = [
        int(eventually(lambda path=path: path.exists() and path.read_text().strip()))  # type: ignore[misc]
        for path in (tmp_path / "driver", tmp_path / "command" / "pid")
    ]
    os.kill(node.pid, number)
    endings = Endings(node)
    for job_id in ("program", "command"):
        ending = endings.of(job_id)
        if number == signal.SIGKILL:
            assert ending.state is JobState.FAILED
            assert "killed by SIGKILL" in ending.reason
        assert ending.reason
    eventually(lambda: all(is_gone(pid) for pid in pids))
    eventually(lambda: node.capacity() == 0.0)
    node.grant({"late": 1.0})
    node.start("late")
    assert "the process of its node was lost" in endings.of("late").reason


def test_a_child_that_stands_still_is_given_up(
    node: ChildNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call returns after the patience that there is, and the child's jobs end with that reason."""
    node.prepare("job", sleeps(tmp_path / "job"))
    node.start("job")
    monkeypatch.setattr(child, "PATIENCE", 0.5)
    os.kill(node.pid, signal.SIGSTOP)
    assert node.capacity() == 0.0
    assert "did not answer within 0.5 seconds" in Endings(node).of("job").reason


PARENT = """
import os, sys, time
from pathlib import Path
import cloudpickle
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.node.child import ChildNode
from slaq.engines.node.commands.records import CommandSpec
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.node import Node, make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.site import Site
from slaq.jobs.data import Dataset

directory = Path(sys.argv[1])
def waits(ctx):
    (directory / "driver").write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(3600)
node = ChildNode(Site(cores=1, epoch_seconds=0.2, directory=directory), Journal(WallClock()))
node.prepare("program", ProgramJob(program=cloudpickle.dumps(waits), data=Dataset(), partitions=1))
script = f"echo $$ $PPID > {directory}/command.pid; exec sleep 3600"
command = CommandSpec(argv=("sh", "-c", script), directory=directory / "c", log=directory / "c" / "log")
node.prepare("command", CommandJob(command=command))
for job_id in ("program", "command"):
    node.start(job_id)
node.grant({"program": 0.5, "command": 0.5})
while not ((directory / "driver").exists() and (directory / "command.pid").exists()):
    time.sleep(0.01)
print(node.pid, (directory / "driver").read_text(), (directory / "command.pid").read_text(), flush=True)
ENDING
"""


@pytest.mark.parametrize("ending", ["time.sleep(3600)", "os._exit(0)"], ids=["SIGKILL", "exit"])
def test_the_death_of_the_parent_ends_everything(tmp_path: Path, ending: str) -> None:
    """The child, the processes that start and supervise others, and all jobs are gone, however the parent ends."""
    script = textwrap.dedent(PARENT).replace("ENDING", ending)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 5
        parent.kill()
    eventually(lambda: all(is_gone(pid) for pid in pids))
