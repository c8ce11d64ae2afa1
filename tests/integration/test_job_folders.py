"""Folders of jobs: whose they are, how they are removed, and what a job can do to the files in them."""

import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slaq import bootstrap
from slaq.config.service import ServiceSettings
from slaq.core.errors import BusyError
from slaq.core.job import JobState
from slaq.engines.clock import WallClock
from slaq.engines.journal import Journal
from slaq.engines.node.commands import unread
from slaq.engines.node.commands.unread import Allowance
from slaq.engines.node.external import ExternalJob, ExternalRunner
from slaq.engines.node.reports import Item, Report, parse_report
from slaq.kinds import external
from slaq.kinds.files import MOST_SOURCES, JobFolder
from slaq.kinds.removal import UNFINISHED, RemovedFolders
from slaq.service.records import Identity, Submission
from slaq.service.rounds import LONGEST, Rounds
from slaq.service.service import Service
from slaq.stores.sqlite.records import JobIdentity
from slaq.web.problems import status_of
from tests.integration.opening import ANN, ME, TRAINS, in_state, iterated, python, reports
from tests.integration.serving import PATIENCE, until

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as others")
NOBODY = pwd.getpwnam("nobody")


def identity(number: int = 1, owner: str = "ann", name: str = "net") -> JobIdentity:
    """Return a submission of a job of that name."""
    return JobIdentity(number=number, id=name, owner=owner, submitted_at=1e9 + number)


def made(folder: Path, job: JobIdentity) -> JobFolder:
    """Return the folder of a job, made."""
    files = JobFolder(jobs=folder, job=job)
    files.make()
    return files


def text_of(files: JobFolder, *, ended: bool = True) -> bytes:
    return files.read_log(0, 1000, ended=ended).data


# Whose a folder is


def test_a_folder_is_taken_up_again_by_its_own_submission_only(tmp_path: Path) -> None:
    """Another submission of the same name reads nothing of an older folder, and starts with an empty one."""
    first = made(tmp_path, identity())
    first.log.write_text("mine")
    (first.state / "checkpoint").write_text("mine")
    assert text_of(made(tmp_path, identity())) == b"mine"
    for job in (identity(2), identity(1, owner="bob"), replace(identity(), submitted_at=2e9)):
        second = JobFolder(jobs=tmp_path, job=job)
        assert (text_of(second), second.reports_size()) == (b"", 0)
        second.make()
        assert list(second.state.iterdir()) == []
        assert text_of(first) == b""
        second.log.write_text("other")


@pytest.mark.parametrize("stamp", [b"", b"{}", b"\xff" * 10_000, None])
def test_a_folder_whose_stamp_is_spoilt_is_nobodys(tmp_path: Path, stamp: bytes | None) -> None:
    """Nothing is read from such a folder, and nothing in it is kept."""
    files = made(tmp_path, identity())
    files.log.write_text("whose?")
    path = files.path / "stamp.json"
    path.unlink()
    if stamp is not None:
        path.write_bytes(stamp)
    assert text_of(files) == b""
    files.make()
    assert text_of(files) == b""
    assert files.log.exists()


def test_a_folder_that_could_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where making it is cut off by an error, its place is free, and nothing of it stays."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slaq.kinds.files.write_durably", full)
    with pytest.raises(OSError, match="No space"):
        made(tmp_path, identity())
    assert os.listdir(tmp_path) == [".removed"]
    assert os.listdir(tmp_path / ".removed") == []


@pytest.mark.parametrize("kind", ["link", "file", "folder", "fifo"])
def test_whatever_stands_in_the_place_of_a_new_folder_is_moved_aside(tmp_path: Path, kind: str) -> None:
    """A first start makes its folder; it neither follows a link nor takes anything over."""
    jobs, elsewhere = tmp_path / "jobs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    jobs.mkdir()
    place = jobs / "net"
    if kind == "link":
        place.symlink_to(elsewhere)
    elif kind == "file":
        place.write_text("x")
    elif kind == "folder":
        (place / "state").mkdir(parents=True)
        (place / "state" / "checkpoint").write_text("x")
    else:
        os.mkfifo(place)
    files = made(jobs, identity())
    assert not place.is_symlink()
    assert list(files.state.iterdir()) == []
    assert list(elsewhere.iterdir()) == []
    assert RemovedFolders(jobs).delete() == {}
    assert list((jobs / ".removed").iterdir()) == []


def test_no_job_can_be_called_as_the_place_of_removed_folders(open_service: Callable[..., Service]) -> None:
    """A name that begins with a dot is refused, and none is made of what a job runs."""
    service = open_service()
    job = service.submit(ME, Submission(command=("/bin/.removed",)))
    assert not job.id.startswith(".")
    with pytest.raises(Exception, match="name"):
        service.submit(ME, python("pass", name=".removed"))


def test_a_job_that_waits_shows_nothing_of_an_older_folder(open_service: Callable[..., Service]) -> None:
    """The log of a queued job is empty, whatever lies where its folder will be."""
    service = open_service(concurrent=1)
    first = service.submit(ME, python(TRAINS, name="runs")).id
    until(iterated(service, first, 1))
    left = service.settings.jobs / "waits"
    left.mkdir()
    (left / "log.txt").write_text("another's secret")
    waits = service.submit(ME, python("print('own')", name="waits")).id
    assert service.log(ME, waits).data == b""
    service.cancel(ME, first)
    until(lambda: service.job(ME, waits).state is JobState.COMPLETED)
    assert service.log(ME, waits).data == b"own\n"


def test_after_an_older_backup_is_restored_a_name_used_again_shares_nothing(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """The folder of a job that the backup does not know is not taken over by the next job of that name."""
    service = open_service()
    service.backup(ME, tmp_path / "copy.db")
    first = service.submit(ME, python("print('first')", name="net")).id
    until(lambda: service.job(ME, first).state.ended)
    service.close()
    for name in ("slaq.db", "slaq.db-wal", "slaq.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.db", tmp_path / "slaq.db")
    again = open_service()
    second = again.submit(ANN, Submission(external=True, options={"name": "net"})).id
    assert second == first
    assert again.log(ANN, second).data == b""
    until(lambda: in_state(again, ANN, second, JobState.RUNNING))
    assert again.log(ANN, second).data == b""


@contextmanager
def root_service() -> Iterator[Service]:
    """Give a service that runs jobs as their submitters, in a home that they can pass through."""
    home = Path(f"/tmp/slaq-folders-{os.getpid()}")
    service = bootstrap.open_service(ServiceSettings(home=home, listen=home / "slaq.sock", epoch_seconds=0.1))
    try:
        yield service
    finally:
        service.close()
        shutil.rmtree(home)


@as_root
def test_a_job_starts_without_what_another_user_left_in_its_place() -> None:
    """A first start finds an empty folder of its own, whoever had left a checkpoint under that name."""
    nobody = Identity(user="nobody", uid=NOBODY.pw_uid)
    with root_service() as service:
        left = service.settings.jobs / "net" / "state"
        left.mkdir(parents=True)
        (left / "checkpoint.last").write_bytes(b"x")
        job = service.submit(nobody, Submission(command=("/bin/ls", "-A"), options={"name": "net"}))
        until(lambda: service.job(nobody, job.id).state.ended)
        assert service.log(nobody, job.id).data == b""
        about = (service.settings.jobs / job.id / "stamp.json").stat()
        assert (about.st_uid, stat.S_IMODE(about.st_mode)) == (0, 0o600)


# Removal


def deep(folder: Path, levels: int) -> None:
    """Make a tree whose paths are longer than any system call takes."""
    code = f"import os\nfor _ in range({levels}):\n os.mkdir('d')\n os.chdir('d')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    """Depth is no way to keep a folder, nor to take descriptors."""
    files = made(tmp_path, identity())
    deep(files.state, 6000)
    assert files.remove() == ""
    assert list(tmp_path.iterdir()) == [tmp_path / ".removed"]
    assert list((tmp_path / ".removed").iterdir()) == []


def test_removal_follows_no_link(tmp_path: Path) -> None:
    """What a link in a job's folder points to stays."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    files = made(tmp_path / "jobs", identity())
    (files.state / "inner").mkdir()
    for place in (files.state / "link", files.state / "inner" / "link"):
        place.symlink_to(kept)
    (files.state / "file").symlink_to(kept / "file")
    os.mkfifo(files.state / "fifo")
    assert files.remove() == ""
    assert (kept / "file").read_text() == "x"


def test_removal_frees_the_name_at_once_and_goes_on_later(tmp_path: Path) -> None:
    """What is too much for one attempt is left, told, and deleted by the next ones."""
    files = made(tmp_path, identity())
    for number in range(50):
        (files.state / f"{number}" / "inner").mkdir(parents=True)
    removed = RemovedFolders(tmp_path)
    removed.take(files.path, "net")
    assert not files.path.exists()
    assert removed.delete(at_once=20) == {"net": UNFINISHED}
    assert removed.delete({"other"}) == {}
    assert os.listdir(tmp_path / ".removed")
    while removed.delete(at_once=20):
        pass
    assert os.listdir(tmp_path / ".removed") == []


def test_files_made_meanwhile_do_not_keep_removal_from_ending(tmp_path: Path) -> None:
    """An attempt ends though a process goes on writing; once the process is gone, so is the folder."""
    files = made(tmp_path, identity())
    code = "import os, itertools\nos.chdir(r'%s')\nfor n in itertools.count():\n open(str(n), 'w').close()"
    with subprocess.Popen([sys.executable, "-c", code % files.state]) as writer:
        try:
            until(lambda: len(os.listdir(files.state)) > 100)
            files.remove()
        finally:
            writer.kill()
    while RemovedFolders(tmp_path).delete():
        pass
    assert os.listdir(tmp_path / ".removed") == []


def remove_what_is_closed(home: Path) -> str:
    """Make a folder of folders without rights, remove it, and return what is told and what is left."""
    files = made(home, identity())
    for mode in (0o000, 0o500, 0o300, 0o444):
        inner = files.state / oct(mode) / "inner"
        inner.mkdir(parents=True)
        (inner / "file").touch()
        inner.chmod(mode)
        inner.parent.chmod(mode)
    files.state.chmod(0)
    return f"{files.remove()}{os.listdir(home / '.removed')}"


@as_root
def test_folders_without_rights_are_removed_by_their_owner() -> None:
    """A service that is not root removes what a job of its user has closed against itself."""
    home = Path(f"/tmp/slaq-modes-{os.getpid()}")
    home.mkdir()
    os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
    reader, writer = os.pipe()
    try:
        # Forked, because the folders of this interpreter may be closed to that user.
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(NOBODY.pw_gid)
                os.setuid(NOBODY.pw_uid)
                os.write(writer, remove_what_is_closed(home).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with open(reader) as said:
            assert said.read() == "[]"
    finally:
        shutil.rmtree(home)


@given(
    tree=st.recursive(st.none(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=20)
)
def test_any_tree_is_removed(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    """Whatever a job has made, nothing of it is left."""
    jobs = tmp_path_factory.mktemp("jobs")
    files = made(jobs, identity())

    def grow(place: Path, what: object) -> None:
        if not isinstance(what, dict):
            place.touch()
            return
        place.mkdir(exist_ok=True)
        for name, inner in what.items():
            grow(place / name, inner)

    grow(files.state / "tree", tree)
    assert files.remove() == ""
    assert os.listdir(jobs) == [".removed"]
    assert os.listdir(jobs / ".removed") == []


@as_root
def test_one_folder_that_cannot_be_removed_is_told_and_keeps_no_other(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Pruning answers with what is left, the others are gone, and the trouble is told until it is over."""
    service = open_service()
    jobs = [service.submit(ME, python("pass", name=name)).id for name in ("stuck", "gone")]
    until(lambda: all(service.job(ME, job).state.ended for job in jobs))
    inner = tmp_path / "jobs" / "stuck" / "state" / "inner"
    inner.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "slaq-test", inner], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        pruned = service.prune(ME, keep_jobs=0)
        assert set(pruned["jobs"]) == set(jobs)
        assert set(pruned["left"]) == {"stuck"}
        assert not (tmp_path / "jobs" / "gone").exists()
        service._retention.rounds.once()
        assert service.cluster(ME).troubles == (
            "1 folder of removed jobs could not be deleted yet; the log says why",
        )
        assert 'slaq_thread_up{thread="upkeep"} 1.0' in service.metrics(ME)
        assert 'slaq_thread_troubles{thread="upkeep"} 1.0' in service.metrics(ME)
        assert service.ready() == (True, "")
    finally:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        for mount in [line.split()[1] for line in mounts if str(tmp_path) in line]:
            subprocess.run(["umount", "--lazy", mount], check=True)
    service._retention.rounds.once()
    assert service.troubles() == ()
    assert os.listdir(tmp_path / "jobs" / ".removed") == []


def test_folders_of_jobs_removed_before_a_crash_are_removed_after_it(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """A service that dies between a job's removal and its folder's removes the folder when it starts again."""
    service = open_service()
    job = service.submit(ME, python("pass", name="net")).id
    until(lambda: service.job(ME, job).state.ended)
    service.store.prune(keep_jobs=0)
    assert (tmp_path / "jobs" / "net").exists()
    again = open_service()
    until(lambda: not again.store.folders_to_remove())
    assert not (tmp_path / "jobs" / "net").exists()


def test_pruning_spares_the_folder_of_a_later_job_of_the_name(tmp_path: Path) -> None:
    """Only the folder of the removed submission goes."""
    first, second = made(tmp_path, identity(1)), identity(2)
    later = made(tmp_path, second)
    later.log.write_text("mine")
    assert first.remove() == ""
    assert text_of(later) == b"mine"


def test_a_round_that_raises_is_told_and_repeated(open_service: Callable[..., Service]) -> None:
    """No error ends the upkeep; what went wrong last is told, until a round goes well."""
    service = open_service()
    rounds = service._retention.rounds

    def broken() -> Sequence[str]:
        raise IndexError("a defect")

    work, rounds._work = rounds._work, broken
    rounds.once()
    assert any("upkeep failed" in trouble for trouble in service.troubles())
    assert rounds.alive
    rounds._work = work
    rounds.once()
    assert service.troubles() == ()


def test_a_thread_that_died_is_told(open_service: Callable[..., Service]) -> None:
    """A thread that is gone without being told to end is a trouble, and the metrics name it."""
    service = open_service()
    rounds = service._retention.rounds
    rounds._over.set()
    rounds._thread.join()
    rounds._over.clear()
    assert any("upkeep has stopped" in trouble for trouble in service.troubles())
    assert 'slaq_thread_up{thread="upkeep"} 0.0' in service.metrics(ME)
    assert service.ready() == (False, "a thread of the service has stopped")
    rounds._over.set()


def test_a_round_that_never_ends_is_told() -> None:
    """Work that waits for what does not answer, such as a dead mount, is a trouble for as long as it waits."""
    under_way, answered = threading.Event(), threading.Event()
    now = 0.0

    def waits() -> Sequence[str]:
        under_way.set()
        answered.wait()
        return ()

    rounds = Rounds("upkeep", waits, 600.0, clock=lambda: now)
    rounds.start()
    under_way.wait()
    assert not rounds.troubles
    now = 2.0 * LONGEST
    assert ["upkeep has taken 60 minutes" in trouble for trouble in rounds.troubles] == [True]
    answered.set()
    until(lambda: not rounds.troubles)
    rounds.close()


# What a job can do to its files


@contextmanager
def leased(path: Path) -> Iterator[None]:
    """Hold a lease on a file, as its owner can: whoever opens it has to wait."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


def test_a_leased_log_is_answered_at_once(tmp_path: Path) -> None:
    """A job that keeps others from opening its log keeps nobody waiting: the answer says to try again."""
    files = made(tmp_path, identity())
    files.log.write_text("text")
    with leased(files.log), pytest.raises(BusyError, match="try again"):
        text_of(files)
    assert text_of(files) == b"text"
    assert status_of(BusyError("the log", "leased")) == 503


def test_leased_reports_do_not_hold_up_recovery(tmp_path: Path) -> None:
    """What cannot be read now is an error of that file alone."""
    files = made(tmp_path, identity())
    files.reports.write_bytes(reports(1.0, 0.5))
    with leased(files.reports), pytest.raises(BlockingIOError):
        files.unread_reports(start=0, known=0, allowance=Allowance())
    assert len(files.unread_reports(start=0, known=0, allowance=Allowance())) == 2


@as_root
def test_a_mount_over_a_log_is_not_opened(tmp_path: Path) -> None:
    """What is mounted over a job's file, and may never answer, is no file of the job."""
    files = made(tmp_path / "jobs", identity())
    other = tmp_path / "other"
    other.write_text("other")
    files.log.write_text("own")
    if subprocess.run(["mount", "--bind", other, files.log], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert text_of(files) == b""
        assert set(RemovedFolders(tmp_path / "jobs").delete()) == set()
        assert files.remove() == "'log.txt' cannot be deleted (Device or resource busy)"
    finally:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        for mount in [line.split()[1] for line in mounts if str(tmp_path) in line]:
            subprocess.run(["umount", "--lazy", mount], check=True)
    assert RemovedFolders(tmp_path / "jobs").delete() == {}
    assert other.read_text() == "other"


@pytest.mark.parametrize("kind", ["fifo", "link", "folder"])
def test_a_log_that_is_no_file_reads_as_empty(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a writer of a pipe, and no link is followed."""
    files = made(tmp_path / "jobs", identity())
    secret = tmp_path / "secret"
    secret.write_text("secret")
    files.log.unlink()
    if kind == "fifo":
        os.mkfifo(files.log)
    elif kind == "link":
        files.log.symlink_to(secret)
    else:
        files.log.mkdir()
    assert files.read_log(0, 100, ended=True).ended
    assert text_of(files) == b""


def test_reports_of_any_size_are_recovered_in_bounded_memory(tmp_path: Path) -> None:
    """A line without an end, of whatever length, is passed over."""
    files = made(tmp_path, identity())
    files.reports.write_bytes(reports(1.0, 0.5))
    with files.reports.open("ab") as file:
        file.truncate(file.tell() + 2**26)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + reports(0.25, start=2))
    found = files.unread_reports(start=0, known=0, allowance=Allowance())
    assert [one.loss for one in found][-1:] == [0.25]


def test_lines_without_number_do_not_hold_up_recovery(tmp_path: Path) -> None:
    """So many lines are looked at of all jobs of an owner together, however many of them there are."""
    flooded, plain = made(tmp_path, identity()), made(tmp_path, identity(2, name="other"))
    for files, more in ((flooded, b"\n" * unread.MOST_LINES), (plain, b"")):
        files.reports.write_bytes(reports(1.0) + more)
    now = 0.0
    theirs = Allowance(lambda: now)
    assert not flooded.unread_reports(start=0, known=0, allowance=theirs)
    assert not plain.unread_reports(start=0, known=0, allowance=theirs)
    assert len(plain.unread_reports(start=0, known=0, allowance=Allowance())) == 1
    now = 1.0
    assert len(plain.unread_reports(start=0, known=0, allowance=theirs)) == 1


# What is kept of jobs that run elsewhere


def test_reports_of_one_job_are_parsed_beside_everyone_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While what a job has sent is being read, the engine starts and ends jobs, and others report."""
    begun, free = threading.Event(), threading.Event()

    def slow(line: bytes, reach: int | None = None) -> Report | None:
        if b"slow" in line:
            begun.set()
            free.wait(PATIENCE)
        return parse_report(line, reach)

    monkeypatch.setattr(external, "parse_report", slow)
    journal = Journal(WallClock())
    runner = ExternalRunner(journal)
    kind = external.ExternalKind(folder=tmp_path, give=runner.prepare, runner=runner)
    # As many as there could be locks for: some have one in common.
    jobs = [identity(number, name=f"net-{number}") for number in range(200)]
    for job in jobs:
        runner.prepare(job.id, ExternalJob())
        runner.start(job.id)
    sending = threading.Thread(target=lambda: kind.report(jobs[0], b'{"slow": 1}\n', offset=0, source="a"))
    sending.start()
    assert begun.wait(PATIENCE)
    others = threading.Thread(
        target=lambda: [kind.report(job, reports(1.0), offset=0, source="a") for job in jobs[1:]]
    )
    others.start()
    others.join(PATIENCE)
    done = not others.is_alive()
    free.set()
    sending.join()
    others.join()
    assert done


def test_what_was_reported_before_the_start_is_passed_on_by_pieces(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that reported much before its start holds up no decision, and loses nothing of it at its end."""
    passed: dict[int, int] = {}
    pieces: list[int] = []
    give, catch_up = ExternalRunner.report, external.ExternalKind.catch_up

    def counted(runner: ExternalRunner, job_id: str, readings: Sequence[Item], reach: int) -> None:
        passed[threading.get_ident()] = passed.get(threading.get_ident(), 0) + len(readings)
        give(runner, job_id, readings, reach)

    def noted(kind: external.ExternalKind, job: JobIdentity) -> bool:
        before = passed.get(threading.get_ident(), 0)
        done = catch_up(kind, job)
        pieces.append(passed.get(threading.get_ident(), 0) - before)
        return done

    monkeypatch.setattr(ExternalRunner, "report", counted)
    monkeypatch.setattr(external.ExternalKind, "catch_up", noted)
    service = open_service()
    first = service.submit(ME, Submission(external=True, options={"name": "first"}))
    late = service.submit(ME, Submission(external=True, options={"name": "late", "after": (first.id,)}))
    sent = reports(*[1.0 / k for k in range(1, 6001)])
    service.report(ME, late.id, sent, offset=0, source="a")
    service.end(ME, first.id, state=JobState.COMPLETED)
    until(lambda: in_state(service, ME, late.id, JobState.RUNNING))
    service.end(ME, late.id, state=JobState.COMPLETED)
    until(lambda: in_state(service, ME, late.id, JobState.COMPLETED))
    assert service.job(ME, late.id).iteration == 5999
    assert sum(pieces) == 6000
    assert max(pieces) < 1000


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"a": "b"}', b'{"a": -1}', b"\xff\xfe", b"[" * 100_000]
)
def test_damaged_sources_of_one_job_end_nothing(
    open_service: Callable[..., Service], tmp_path: Path, content: bytes
) -> None:
    """Reports go on where the file was emptied or spoilt, and none is counted twice."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True, options={"name": "net"})).id
    first = reports(4.0, 3.0)
    assert service.report(ANN, job, first, offset=0, source="a") == len(first)
    (tmp_path / "jobs" / job / "sources.json").write_bytes(content)
    more = reports(2.0, start=2)
    assert service.report(ANN, job, more, offset=len(first), source="a") == len(first) + len(more)
    until(lambda: len(service.observations(ANN, job)) == 3)
    assert [one["loss"] for one in service.observations(ANN, job)] == [4.0, 3.0, 2.0]


def test_sources_are_private_and_bounded(tmp_path: Path) -> None:
    """The file of sources is its service's alone, and keeps the last ones, however many there were."""
    files = made(tmp_path, identity())
    for number in range(MOST_SOURCES + 10):
        assert files.base_of(f"source-{number}", 0) == 0
    path = files.path / "sources.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(json.loads(path.read_text())) == MOST_SOURCES


def test_no_file_of_a_job_is_open_to_others(tmp_path: Path) -> None:
    """Whatever the umask, others can pass through the folder and read nothing in it."""
    before = os.umask(0)
    try:
        files = made(tmp_path, identity())
        files.base_of("a", 0)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files.path.iterdir()}
    assert {name: mode & 0o077 for name, mode in modes.items()} == dict.fromkeys(modes, 0)
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o711


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "[" * 100_000])
def test_a_damaged_definition_fails_its_job_with_a_sentence(tmp_path: Path, content: str) -> None:
    """A program whose definition was emptied or spoilt ends with one sentence that says what to do."""
    path = tmp_path / "job.json"
    path.write_text(content)
    found = subprocess.run(
        [sys.executable, "-m", "slaq.run_program", path], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (
        1,
        f"slaq: {path} does not say what the job runs; submit the job again\n",
    )
