"""What a service keeps: over a restart, over pruning, and when the disk is full."""

import configparser
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from slaq.bootstrap import make_forecaster, open_service
from slaq.config.service import ServiceSettings
from slaq.core.errors import (
    StoreFullError,
    UnknownJobError,
)
from slaq.core.job import JobState
from slaq.core.roster import Roster
from slaq.jobs.options import IfLost
from slaq.service.records import Submission
from slaq.service.service import Service
from slaq.stores.sqlite import SqliteStore
from tests.integration.opening import (
    ANN,
    GOES_ON,
    ME,
    TRAINS,
    iterated,
    printed,
    python,
    reports,
)
from tests.integration.serving import until


def test_a_restart_goes_on_with_curves_ids_queue_and_balances(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """After a stop every job is where it was: running ones go on from their own checkpoint."""
    service = open_service(concurrent=2)
    runs = [service.submit(ME, python(GOES_ON, name="runs")).id for _ in range(2)]
    waits = [service.submit(ME, python(GOES_ON, name="waits")).id for _ in range(2)]
    for job_id in runs:
        until(iterated(service, job_id, 12))
    before = {job_id: service.job(ME, job_id) for job_id in runs}
    service.close()
    left = service._loop._scheduler.roster
    with SqliteStore(tmp_path / "slaq.db") as store:
        kept = store.snapshot()
        found = Roster(make_forecaster("slaq"))
        assert kept is not None
        found.restore(kept[0])
    assert found.dump() == left.dump()
    again = open_service(concurrent=2)
    assert [view.id for view in again.jobs(ME)] == [*runs, *waits]
    for job_id in runs:
        until(iterated(again, job_id, before[job_id].iteration + 5))
        losses = [one["loss"] for one in again.observations(ME, job_id, limit=100_000)]
        assert losses[0] == 1.0
        assert again.job(ME, job_id).attempts == 2
        log = until(partial(printed, again, job_id, 2))
        assert int(log[1].split()[1]) > 0, "it began again from nothing"
    assert [again.job(ME, job_id).state for job_id in waits] == [JobState.QUEUED] * 2


def test_a_lost_command_goes_on_begins_anew_or_fails_as_asked(open_service: Callable[..., Service]) -> None:
    """What becomes of a command that was running is its owner's choice."""
    service = open_service()
    ids = {way: service.submit(ME, python(TRAINS, name=str(way), if_lost=way)).id for way in IfLost}
    for job_id in ids.values():
        until(iterated(service, job_id, 5))
    service.close()
    again = open_service()
    assert again.job(ME, ids[IfLost.FAIL]).state is JobState.FAILED
    seen = until(iterated(again, ids[IfLost.RESTART], 1))
    assert seen.attempts == 2
    first = until(lambda: again.observations(ME, ids[IfLost.RESTART], limit=1))
    assert first[0]["iteration"] == 0
    until(iterated(again, ids[IfLost.RESUME], 30))


def children() -> set[str]:
    """Return the children of every thread of this process."""
    return {
        child
        for tasks in Path("/proc/self/task").glob("*/children")
        for child in tasks.read_text(encoding="ascii").split()
    }


def test_a_service_that_cannot_open_leaves_no_process_and_no_lock(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was started before the opening failed is ended, and the next service finds everything."""
    service = open_service()
    job = service.submit(ME, python(TRAINS)).id
    until(iterated(service, job, 1))
    service.close()
    before, began = children(), []

    def broken(*arguments: object) -> None:
        began.append(until(lambda: children() - before))
        raise RuntimeError("no more threads")

    with monkeypatch.context() as patch:
        patch.setattr("slaq.service.scheduling.EpochLoop", broken)
        with pytest.raises(RuntimeError, match="no more threads"):
            open_service()
    assert began
    assert children() <= before
    again = open_service()
    assert (again.job(ME, job).state, again.job(ME, job).attempts) == (JobState.RUNNING, 3)


def test_a_limit_in_cores_is_the_same_on_another_number_of_cores(
    open_service: Callable[..., Service],
) -> None:
    """A job limited to 2 cores holds 2 cores, however many the machine has and however decisions cut them."""
    service = open_service(cores=4, units_per_core=16)
    limits = {2.0: "two", 1.5: "some"}
    for most, name in limits.items():
        service.submit(ANN, Submission(external=True, options={"name": name, "max_cores": 2.0}))
        service.change(ANN, name, max_cores=most)

    for machine in ({}, {"cores": 8, "units_per_core": 8}, {"cores": 12, "units_per_core": 2}):
        service = open_service(**machine) if machine else service
        assert [service.job(ANN, name).max_cores for name in limits.values()] == list(limits)
        last = until(partial(service.decisions, ME, since=service.cluster(ME).epoch + 1))[-1]
        assert {job["id"]: job["cores"] for job in last["jobs"]} == {"two": 2.0, "some": 1.5}


@pytest.mark.parametrize("stride", [None, 10])
def test_what_was_reported_and_never_read_is_read_after_a_restart(
    open_service: Callable[..., Service], tmp_path: Path, stride: int | None
) -> None:
    """A loss counts as reported once slaq.report has returned, numbered by its job or not, and counts once."""
    service = open_service()
    begin = (
        "slaq.report(5.0)" if stride is None else f"slaq.report(9.0, step=0)\nslaq.report(5.0, step={stride})"
    )
    job = service.submit(ME, python(f"import time, slaq\n{begin}\ntime.sleep(600)")).id
    until(iterated(service, job, stride or 0))
    service.close()
    path = tmp_path / "jobs" / job / "reports.jsonl"
    pid = json.loads(path.read_text().splitlines()[-1])["pid"]
    with path.open("a") as file:
        for k in (1, 2, 3):
            line = {"iteration": k, "loss": 5.0 - k, "time": 1e9 + k, "cpu": 0.1, "pid": pid}
            if stride is not None:
                line = {**line, "iteration": k + 1, "step": stride * (k + 1)}
                file.write(json.dumps(line) + "\n")
            file.write(json.dumps(line) + "\n")
        file.write('{"iteration": 4, "loss": 0.')
    again = open_service()
    found = [(one["iteration"], one["loss"]) for one in again.observations(ME, job)]
    if stride is None:
        assert found[:4] == [(0, 5.0), (1, 4.0), (2, 3.0), (3, 2.0)]
    else:
        assert found[:5] == [(0, 9.0), (10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]


def test_time_never_runs_backwards_though_the_clock_was_set_back(
    open_service: Callable[..., Service],
) -> None:
    """What happens after a restart is later than all that is stored, whatever the machine's clock says."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True)).id
    service.report(ANN, job, reports(4.0), offset=0)
    until(lambda: len(service.observations(ANN, job)) == 1)
    ahead = time.time() + 86_400.0
    service.close()
    with SqliteStore(service.settings.database) as store:
        store.save_snapshot(b"of a service whose clock was ahead", at=ahead)
    again = open_service()
    assert again.cluster(ME).now >= ahead
    again.report(ANN, job, reports(4.0, 3.0), offset=0)
    until(lambda: len(again.observations(ANN, job)) == 2)
    times = [one["at"] for one in again.observations(ANN, job)]
    assert times == sorted(times)
    assert times[-1] >= ahead


def test_prune_removes_ended_jobs_with_their_files_and_no_others(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """Only what has ended can be removed, and then all of it."""
    service = open_service()
    gone = service.submit(ME, python("pass", name="gone")).id
    stays = service.submit(ME, python(TRAINS, name="stays")).id
    until(lambda: service.prune(ME, keep_jobs=0, dry_run=True)["jobs"] == (gone,))
    assert service.job(ME, gone).id == gone
    service.prune(ME, keep_jobs=0)
    with pytest.raises(UnknownJobError):
        service.job(ME, gone)
    assert not (tmp_path / "jobs" / gone).exists()
    assert service.job(ME, stays).id == stays


def test_retention_keeps_as_much_as_the_settings_say(open_service: Callable[..., Service]) -> None:
    """Old decisions go, and ended jobs once they are older than they need to be kept."""
    service = open_service(keep_decisions=5, retention_days=1.0)
    stays = service.submit(ME, python(TRAINS, name="stays")).id
    gone = service.submit(ME, python("pass", name="gone")).id
    until(lambda: service.store.job(gone).state.ended and len(service.store.decisions()) > 20)
    service._retention.once()
    assert len(service.store.decisions()) < 20
    assert service.job(ME, gone).id == gone
    service.store.change(gone, ended_at=1.0)
    service._retention.once()
    with pytest.raises(UnknownJobError):
        service.job(ME, gone)
    assert service.job(ME, stays).id == stays


def _submit_without_end(service: Service) -> None:
    while True:
        service.submit(ANN, Submission(external=True, options={"name": "during"}))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """New jobs are refused with the reason, the ones there go on, and once there is room all is as before."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "slaq-test", small], check=True)
    try:
        service = open_service(ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1))
        try:
            job = service.submit(ANN, Submission(external=True, options={"name": "before"})).id
            service.report(ANN, job, reports(4.0, 3.0), offset=0)
            until(lambda: len(service.observations(ANN, job)) == 2)
            with suppress(OSError), (small / "filler").open("wb") as filler:
                while True:
                    filler.write(b"x" * 4096)
                    filler.flush()
            with pytest.raises(StoreFullError):
                _submit_without_end(service)
            more, sent = reports(*[2.0] * 10_000, start=2), len(reports(4.0, 3.0))
            with pytest.raises(StoreFullError):
                service.report(ANN, job, more, offset=sent)
            until(service.troubles)
            assert "full" in service.troubles()[0] or "disk" in service.troubles()[0]
            (small / "filler").unlink()
            until(lambda: not service.troubles())
            after = service.submit(ANN, Submission(external=True, options={"name": "after"})).id
            until(lambda: service.job(ANN, after).state is JobState.RUNNING)
            # Of what was refused, the lines for which there was room count; sent again, the rest is added.
            service.report(ANN, job, more, offset=sent)
            until(lambda: service.job(ANN, job).iteration == 10_001)
        finally:
            service.close()
        again = open_service(ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1))
        losses = [one["loss"] for one in again.observations(ANN, job, limit=20_000)]
        again.close()
        assert losses == [4.0, 3.0] + [2.0] * 10_000
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a small disk")
def test_a_service_that_has_no_room_to_start_says_so_and_starts_once_there_is_some(tmp_path: Path) -> None:
    """It ends with one sentence and status 1, which the unit takes for a reason to try again."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "slaq-test", small], check=True)
    settings = ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1)
    try:
        open_service(settings).close()
        with suppress(OSError), (small / "filler").open("wb") as filler:
            while True:
                filler.write(b"x" * 4096)
                filler.flush()
        found = subprocess.run(
            [sys.executable, "-m", "slaq", "serve", "--home", small],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 1
        assert "free space on its disk" in found.stderr
        assert len(found.stderr.splitlines()) == 1
        (small / "filler").unlink()
        open_service(settings).close()
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)


def test_the_unit_never_gives_up() -> None:
    """However long the disk is full, systemd tries again, at growing distances."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(Path(__file__).parents[2] / "examples" / "slaq.service")
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["Restart"] == "on-failure"
    assert int(unit["Service"]["RestartSteps"]) > 0
