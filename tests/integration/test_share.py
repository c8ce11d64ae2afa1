"""Every job, whatever its kind, can learn what it holds while it runs, and cannot change what it reads."""

import json
import os
import stat
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slaq
from slaq.engines.clock import WallClock
from slaq.engines.files import LOG, job_directory
from slaq.engines.journal import Journal
from slaq.engines.node.commands.records import CommandSpec, RunAs
from slaq.engines.node.commands.runner import CommandJob
from slaq.engines.node.node import LocalNode, make_node
from slaq.engines.node.programs.job_orders import ProgramJob
from slaq.engines.node.share_file import ShareFile
from slaq.engines.node.site import Site
from slaq.jobs import variables
from slaq.jobs.context import Context
from slaq.jobs.data import Dataset
from slaq.jobs.share import Share, read_share
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ME, python

PATIENCE = 60.0
#: What a process of a job prints of its share, again and again.
TELLS = """
import slaq, time
while True:
    print(slaq.share().cores, flush=True)
    time.sleep(0.02)
"""
ENV = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may run a job as somebody else")


def eventually(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.02)
    return found


amounts = st.floats(0.0, 1e6)
shares = st.builds(Share, cores=amounts, gpus=amounts, workers=amounts, leave_by=st.none() | amounts)


@given(st.lists(shares, min_size=1, max_size=5))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, given: list[Share]) -> None:
    """A later share takes the place of the one before, whole, and leaves nothing beside it."""
    directory = tmp_path_factory.mktemp("job")
    file = ShareFile(directory)
    for one in given:
        file.write(one)
        assert read_share(file.path) == one
    assert list(directory.iterdir()) == [file.path]


def test_a_share_is_written_only_when_it_changes(tmp_path: Path) -> None:
    """The same share twice is one file; another share is another file."""
    file = ShareFile(tmp_path)
    file.write(Share(cores=1.0, workers=1.0))
    first = file.path.stat().st_ino
    with file.path.open() as held:
        file.write(Share(cores=1.0, workers=1.0))
        assert file.path.stat().st_ino == first
        file.write(Share(cores=2.0, workers=2.0))
        assert file.path.stat().st_ino != first
        # Who has the old one open reads it whole.
        assert json.load(held)["cores"] == 1.0


def test_a_share_can_be_read_and_not_written(tmp_path: Path) -> None:
    """Nobody may write the file; besides its owner at most one group may read it."""
    mine, others = ShareFile(tmp_path / "mine"), ShareFile(tmp_path / "others", os.getgid())
    for file, mode in ((mine, 0o400), (others, 0o440)):
        file.path.parent.mkdir()
        file.write(Share(cores=1.0, workers=1.0))
        assert stat.S_IMODE(file.path.stat().st_mode) == mode


def test_a_share_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    """The grant goes on; the share is written once it can be."""
    file = ShareFile(tmp_path / "gone")
    file.write(Share(cores=1.0, workers=1.0))
    file.path.parent.mkdir()
    file.write(Share(cores=1.0, workers=1.0))
    assert read_share(file.path) is not None


@given(
    st.binary()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(
        lambda value: json.dumps({"cores": value, "gpus": 0, "workers": 1.0, "leave_by": None}).encode()
    )
)
def test_a_damaged_file_never_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever lies there, the answer is a share of sound numbers or None."""
    path = tmp_path_factory.mktemp("job") / "share.json"
    path.write_bytes(content)
    found = read_share(path)
    assert found is None or 0 <= found.cores < float("inf")


def test_outside_slaq_there_is_no_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, and where it names nothing that can be read, `slaq.share()` is None."""
    monkeypatch.delenv(variables.SHARE, raising=False)
    assert slaq.share() is None
    for path in (tmp_path / "missing", tmp_path):
        monkeypatch.setenv(variables.SHARE, str(path))
        assert slaq.share() is None


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    node = make_node(Site(cores=2, epoch_seconds=0.2, directory=tmp_path), Journal(WallClock()))
    yield node
    node.close()


def tells(directory: Path) -> CommandJob:
    argv = (sys.executable, "-c", TELLS)
    return CommandJob(command=CommandSpec(argv=argv, directory=directory, log=directory / LOG, env=ENV))


def program(ctx: Context) -> None:
    """Print what the driver, a task, and a process that the driver starts find."""
    import subprocess

    def found(_: Any) -> float:
        held = slaq.share()
        return -1.0 if held is None else held.cores

    code = "import slaq; print(slaq.share().cores)"
    while True:
        (task,) = ctx.map(found)
        started = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **ENV}, capture_output=True, check=True
        )
        print(json.dumps([ctx.workers, found(None), task, float(started.stdout)]), flush=True)
        ctx.report(1.0)


def test_every_process_of_every_kind_of_job_learns_its_share(node: LocalNode, tmp_path: Path) -> None:
    """A driver, its context, its tasks and children, and a command, each read their own job's present grant."""
    node.prepare("program", ProgramJob(program=cloudpickle.dumps(program), data=Dataset(), partitions=1))
    node.prepare("command", tells(job_directory(tmp_path, "command")))
    for job_id in ("program", "command"):
        node.start(job_id)

    def last(job_id: str) -> str:
        lines = (job_directory(tmp_path, job_id) / LOG).read_text().splitlines()
        return lines[-1] if lines else ""

    def found(ours: float, theirs: float) -> bool:
        return last("program") == json.dumps([ours] * 4) and last("command") == str(theirs)

    for ours, theirs in ((1.5, 0.5), (0.75, 1.25)):
        node.grant({"program": ours, "command": theirs})
        eventually(partial(found, ours, theirs))


@as_root
def test_the_user_of_a_job_reads_its_share_and_cannot_change_it(node: LocalNode, tmp_path: Path) -> None:
    """Neither the file nor its directory is the user's to write."""
    nobody = RunAs(uid=65534, gid=65534)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o711)
    attempts = ('echo x >> "$SLAQ_SHARE"', 'chmod 666 "$SLAQ_SHARE"', 'rm -f "$SLAQ_SHARE"')
    script = 'cat "$SLAQ_SHARE"; echo; ' + "; ".join(
        f"({attempt}) 2>&- && echo done || echo refused" for attempt in attempts
    )
    directory = tmp_path / "theirs"
    directory.mkdir()
    command = CommandSpec(
        argv=("sh", "-c", script), directory=directory, log=directory / LOG, cwd=Path("/"), run_as=nobody
    )
    node.prepare("theirs", CommandJob(command=command))
    directory.chmod(0o711)
    node.start("theirs")
    node.grant({"theirs": 1.0})
    said, *refused = eventually(
        lambda: len(lines := (directory / LOG).read_text().splitlines()) == 4 and lines
    )
    assert json.loads(said)["cores"] == 1.0
    assert refused == ["refused"] * 3
    assert read_share(directory / "share.json") == Share(cores=1.0, workers=1.0)


def test_workers_of_a_program_of_the_service_are_what_it_holds(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Alone it holds every core; beside another job it holds less, and learns that while it runs."""
    (tmp_path / "telling.py").write_text(
        textwrap.dedent(
            """
            import time

            def train(ctx):
                while True:
                    print(ctx.workers, flush=True)
                    ctx.report(1.0)
                    time.sleep(0.02)
            """
        )
    )
    service = open_service(cores=1, policy="fair")
    job = service.submit(ME, Submission(program={"program": "telling:train"}, options={"cwd": str(tmp_path)}))

    def told() -> float:
        lines = service.log(ME, job.id).data.decode().splitlines()
        return float(lines[-1]) if lines else 0.0

    eventually(lambda: told() == 1.0)
    service.submit(ME, python("import time; time.sleep(3600)"))
    eventually(lambda: told() == 0.5)
