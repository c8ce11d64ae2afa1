"""A database whose last writes are lost is refused, and one that was restored as documented is not."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slaq.core.errors import StoreError
from slaq.core.job import JobSpec
from slaq.stores.sqlite import SqliteStore

#: Submits a job, says so, and is killed with the database open.
WRITER = """
import sys, time
from slaq.core.job import JobSpec
from slaq.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
if sys.argv[2]:
    store.submit(JobSpec(id=sys.argv[2]))
print("stored", flush=True)
time.sleep(600)
"""


def killed_while_open(path: Path, job: str) -> None:
    """Store a job in a process that is then killed."""
    with subprocess.Popen([sys.executable, "-c", WRITER, path, job], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"stored\n"
        writer.send_signal(signal.SIGKILL)


def jobs(path: Path) -> list[str]:
    with SqliteStore(path) as store:
        return [row.id for row in store.rows()]


def remove(path: Path, *ends: str) -> None:
    for end in ends:
        Path(f"{path}{end}").unlink(missing_ok=True)


@pytest.mark.parametrize("gone", [("-wal",), ("-wal", "-shm")])
@pytest.mark.parametrize("before", [False, True])
def test_a_store_whose_last_writes_were_deleted_is_refused(
    tmp_path: Path, gone: tuple[str, ...], before: bool
) -> None:
    """After a crash neither an older nor an empty store is opened in silence; the sentence says how to go on."""
    path = tmp_path / "slaq.db"
    if before:
        with SqliteStore(path) as store:
            store.submit(JobSpec(id="old"))
    killed_while_open(path, "last")
    remove(path, *gone)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"last writes, is gone.*rm .*slaq\.db\.in-use") as refused:
            SqliteStore(path)
    subprocess.run(refused.value.args[0].rpartition("writes: ")[2].split(), check=True)
    assert "last" not in jobs(path)


@pytest.mark.parametrize("gone", [("",), ("", "-wal", "-shm")])
@pytest.mark.parametrize("clean", [False, True])
def test_a_store_that_was_deleted_is_not_begun_anew_in_silence(
    tmp_path: Path, gone: tuple[str, ...], clean: bool
) -> None:
    """Where there was a store, an empty one is made only for somebody who says so."""
    path = tmp_path / "slaq.db"
    killed_while_open(path, "a")
    if clean:
        assert jobs(path) == ["a"]
    remove(path, *gone)
    with pytest.raises(StoreError, match=r"there was a database here.*rm .*slaq\.db\.in-use"):
        SqliteStore(path)
    remove(path, ".in-use")
    assert jobs(path) == []


@pytest.mark.parametrize("before", [False, True])
def test_a_store_that_was_only_opened_is_not_refused(tmp_path: Path, before: bool) -> None:
    """Whatever was or was not written since, a crash alone takes nothing away."""
    path = tmp_path / "slaq.db"
    if before:
        jobs(path)
    killed_while_open(path, "")
    killed_while_open(path, "")
    assert jobs(path) == []


def test_a_store_goes_on_after_a_crash_and_after_a_clean_end(tmp_path: Path) -> None:
    """With its log a store that was not closed opens as it was; without one that was closed does."""
    path = tmp_path / "slaq.db"
    killed_while_open(path, "a")
    killed_while_open(path, "b")
    assert jobs(path) == ["a", "b"]
    remove(path, "-wal", "-shm")
    assert jobs(path) == ["a", "b"]


@pytest.mark.parametrize("clean", [False, True])
def test_a_backup_restored_as_documented_opens(tmp_path: Path, clean: bool) -> None:
    """In the place of the database and without its log, after whatever stop; what follows is safe again."""
    path, copy = tmp_path / "slaq.db", tmp_path / "copy.db"
    with SqliteStore(path) as store:
        store.submit(JobSpec(id="kept"))
        store.backup(copy)
    if clean:
        with SqliteStore(path) as store:
            store.submit(JobSpec(id="later"))
    else:
        killed_while_open(path, "later")
    shutil.copy(copy, path)
    remove(path, "-wal", "-shm")
    assert jobs(path) == ["kept"]
    killed_while_open(path, "new")
    kept = path.read_bytes()
    remove(path, "-wal")
    with pytest.raises(StoreError, match="last writes, is gone"):
        SqliteStore(path)
    assert path.read_bytes() == kept


def test_a_backup_beside_the_log_of_the_store_before_is_refused(tmp_path: Path) -> None:
    """A log is never played into a copy, which it would spoil; the sentence says what to remove."""
    path, copy = tmp_path / "slaq.db", tmp_path / "copy.db"
    with SqliteStore(path) as store:
        store.submit(JobSpec(id="kept"))
        store.backup(copy)
    killed_while_open(path, "later")
    shutil.copy(copy, path)
    with pytest.raises(StoreError, match="a copy that was put in the place of another") as refused:
        SqliteStore(path)
    subprocess.run(refused.value.args[0].rpartition("those: ")[2].split(), check=True)
    assert jobs(path) == ["kept"]


def test_a_store_behind_a_link_has_its_note_beside_the_file(tmp_path: Path) -> None:
    """The loss is seen whatever path the store is opened by."""
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "slaq.db").symlink_to(real / "slaq.db")
    killed_while_open(tmp_path / "slaq.db", "last")
    assert (real / "slaq.db.in-use").exists()
    remove(real / "slaq.db", "-wal")
    with pytest.raises(StoreError, match="is gone"):
        SqliteStore(tmp_path / "slaq.db")


def test_a_store_that_cannot_be_closed_well_keeps_its_note_and_its_log(tmp_path: Path) -> None:
    """Where a reader keeps the log from being copied, note and log stay together."""
    path = tmp_path / "slaq.db"
    store = SqliteStore(path)
    store.submit(JobSpec(id="a"))
    code = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nc.execute('BEGIN')\n"
    code += "c.execute('SELECT * FROM jobs').fetchall()\nprint('reads', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reads\n"
        store.submit(JobSpec(id="b"))
        store.close()
        log = Path(f"{path}-wal")
        note = Path(f"{path}.in-use").read_text()
        assert note == "closed\n" or log.stat().st_size
        with contextlib.suppress(OSError):
            os.kill(reader.pid, signal.SIGKILL)
    assert jobs(path) == ["a", "b"]
