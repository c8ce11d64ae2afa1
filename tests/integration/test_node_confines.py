"""What goes wrong about one job on a node, or in one of its runners, keeps no other job from anything."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from slaq.core.events import Event, JobEnded
from slaq.core.job import JobState
from slaq.engines.clock import WallClock
from slaq.engines.journal import Ending, Journal, Listener
from slaq.engines.node import child
from slaq.engines.node.child import ChildNode
from slaq.engines.node.node import LocalNode
from slaq.engines.node.runner import Runner
from slaq.engines.node.share_file import ShareFile
from slaq.engines.node.site import Site
from slaq.jobs import variables
from tests.integration.serving import until


class Plain(str):
    """A kind of work that runs as it should."""


class Cursed(str):
    """A kind of work whose runner fails at everything but at preparing."""


class PlainRunner(Runner[Any]):
    """Notes what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    @override
    def prepare(self, job_id: str, work: Any) -> ShareFile | None:
        return None

    @override
    def start(self, job_id: str) -> None:
        self.told.append(("start", job_id))

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        self.told.append(("end", job_id))

    @override
    def kill(self, job_id: str) -> None:
        pass

    @override
    def grant(self, cores: Mapping[str, float], room: float) -> None:
        self.told.append(("grant", dict(cores)))

    @override
    def close(self) -> None:
        self.told.append(("close",))


class CursedRunner(PlainRunner):
    """Raises whatever it is told."""

    @override
    def start(self, job_id: str) -> None:
        raise RuntimeError("no such luck")

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        raise RuntimeError("no such luck")

    @override
    def grant(self, cores: Mapping[str, float], room: float) -> None:
        raise RuntimeError("no such luck")

    @override
    def close(self) -> None:
        raise RuntimeError("no such luck")


def test_a_runner_that_fails_fails_its_own_jobs_only(tmp_path: Path) -> None:
    """A job that cannot be started ends with the reason; all others are started, granted, ended and closed."""
    journal, plain = Journal(WallClock()), PlainRunner()
    site = Site(cores=1, epoch_seconds=0.2, directory=tmp_path)
    node = LocalNode(site, journal, {Cursed: CursedRunner(), Plain: plain})
    node.prepare("bad", Cursed())
    node.prepare("good", Plain())
    for job_id in ("bad", "good"):
        node.start(job_id)
    node.grant({"bad": 0.5, "good": 0.5})
    node.end("bad", JobState.CANCELLED, "")
    node.end("good", JobState.CANCELLED, "")
    node.close()
    assert plain.told == [("start", "good"), ("grant", {"good": 0.5}), ("end", "good"), ("close",)]
    (entry,) = node.poll()
    assert isinstance(entry.event, JobEnded)
    assert (entry.event.job_id, entry.event.state) == ("bad", JobState.FAILED)
    assert "no such luck" in entry.event.reason


def test_a_listener_that_raises_stops_no_event() -> None:
    """The journal has every event, and the listener is told of the next ones."""
    told = []

    class Cross(Listener):
        @override
        def happened(self, event: Event, ending: Ending | None) -> None:
            told.append(event)
            raise RuntimeError("no such luck")

    journal = Journal(WallClock(), Cross())
    for job_id in ("a", "b"):
        journal.ended(job_id, Ending(state=JobState.COMPLETED))
    assert [entry.event for entry in journal.take()] == told
    assert len(told) == 2


class Loaded:
    """Runs code where it is unpickled."""

    def __init__(self, act: Callable[..., Any], *arguments: Any) -> None:
        self._call = (act, arguments)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ChildNode]:
    node = ChildNode(Site(cores=1, epoch_seconds=0.2, directory=tmp_path), Journal(WallClock()))
    yield node
    node.close()


def test_work_that_cannot_be_unpacked_is_refused_alone(node: ChildNode) -> None:
    """Whoever gave it is told, and the node goes on."""
    with pytest.raises(ValueError, match="no number"):
        node.prepare("bad", Loaded(int, "no number"))
    assert node.capacity() == 1.0


WRITE_NONSENSE = f"""
import os, stat
for name in os.listdir("/proc/self/fd"):
    try:
        if {stat.S_IFSOCK} == stat.S_IFMT(os.fstat(int(name)).st_mode):
            os.write(int(name), b"\\xff" * 4096)
    except OSError:
        pass
"""


def test_a_child_that_sends_nonsense_is_given_up_at_once(
    node: ChildNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call waits for an answer that cannot come, and the jobs are told why they end."""
    monkeypatch.setattr(child, "PATIENCE", 3600.0)
    node.prepare("bad", Loaded(exec, WRITE_NONSENSE))
    node.prepare("late", Plain())
    assert node.capacity() == 0.0
    node.start("late")
    (entry,) = until(node.poll)
    assert entry.ending is not None
    assert entry.ending.state is JobState.FAILED
    assert "sent what cannot be read" in entry.ending.reason


TALKS = """
import time
def train(ctx):
    for number in range(6):
        print("a line", flush=True)
        ctx.map(len)
        ctx.report(1 / (1 + number))
        time.sleep(0.1)
"""


GOES_ON = """
def train(ctx):
    for number in range(ctx.restored or 0, 30):
        ctx.map(len)
        ctx.report(1 / (1 + number))
        if number in (9, 12):
            ctx.checkpoint(number + 1)
        if number == {None: 9, 10: 14}.get(ctx.restored):
            return
"""


def run_program(home: Path, known: int) -> list[float]:
    """Run the program in a folder, of which a service knows so many losses; return the losses it reports."""
    reports = home / f"reports-{known}.jsonl"
    own = {
        variables.FOLDER: str(home),
        variables.REPORTS: str(reports),
        variables.ITERATION: str(known),
    }
    command = [sys.executable, "-m", "slaq.run_program", str(home / "job.json")]
    subprocess.run(command, env=os.environ | own, check=True, capture_output=True, timeout=120)
    return [json.loads(line)["loss"] for line in reports.read_text().splitlines()]


def test_losses_that_a_service_was_never_told_shift_no_count(tmp_path: Path) -> None:
    """A program that kept itself ahead of what was passed on tells each later loss once, and none again."""
    (tmp_path / "work.py").write_text(GOES_ON)
    table = {"program": "work.py:train", "name": "job"}
    (tmp_path / "job.json").write_text(json.dumps({"job": table, "directory": str(tmp_path), "cores": 1}))
    assert run_program(tmp_path, 0) == [1 / (1 + number) for number in range(10)]
    # Of the ten, three never reached the service.
    assert run_program(tmp_path, 7) == [1 / (1 + number) for number in range(10, 15)]
    # It goes on from its thirteenth; the service knows the losses up to the fifteenth, by their numbers.
    assert run_program(tmp_path, 15) == [1 / (1 + number) for number in range(15, 30)]


def test_a_program_whose_output_cannot_be_stored_trains_on(tmp_path: Path) -> None:
    """A full disk under the output of a service's program costs the output, and neither losses nor result."""
    (tmp_path / "talks.py").write_text(TALKS)
    table = {"program": "talks.py:train", "name": "job"}
    (tmp_path / "job.json").write_text(json.dumps({"job": table, "directory": str(tmp_path), "cores": 1}))
    reports = tmp_path / "reports.jsonl"
    own = {variables.FOLDER: str(tmp_path), variables.REPORTS: str(reports)}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "slaq.run_program", str(tmp_path / "job.json")],
            env=os.environ | own,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert len(reports.read_text().splitlines()) == 6
