"""Laws of the durable store when all goes wrong: killed at any moment, cut short, no room on the disk."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slaq.core.errors import StoreCorruptError, StoreFullError
from slaq.core.events import JobEnded
from slaq.core.job import JobSpec, JobState
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite import file as sqlite_file
from slaq.testing.store_contract import observed
from tests.integration.store_writer import JOBS, open_with_jobs, write_epoch

ROOT = Path(__file__).parents[2]


def epochs_kept(path: Path) -> int:
    """Return how many epochs are in a sound store; each must be there whole, in order, from the first on."""
    with SqliteStore(path) as store:
        assert store.check() == []
        rows = store.rows()
        if len(rows) < JOBS:
            assert store.decisions() == []
            return 0
        curves = [store.observations(row.id).iteration.tolist() for row in rows]
        count = len(curves[0])
        assert curves == [list(range(count))] * JOBS
        assert [one.epoch for one in store.decisions()] == list(range(count))
        assert [row.iteration for row in rows] == [count - 1] * JOBS
        kept = store.snapshot()
        place = 0 if kept is None else kept[1]
        # A decision takes one place in the log, and an observation one.
        assert store.seq == count * (JOBS + 1)
        assert place == (0 if count == 0 else (count - 1) // 5 * 5 + 1) * (JOBS + 1)
        return count


@contextlib.contextmanager
def nursery(path: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Hold a process that forks writers: where to ask for one, and what they tell."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.store_writer", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    """Killed at any moment, a store opens again, sound, with every acknowledged epoch whole and in order."""
    path = tmp_path / "slaq.db"
    chance = random.Random(5)
    acknowledged = before = 0
    with nursery(path) as (ask, told):
        for _ in range(25):
            ask.write("go\n")
            ask.flush()
            pid = int(told.readline().removeprefix("pid "))
            wanted = chance.choice([0, 0, 1, 2, 7])
            for _ in range(wanted):
                acknowledged = int(told.readline().removeprefix("kept ")) + 1
            # Any moment will do: inside an opening, an epoch, a commit, a checkpoint.
            time.sleep(chance.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
            while (line := told.readline()) != "gone\n":
                acknowledged = int(line.removeprefix("kept ")) + 1
            found = epochs_kept(path)
            # One epoch may have been kept without a word, also by a writer before this one.
            assert acknowledged <= found <= max(acknowledged, before) + 1
            before = found
    assert acknowledged > 0


@pytest.fixture(scope="module")
def log_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a database and a write-ahead log that holds all that was ever written."""
    source, copy = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("copy")
    with contextlib.closing(open_with_jobs(str(source / "slaq.db"))) as store:
        for epoch in range(8):
            write_epoch(store, epoch)
        for name in ("slaq.db", "slaq.db-wal"):
            shutil.copyfile(source / name, copy / name)
    return copy


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(share=st.floats(0, 1), noise=st.binary(max_size=40))
def test_a_log_cut_short_holds_whole_epochs(
    log_only: Path, tmp_path_factory: pytest.TempPathFactory, share: float, noise: bytes
) -> None:
    """Wherever the log ends, as after a loss of power, and whatever follows: a sound beginning of it is there."""
    directory = tmp_path_factory.mktemp("cut")
    log = (log_only / "slaq.db-wal").read_bytes()
    shutil.copyfile(log_only / "slaq.db", directory / "slaq.db")
    (directory / "slaq.db-wal").write_bytes(log[: int(share * len(log))] + noise)
    assert 0 <= epochs_kept(directory / "slaq.db") <= 8
    shutil.rmtree(directory)


def test_a_whole_log_holds_every_epoch(log_only: Path, tmp_path: Path) -> None:
    """What was committed and never moved into the database is all there."""
    for name in ("slaq.db", "slaq.db-wal"):
        shutil.copyfile(log_only / name, tmp_path / name)
    assert epochs_kept(tmp_path / "slaq.db") == 8


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    """Pages overwritten with noise are found by the check, or the file is refused."""
    path = tmp_path / "slaq.db"
    with contextlib.closing(open_with_jobs(str(path))) as store:
        for epoch in range(30):
            write_epoch(store, epoch)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"noise" * 8192)
    try:
        with SqliteStore(path) as store:
            found = store.check()
    except StoreCorruptError as error:
        found = [str(error)]
    assert found != []


# A store on a disk without room. What is kept before and after it fills up is the same whoever runs out of it.


def fill(store: SqliteStore) -> int:
    """Write epochs until there is no room, however often that is tried; return how many are kept."""
    epoch = store.job("job-0").iteration + 1
    refused = 0
    while refused < 5:
        try:
            write_epoch(store, epoch)
            epoch += 1
            refused = 0
        except StoreFullError:
            refused += 1
    return epoch


def check_full(store: SqliteStore, kept: int) -> None:
    """A full store answers, and holds what it acknowledged."""
    assert store.job("job-1").iteration == kept - 1
    assert len(store.observations("job-2").loss) == kept
    assert len(store.rows()) == JOBS
    with pytest.raises(StoreFullError, match="free space"):
        write_epoch(store, kept)


@contextlib.contextmanager
def small_disk(directory: Path, kilobytes: int) -> Iterator[Path]:
    """Hold a file system of that size."""
    directory.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(directory)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("only root can make a small disk, and not in every container")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_a_full_disk_loses_nothing_and_room_lets_it_go_on(tmp_path: Path) -> None:
    """What was acknowledged is there, what was refused is not, and with room again writing goes on."""
    with small_disk(tmp_path / "disk", 1024) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(256 * 1024))
        with contextlib.closing(open_with_jobs(str(disk / "slaq.db"))) as store:
            kept = fill(store)
            check_full(store, kept)
            ballast.unlink()
            write_epoch(store, kept)
            kept = fill(store)
            assert store.check() == []
        assert epochs_kept(disk / "slaq.db") == kept


def test_a_disk_that_fills_up_inside_an_epoch_ends_that_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swallowing the error does not let half of the epoch through."""
    # So little that what does not fit into memory goes to the disk, and fails, before the commit.
    monkeypatch.setattr(sqlite_file, "WRITER_MEMORY", 64)
    with small_disk(tmp_path / "disk", 1024) as disk, SqliteStore(disk / "slaq.db") as store:
        store.submit(JobSpec(id="a"))
        swallowed: list[bool] = []

        def overfill() -> None:
            with store.epoch():
                store.append([observed("a", 0)])
                try:
                    store.save_snapshot(os.urandom(4 * 2**20), at=0.0)
                except StoreFullError:
                    swallowed.append(True)
                store.append([JobEnded(job_id="a", at=1.0, state=JobState.COMPLETED)])

        with pytest.raises(StoreFullError):
            overfill()
        assert swallowed
        assert (store.job("a").iteration, store.job("a").state) == (-1, JobState.QUEUED)
        assert store.snapshot() is None
        store.append([observed("a", 0)])
        assert store.job("a").iteration == 0


def test_a_store_that_has_no_room_to_begin_says_so(tmp_path: Path) -> None:
    """Opening where nothing fits raises the same error, and leaves the place usable."""
    with small_disk(tmp_path / "disk", 64) as disk:
        (disk / "ballast").write_bytes(bytes(60 * 1024))
        with pytest.raises(StoreFullError, match=r"slaq\.db"):
            SqliteStore(disk / "slaq.db")
        (disk / "ballast").unlink()


_LIMITED = """
import resource, signal, sys
from tests.integration.store_writer import open_with_jobs
from tests.integration.test_store_crash import check_full, fill
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_with_jobs(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (180_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
kept = fill(store)
check_full(store, kept)
print(kept)
"""


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    """A limit on file sizes, like a quota, loses nothing either; the next process finds what was kept."""
    path = tmp_path / "slaq.db"
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert epochs_kept(path) == int(done.stdout) > 0
