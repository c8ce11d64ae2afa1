"""Files that have to survive a loss of power: what is flushed, in which order, and who else can write."""

import ast
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import slaq
from slaq.artifacts import keep
from slaq.config import JobTable, ProgramWork
from slaq.config.tokens import Token, make_token
from slaq.durable import write_durably
from slaq.engines import checkpoints
from slaq.kinds.files import JobFolder
from slaq.stores.sqlite.records import JobIdentity

JOB = JobIdentity(number=1, id="net", owner="ann", submitted_at=0.0)


def folder_of(home: Path) -> JobFolder:
    files = JobFolder(jobs=home, job=JOB)
    files.make()
    return files


def define(home: Path) -> None:
    with JobFolder(jobs=home, job=JOB).made(None, {"job": {}}):
        pass


WRITES: dict[str, tuple[Callable[[Path], object], str]] = {
    "any file": (lambda home: write_durably(home / "file", [b"a", b"b"]), "file"),
    "checkpoint": (lambda home: checkpoints.write(home / "checkpoint", 1, 0.5, [b"state"]), "checkpoint"),
    "stamp": (folder_of, "net/stamp.json"),
    "definition": (define, "net/job.json"),
    "sources": (lambda home: folder_of(home).base_of("a", 0), "net/sources.json"),
    "tokens": (
        lambda home: make_token(home / "tokens.toml", Token(name="t", user="ann", sha256="")),
        "tokens.toml",
    ),
}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A full disk says nothing of the file; the error does, the old file stays, and no draft is left."""

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    write_durably(tmp_path / "file", [b"old"])
    with pytest.raises(OSError, match="No space left on device") as refused:
        write_durably(tmp_path / "file", pieces())
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(tmp_path / "file"))
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"old")]


@pytest.mark.parametrize("what", WRITES)
def test_what_is_promised_is_flushed_before_it_is_named_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """File, name and folder go out in this order, so that a loss of power leaves the old file or the new one."""
    write, name = WRITES[what]
    path, done = tmp_path / name, list[tuple[str, int]]()
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(file: int) -> None:
        fsync(file)
        done.append(("flushed", os.fstat(file).st_ino))

    def recorded_replace(source: Any, target: Any) -> None:
        replace(source, target)
        done.append(("named", os.stat(target).st_ino))

    monkeypatch.setattr("os.fsync", recorded_fsync)
    monkeypatch.setattr("os.replace", recorded_replace)
    write(tmp_path)
    monkeypatch.undo()
    file, folder = path.stat().st_ino, path.parent.stat().st_ino
    place = done.index(("named", file))
    assert ("flushed", file) in done[:place]
    assert ("flushed", folder) in done[place:]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(path.parent.glob("*.new"))
    assert not list(path.parent.glob(".*.new"))


#: What may rename by itself: nothing of it has to survive a loss of power.
RENAMES = {"durable.py", "kinds/removal.py", "engines/node/share_file.py"}


def test_there_is_one_way_to_put_a_file_in_the_place_of_another() -> None:
    """No module but `durable` renames files that are to survive a loss of power."""
    source = Path(slaq.__file__).parent
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            # Text and dates have a `replace` too, which takes two arguments, or keywords.
            whose = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            of_path = len(node.args) == 1 and not node.keywords
            if node.func.attr in ("rename", "renames", "replace", "move") and (
                of_path or whose in ("os", "shutil")
            ):
                found.add(str(path.relative_to(source)))
    assert found == RENAMES


def test_what_a_job_leaves_is_flushed_before_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result, the losses and the summary are on disk, with their names, once they are kept."""
    done = set[int]()
    fsync = os.fsync

    def recorded_fsync(file: int) -> None:
        fsync(file)
        done.add(os.fstat(file).st_ino)

    def program(ctx: slaq.Context) -> dict[str, int]:
        ctx.report(1.0)
        return {"answer": 42}

    with slaq.Cluster(cores=1, directory=tmp_path) as cluster:
        job = cluster.submit(program, name="net")
        job.result(timeout=60.0)
        table = JobTable(name="net", work=ProgramWork(reference="here:program", program=program))
        monkeypatch.setattr("os.fsync", recorded_fsync)
        kept = keep(job, table, lambda: {"state": str(job.state)})
        monkeypatch.undo()
    assert kept.file == "result.pkl"
    files = [job.directory / name for name in ("result.pkl", "losses.csv", "summary.json")]
    assert {path.stat().st_ino for path in (*files, job.directory)} <= done


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Nothing of a draft stays, and nothing of it is seen."""
    path = tmp_path / "file"
    write_durably(path, [b"old"])

    def pieces() -> Any:
        yield b"new"
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_durably(path, pieces())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_is_never_written_through(tmp_path: Path) -> None:
    """What somebody has put under the draft's name is not followed."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / ".file.new").symlink_to(victim)
    write_durably(tmp_path / "file", [b"new"])
    assert victim.read_text() == "kept"
    assert not (tmp_path / "file").is_symlink()
