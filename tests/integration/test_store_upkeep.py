"""Laws of keeping a store: who may open it, upgrades, backups while others write, and pruning."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq.core.demand import Demand
from slaq.core.errors import (
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreVersionError,
)
from slaq.core.events import CapacityChanged, JobEnded
from slaq.core.job import JobSpec, JobState
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite import file as sqlite_file
from slaq.stores.sqlite import schema as sqlite_schema
from slaq.stores.sqlite.errors import told
from slaq.stores.sqlite.packing import pack_values, spec_text, unpack_values
from slaq.stores.sqlite.records import LogEntry
from slaq.testing.store_contract import IN_MEMORY, decision, grant, observed
from tests.integration.store_writer import open_with_jobs, write_epoch

#: A database as version 1 wrote it: `SqliteStore` of then, as `sqlite3 slaq.db .dump` shows it.
VERSION_1 = Path(__file__).with_name("store_version_1.sql")
ENDED = [state for state in JobState if state.ended]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "slaq.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as opened:
        yield opened


# Opening


def test_a_store_is_open_in_one_place_only(store: SqliteStore, path: Path) -> None:
    """A second opening in the same process is refused, by whatever path, and the first goes on."""
    path.with_name("link.db").symlink_to(path)
    for other in (path, path.with_name("link.db")):
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()}"):
            SqliteStore(other)
    store.submit(JobSpec(id="a"))
    store.close()
    store.close()
    with SqliteStore(path) as again:
        assert again.job("a").id == "a"


def test_being_refused_here_lets_nobody_else_in(store: SqliteStore, path: Path) -> None:
    """A second opening in this process leaves all locks of the first in place."""
    path.with_name("link.db").symlink_to(path)
    with pytest.raises(StoreLockedError):
        SqliteStore(path)
    open_it = "import sys; from slaq.stores.sqlite import SqliteStore; SqliteStore(sys.argv[1])"
    # Only who has a database for himself can make it one without a write-ahead log.
    take_it = (
        "import sys, sqlite3 as s; s.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode=DELETE')"
    )
    for script, name, said in (
        (open_it, "slaq.db", f"process {os.getpid()}"),
        (open_it, "link.db", f"process {os.getpid()}"),
        (take_it, "slaq.db", "locked"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, str(path.with_name(name))],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert said in done.stderr
    store.submit(JobSpec(id="a"))
    assert store.check() == []


_HOLD = """
import os, sys
from slaq.stores.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused_until_the_first_has_ended(path: Path) -> None:
    """The error names the process; killing that is enough, even where a child of it lives on."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLockedError) as refused:
            SqliteStore(path)
        assert refused.value.pid == holder.pid
        assert str(holder.pid) in str(refused.value)
        holder.kill()
        holder.wait(60)
        SqliteStore(path).close()
    finally:
        # The child ends with its input.
        holder.stdin.close()
        holder.stdout.close()
        holder.wait(60)


def test_a_closed_store_says_so(store: SqliteStore) -> None:
    """Reading and writing after the end are refused in one sentence."""
    store.close()
    for ask in (store.rows, lambda: store.submit(JobSpec(id="a"))):
        with pytest.raises(StoreError, match="closed"):
            ask()


def test_only_its_owner_may_read_a_store(store: SqliteStore, path: Path) -> None:
    """Commands and their environments concern nobody else, in the copies too."""
    store.submit(JobSpec(id="a"))
    store.backup(path.with_name("copy.db"))
    for name in ("slaq.db", "slaq.db-wal", "slaq.db.lock", "copy.db"):
        assert stat.S_IMODE(path.with_name(name).stat().st_mode) == 0o600


def test_what_is_no_store_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """A text, another program's database, and a directory are named, and not a byte of them changes."""
    strange = tmp_path / "strange.db"
    with closing(sqlite3.connect(strange)) as other:
        other.execute("CREATE TABLE people (name TEXT)")
    notes = tmp_path / "notes.txt"
    notes.write_text("not a database, but long enough to look at " * 100)
    for path, said in ((strange, "another program"), (notes, "not a database")):
        before = path.read_bytes()
        with pytest.raises(StoreCorruptError, match=said):
            SqliteStore(path)
        assert path.read_bytes() == before
    with pytest.raises(StoreCorruptError, match="directory"):
        SqliteStore(tmp_path)
    with pytest.raises(StoreError, match=r"notes\.txt"):
        SqliteStore(notes / "slaq.db")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StoreFullError),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreFullError),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreFullError),
        (sqlite3.SQLITE_IOERR_READ, StoreCorruptError),
        (sqlite3.SQLITE_CORRUPT, StoreCorruptError),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, StoreLockedError),
        (sqlite3.SQLITE_MISUSE, StoreError),
    ],
)
def test_what_sqlite_reports_is_told_by_what_it_means(code: int, expected: type[StoreError]) -> None:
    """What cannot be written, what cannot be read, and who else writes are errors of their own."""
    reported = sqlite3.OperationalError("as SQLite says it")
    reported.sqlite_errorcode = code
    found = told(reported, Path("slaq.db"))
    assert type(found) is expected
    assert "slaq.db" in str(found)


# Upgrades


def test_a_newer_store_is_refused_and_left_as_it_was(path: Path) -> None:
    """The error says both versions; the slaq that wrote it can still use it."""
    SqliteStore(path).close()
    known = len(sqlite_schema.migrations())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {known + 1}")
    before = path.read_bytes()
    with pytest.raises(
        StoreVersionError, match=f"version {known + 1}, and this slaq reads versions up to {known}"
    ):
        SqliteStore(path)
    assert path.read_bytes() == before


def make_version_1(path: Path, *statements: str) -> None:
    """Make a database as the first version wrote it, with some changes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(VERSION_1.read_text())
        for statement in statements:
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")


def test_a_store_of_version_1_can_be_used(path: Path) -> None:
    """What the first version wrote is all there, and goes on."""
    make_version_1(path)
    with SqliteStore(path) as store:
        assert store.check() == []
        done, going = store.rows()
        assert done.spec == JobSpec(id="done", trains=False, weight=2.0, owner="mia", deadline=99.5)
        assert dict(done.submission) == {"command": ["train", "--fast"], "tags": ["night"]}
        assert (done.state, done.reason, done.tags) == (JobState.FAILED, "out of memory", ("night",))
        assert (going.iteration, going.best_loss, going.cores, going.curve) == (2, 0.25, 4, 1)
        assert store.observations("going").metrics == [{}, {"accuracy": 0.5}, {}]
        assert np.isnan(store.observations("going").loss[2])
        assert [one.epoch for one in store.decisions()] == [7]
        # The snapshot was in units: a restart reads the whole log.
        assert store.snapshot() is None
        assert [len(one.events) for one in store.events_since(0)] == [5, 0, 1]
        assert store.next_notice().start == 11
        assert store.meta("policy") == "total-quality"
        store.append([observed("going", 3)])
        assert store.submit_job(JobSpec(id="new"), owner="", submission={}, at=9.0).number == 3


def test_a_store_without_groups_gets_them(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs of a store from before belong to no group, and those that come later are found by theirs."""
    known = sqlite_schema.migrations()
    version = next(number for number, script in enumerate(known) if "group_name" in script)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "migrations", lambda: known[:version])
        SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        row = ("a", "", 0.0, "[]", "queued", 0.0)
        db.execute(
            "INSERT INTO jobs (id, owner, arrival, tags, state, submitted_at) VALUES (?, ?, ?, ?, ?, ?)", row
        )
        spec = spec_text(JobSpec(id="a"))
        db.execute("INSERT INTO requests (job, spec, submission) VALUES (1, ?, '{}')", (spec,))
        db.commit()
    with SqliteStore(path) as store:
        store.submit_job(JobSpec(id="b"), owner="", submission={"group": "lr"}, at=1.0)
        assert [row.id for row in store.rows()] == ["a", "b"]
        assert [row.id for row in store.rows(group="lr")] == ["b"]
        assert store.check() == []
    assert Path(f"{path}.version-{version}").exists()


def owe_in_version_1(path: Path) -> None:
    """Have the decision in a database of version 1 hold all that one could, and leave something owed."""
    owed = {"credit": np.array([0.5]), "owner_credit": np.array([-0.25]), "owner_share": np.array([4.0])}
    known = {"sure": np.array([1]), "most": np.array([2**40]), "fair_share": np.array([3.5])}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (body,) = db.execute("SELECT body FROM decisions").fetchone()
        packed = pack_values(unpack_values(body) | known | {"owner_share": np.array([4.0])})
        db.execute("UPDATE decisions SET body = ?, credits = ?", (packed, pack_values(owed)))


def test_units_of_version_1_become_cores(path: Path) -> None:
    """Where a unit was a 32nd of a core, everything that was counted in units is so much less in cores."""
    make_version_1(
        path,
        # What the owner asked for beside the units it came to, and what was changed since.
        """UPDATE requests SET spec = json_set(spec, '$.max_units', 48, '$.min_units', 8, '$.wanted', 0.9),
            submission = json_set(submission, '$.max_cores', 1.49, '$.by', 60.0) WHERE job = 2""",
        "UPDATE requests SET spec = json_set(spec, '$.max_units', 16, '$.reserved_units', 4) WHERE job = 1",
        "UPDATE jobs SET units = 20 WHERE id = 'going'",
        "INSERT INTO allocations VALUES (2, 20.0, 64)",
    )
    owe_in_version_1(path)
    with SqliteStore(path, cores_per_unit=1 / 32) as store:
        done, going = store.rows()
        assert going.spec == JobSpec(id="going", demand=Demand(least=0.25, most=1.49), stop_at=0.9)
        assert going.submission["max_cores"] == 1.49
        assert going.submission["deadline"] == 60.0
        assert "by" not in going.submission
        assert (done.spec.demand, done.spec.reserved) == (Demand(most=0.5), 0.125)
        assert (done.cores, going.cores) == (0.0, 0.625)
        assert store.allocations("going") == [(20.0, 2.0), (21.0, 0.125)]
        assert store.cluster_events() == [CapacityChanged(at=4.5, capacity=0.125)]
        (taken,) = store.decisions()
        assert (taken.capacity, taken.unit, taken.cores.tolist()) == (0.125, 1 / 32, [0.125])
        assert (taken.sure.tolist(), taken.most.tolist()) == ([1 / 32], [np.inf])
        assert (taken.fair_share.tolist(), taken.owner_share.tolist()) == ([3.5 / 32], [0.125])
        (given,) = [one.grant for one in store.events_since(0) if one.grant is not None]
        assert (given.ids, given.cores.tolist()) == (("going",), [0.125])
        assert (given.credit.tolist(), given.owner_credit.tolist()) == ([0.5 / 32], [-0.25 / 32])
        assert given.size_credit.tolist() == [0.0]
    with SqliteStore(path) as store:
        assert store.job("going").cores == 0.625


@pytest.mark.parametrize(
    ("units", "asked", "cores"),
    [
        (48, {"max_cores": 1.5}, 1.5),
        (48, {"max_cores": 1.49}, 1.49),
        (48, {"max_cores": 2.0}, 1.5),
        (48, {}, 1.5),
        (1, {"max_cores": 0.001}, 0.001),
        (None, {}, None),
        # As many units as the last decision had to hand out: four, here an eighth of a core.
        (4, {}, None),
        (4, {"max_cores": 100.0}, 100.0),
        (4, {"max_cores": 0.125}, 0.125),
        (4, {"max_cores": 0.1}, 0.125),
    ],
)
def test_a_limit_of_version_1_is_as_its_owner_asked(
    path: Path, units: int | None, asked: dict[str, float], cores: float | None
) -> None:
    """The cores asked for come back exactly, also those above the capacity, unless the limit was changed since."""
    limit, extra = json.dumps(units), json.dumps(asked)
    make_version_1(
        path,
        f"""UPDATE requests SET spec = json_set(spec, '$.max_units', json('{limit}')),
            submission = json_patch(submission, '{extra}')""",
    )
    with SqliteStore(path, cores_per_unit=1 / 32) as store:
        assert [spec.demand.most for spec in store.jobs()] == [cores, cores]


def test_an_upgrade_keeps_everything_and_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration changes the schema and nothing else; the slaq of before can use the copy that is kept."""
    with closing(open_with_jobs(str(path))) as store:
        for epoch in range(3):
            write_epoch(store, epoch)
        before = repr([store.events(row.id) for row in store.rows()])
    known = sqlite_schema.migrations()
    with monkeypatch.context() as patch:
        later = "ALTER TABLE jobs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'"
        patch.setattr(sqlite_schema, "migrations", lambda: [*known, later])
        with SqliteStore(path) as store:
            assert repr([store.events(row.id) for row in store.rows()]) == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(known) + 1,)
        assert db.execute("SELECT DISTINCT note FROM jobs").fetchall() == [("none",)]
    with SqliteStore(Path(f"{path}.version-{len(known)}")) as store:
        assert repr([store.events(row.id) for row in store.rows()]) == before


def test_an_upgrade_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration is run whole or not at all."""
    SqliteStore(path).close()
    known = sqlite_schema.migrations()
    with monkeypatch.context() as patch:
        broken = "ALTER TABLE jobs ADD COLUMN note TEXT; DROP TABLE nowhere"
        patch.setattr(sqlite_schema, "migrations", lambda: [*known, broken])
        with pytest.raises(StoreError, match="nowhere"):
            SqliteStore(path)
    with SqliteStore(path) as store:
        store.submit(JobSpec(id="a"))


# Backups


def test_a_backup_under_load_is_a_beginning_of_what_was_written(path: Path, tmp_path: Path) -> None:
    """While epochs are written, each copy holds whole epochs, all that were kept before it was asked for."""
    with closing(open_with_jobs(str(path))) as store:
        write_epoch(store, 0)
        stop = threading.Event()

        def write() -> None:
            epoch = 1
            while not stop.is_set():
                write_epoch(store, epoch)
                epoch += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            floors = []
            for number in range(4):
                floors.append(store.job("job-0").iteration)
                store.backup(tmp_path / f"copy-{number}.db")
        finally:
            stop.set()
            writer.join(60)
        last = store.job("job-0").iteration
    for number, floor in enumerate(floors):
        with SqliteStore(tmp_path / f"copy-{number}.db") as copy:
            reached = {row.iteration for row in copy.rows()}
            assert len(reached) == 1
            (epoch,) = reached
            assert floor <= epoch <= last
            assert [one.epoch for one in copy.decisions()] == list(range(epoch + 1))
            assert copy.check() == []


def test_a_backup_is_one_new_file(store: SqliteStore, path: Path, tmp_path: Path) -> None:
    """It never replaces a file, nor leaves half of one; a path that cannot be written is named."""
    store.submit(JobSpec(id="a"))
    target = tmp_path / "kept" / "copy.db"
    store.backup(target)
    assert [one.name for one in target.parent.iterdir()] == ["copy.db"]
    before = target.read_bytes()
    with pytest.raises(StoreError, match="already"):
        store.backup(target)
    with pytest.raises(StoreError, match=r"copy\.db"):
        store.backup(target / "inside")
    assert target.read_bytes() == before
    with store.epoch():
        store.submit(JobSpec(id="b"))
        store.backup(tmp_path / "during.db")
    with SqliteStore(tmp_path / "during.db") as copy:
        assert [row.id for row in copy.rows()] == ["a"]


# Pruning


def _about(batch: LogEntry, job_ids: Collection[str]) -> bool:
    return all(getattr(event, "job_id", None) in job_ids for event in batch.events)


@given(
    ends=st.lists(st.none() | st.tuples(st.integers(0, 4), st.sampled_from(ENDED)), max_size=6),
    before=st.none() | st.integers(0, 5),
    keep=st.none() | st.integers(0, 4),
)
def test_pruning_removes_the_jobs_it_says_and_nothing_else(
    ends: list[tuple[int, JobState] | None], before: int | None, keep: int | None
) -> None:
    """Ended jobs that every condition lets go are gone with all their rows; the rest is as it was."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory, SqliteStore(Path(directory) / "slaq.db") as store:
        with store.epoch():
            for number, end in enumerate(ends):
                spec = JobSpec(id=f"job-{number}")
                store.submit(spec)
                store.append([observed(spec.id, iteration) for iteration in range(3)])
                if number == 2:
                    store.save_snapshot(b"", at=0.0)
                if end is not None:
                    store.append([JobEnded(job_id=spec.id, at=float(end[0]), state=end[1])])
        ended = sorted((end[0], number) for number, end in enumerate(ends) if end is not None)
        old = ended if keep is None else ended[: max(len(ended) - keep, 0)]
        asked = before is not None or keep is not None
        gone = tuple(f"job-{number}" for at, number in old if asked and (before is None or at < before))
        kept = {row.id: (repr(row), repr(store.events(row.id))) for row in store.rows() if row.id not in gone}
        place = store.seq if len(ends) < 3 else store.snapshot()[1]  # type: ignore[index]
        log = repr([one for one in store.events_since(place) if _about(one, kept)])
        foreseen = store.prune(before=before, keep_jobs=keep, dry_run=True)
        assert len(store.rows()) == len(ends)
        done = store.prune(before=before, keep_jobs=keep)
        assert (done.jobs, done.observations) == (gone, 3 * len(gone))
        assert replace(foreseen, bytes=done.bytes) == done
        assert {row.id: (repr(row), repr(store.events(row.id))) for row in store.rows()} == kept
        assert store.check() == []
        assert repr([one for one in store.events_since(place) if _about(one, kept)]) == log
        assert store.submit_job(JobSpec(id="next"), owner="", submission={}, at=0.0).number == len(ends) + 1


@given(
    count=st.integers(1, 5),
    snapshot=st.none() | st.integers(0, 4),
    before=st.none() | st.integers(0, 5),
    keep=st.none() | st.integers(0, 5),
)
def test_pruning_leaves_the_newest_decisions_and_those_a_restart_reads(
    count: int, snapshot: int | None, before: int | None, keep: int | None
) -> None:
    """The oldest go first; the last one stays, and so do those after the snapshot."""
    with TemporaryDirectory(dir=IN_MEMORY) as directory, SqliteStore(Path(directory) / "slaq.db") as store:
        with store.epoch():
            for epoch in range(count):
                if epoch == snapshot:
                    store.save_snapshot(b"", at=0.0)
                store.append([CapacityChanged(at=float(epoch), capacity=epoch)])
                store.record(replace(decision(epoch), time=float(epoch)), grant())
        limits = [count - max(keep or 1, 1), count if before is None else before]
        if snapshot is not None and snapshot < count:
            limits.append(snapshot)
        gone = 0 if before is None and keep is None else max(min(limits), 0)
        kept = store.snapshot()
        log = "" if kept is None else repr(list(store.events_since(kept[1])))
        foreseen = store.prune(before=before, keep_decisions=keep, dry_run=True)
        done = store.prune(before=before, keep_decisions=keep)
        assert foreseen.decisions == done.decisions == gone
        assert [one.epoch for one in store.decisions()] == list(range(gone, count))
        assert [one.capacity for one in store.cluster_events()] == list(range(gone, count))
        assert kept is None or repr(list(store.events_since(kept[1]))) == log


def test_pruning_gives_room_back_to_the_disk(store: SqliteStore, path: Path) -> None:
    """The file shrinks by about what is said, and the ids of the jobs are told."""
    for job_id in ("old", "new"):
        store.submit(JobSpec(id=job_id))
        store.append([replace(observed(job_id, iteration), at=0.0) for iteration in range(20_000)])
    store.append([JobEnded(job_id="old", at=1.0, state=JobState.COMPLETED)])
    store.append([CapacityChanged(at=0.5, capacity=3)])
    store.prune()
    size = path.stat().st_size
    done = store.prune(before=2.0)
    assert (done.jobs, done.observations) == (("old",), 20_000)
    assert done.bytes > 300_000
    assert size - path.stat().st_size >= done.bytes
    assert len(store.observations("new").loss) == 20_000


def test_others_write_while_a_store_is_pruned(path: Path) -> None:
    """Epochs go on between the parts of a pruning, and nothing of them is lost."""
    with closing(open_with_jobs(str(path))) as store:
        for number in range(40):
            store.submit(JobSpec(id=f"old-{number}"))
            end = JobEnded(job_id=f"old-{number}", at=1.0, state=JobState.COMPLETED)
            store.append([*(observed(f"old-{number}", i) for i in range(2_000)), end])
        pruned = threading.Event()

        def prune() -> None:
            try:
                store.prune(before=2.0)
            finally:
                pruned.set()

        pruner = threading.Thread(target=prune)
        pruner.start()
        epoch = 0
        while not pruned.is_set():
            write_epoch(store, epoch)
            epoch += 1
        pruner.join(60)
        assert [row.id for row in store.rows()] == ["job-0", "job-1", "job-2"]
        assert store.job("job-0").iteration == epoch - 1
        assert store.check() == []


@pytest.mark.parametrize("name", ["slaq.db", "link.db"])
def test_a_log_grown_too_long_is_cut_back(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who reads keeps the log from beginning again, and from nothing else; after him it is cut."""
    path.with_name("link.db").symlink_to(path)
    limit = 100_000
    monkeypatch.setattr(sqlite_file, "BYTES_AHEAD", limit)
    log = Path(f"{path}-wal")
    sizes: list[int] = []
    with closing(open_with_jobs(str(path.with_name(name)))) as store:
        with store._file.reading() as db:
            db.execute("SELECT count(*) FROM jobs").fetchone()
            while log.stat().st_size <= 2 * limit:
                write_epoch(store, len(sizes))
                sizes.append(log.stat().st_size)
        assert sizes == sorted(sizes)
        while log.stat().st_size >= limit:
            write_epoch(store, len(sizes))
            sizes.append(log.stat().st_size)
            # Far from where SQLite would do it by itself.
            assert sizes[-1] < 20 * limit
        assert store.job("job-0").iteration == len(sizes) - 1
        assert store.check() == []
