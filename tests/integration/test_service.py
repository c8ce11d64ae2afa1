"""The service as its own object: jobs, users, steering, and what a restart finds."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from slaq.bootstrap import make_forecaster
from slaq.config.service import ServiceSettings, UserLimits
from slaq.core.errors import (
    ConflictError,
    ForbiddenError,
    LimitError,
    SlaqError,
    StoreFullError,
    UnknownJobError,
)
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobState, Observation
from slaq.engines.units import FractionalRoster
from slaq.service.records import Identity, IfLost, JobView, Submission
from slaq.service.service import Service
from slaq.stores.sqlite import SqliteStore

ME = Identity(user=pwd.getpwuid(os.getuid()).pw_name, uid=os.getuid(), admin=True)
ANN, BOB = Identity(user="ann"), Identity(user="bob")
#: Long enough for anything on a loaded machine.
PATIENCE = 60.0
#: Reports a loss that falls, until it is told to end.
TRAINS = """
import itertools, slaq, time
for i in itertools.count():
    slaq.report(1 / (1 + i))
    time.sleep(0.01)
"""
#: Goes on from what it kept in its own place.
GOES_ON = """
import os, pathlib, slaq, time
kept = pathlib.Path(os.environ["SLAQ_JOB_DIR"]) / "kept"
start = int(kept.read_text()) if kept.exists() else 0
print("from", start, "attempt", os.environ["SLAQ_ATTEMPT"], flush=True)
for i in range(start, 100000):
    slaq.report(1 / (1 + i))
    kept.with_suffix(".new").write_text(str(i + 1))
    kept.with_suffix(".new").replace(kept)
    time.sleep(0.01)
"""


def python(code: str, **options: Any) -> Submission:
    """Return a job that runs some Python."""
    return Submission(command=(sys.executable, "-c", code), **options)


def until(holds: Callable[[], Any]) -> Any:
    """Wait for something to be true, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found


def reports(*losses: float, start: int = 0) -> bytes:
    """Return lines as slaq.report writes them."""
    return b"".join(
        json.dumps({"iteration": start + k, "loss": loss, "time": 1e9 + k, "cpu": 0.1 * k, "pid": 7}).encode()
        + b"\n"
        for k, loss in enumerate(losses)
    )


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Open services on one home, one after another; the last one is closed at the end."""
    opened: list[Service] = []

    def open_one(**changes: Any) -> Service:
        for service in opened:
            service.close()
        settings = ServiceSettings(home=tmp_path, listen=tmp_path / "slaq.sock", epoch_seconds=0.1, **changes)
        opened.append(Service(settings))
        return opened[-1]

    yield open_one
    for service in opened:
        service.close()


def _in_state(service: Service, who: Identity, job_id: str, state: JobState) -> bool:
    return service.job(who, job_id).state is state


def _lines(service: Service, job_id: str, least: int) -> list[str]:
    """Return what a job printed once it is so many lines."""
    lines = service.log(ME, job_id).data.decode().splitlines()
    return lines if len(lines) >= least else []


def iterated(service: Service, job_id: str, least: int) -> Callable[[], JobView | None]:
    """Return a check that a job has come so far."""

    def check() -> JobView | None:
        view = service.job(ME, job_id)
        assert not view.state.ended, view.reason
        return view if view.iteration >= least else None

    return check


def test_a_command_runs_reports_and_completes(open_service: Callable[..., Service]) -> None:
    """A command's losses, output and end are all there when it has ended."""
    service = open_service()
    code = "import slaq\nfor loss in (3.0, 2.0, 1.0): slaq.report(loss, accuracy=loss)\nprint('well')"
    job = service.submit(ME, python(code, name="three", tags=("x",)))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.COMPLETED, ended.reason
    assert (ended.iteration, ended.first_loss, ended.best_loss) == (2, 3.0, 1.0)
    assert ended.reduction > 0.0
    seen = service.observations(ME, job.id)
    assert [one["loss"] for one in seen] == [3.0, 2.0, 1.0]
    assert seen[0]["metrics"] == {"accuracy": 3.0}
    assert service.log(ME, job.id).data == b"well\n"
    assert service.log(ME, job.id).ended


def test_a_program_is_run_by_slaq_and_leaves_its_model(open_service: Callable[..., Service]) -> None:
    """A table of a jobs file is trained in a process of its own, and its model kept in the job's own place."""
    service = open_service()
    table = {
        "algorithm": "logistic-regression",
        "data": {"generate": "classification", "rows": 200, "features": 4},
        "parameters": {"iterations": 5},
    }
    job = service.submit(ME, Submission(program=table, max_cores=1.0))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.COMPLETED, ended.reason
    assert ended.iteration == 5
    assert list(Path(ended.directory).glob("state/*/model.npz"))


def test_a_job_that_cannot_start_fails_with_the_reason(open_service: Callable[..., Service]) -> None:
    """What is wrong with a command that only its start shows is told as the reason of its failure."""
    service = open_service()
    job = service.submit(ME, Submission(command=("no-such-program-anywhere",)))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.FAILED
    assert "no-such-program-anywhere" in ended.reason


@pytest.mark.parametrize(
    "wrong",
    [
        Submission(),
        Submission(command=()),
        Submission(command=("true",), external=True),
        Submission(command=("a\0b",)),
        Submission(command=("true",), weight=0.0),
        Submission(command=("true",), stop_at=1.5),
        Submission(command=("true",), name="../escape"),
        Submission(command=("true",), name=".hidden"),
        Submission(command=("true",), cwd="relative/path"),
        Submission(command=("true",), loss_pattern="(unclosed"),
        Submission(command=("true",), loss_pattern="(x)", loss_file="f.csv"),
        Submission(command=("true",), min_cores=2.0, max_cores=1.0),
        Submission(command=("true",), tags=("two words",)),
        Submission(command=("true",), env={"A=B": "c"}),
        Submission(command=("x" * 200_000,)),
        Submission(command=("true",), by=float("inf")),
    ],
)
def test_a_submission_that_makes_no_sense_is_refused_and_leaves_nothing(
    open_service: Callable[..., Service], wrong: Submission
) -> None:
    """Bad input gets one sentence, and no job."""
    service = open_service()
    with pytest.raises(SlaqError) as refused:
        service.submit(ME, wrong)
    assert str(refused.value)
    assert service.jobs(ME) == []


def test_jobs_of_one_name_get_numbers_in_the_order_of_submission(
    open_service: Callable[..., Service],
) -> None:
    """Ids are unique, and a listing has the order of submission, also page by page."""
    service = open_service(max_jobs_active=1)
    ids = [service.submit(ME, python(TRAINS, name="same")).id for _ in range(4)]
    assert ids == ["same", "same-2", "same-3", "same-4"]
    assert [view.id for view in service.jobs(ME)] == ids
    assert [view.id for view in service.jobs(ME, after="same-2", limit=1)] == ["same-3"]


def _some_of_every_state(service: Service) -> list[str]:
    """Submit jobs of two users, with and without tags; return their ids once there is one of each state."""
    ids = [
        service.submit((ANN, BOB)[k % 2], Submission(external=True, tags=("x", "xy")[: k % 3])).id
        for k in range(16)
    ]
    for job_id in (ids[6], ids[9], ids[14]):
        service.cancel(ME, job_id)
    for job_id in (ids[2], ids[12], ids[13]):
        service.pause(ME, job_id)
    ends = {ids[0]: JobState.COMPLETED, ids[1]: JobState.FAILED, ids[11]: JobState.COMPLETED}
    for job_id, state in ends.items():
        service.end(ME, job_id, state=state, reason="so it was")
    until(lambda: {service.job(ME, job_id).state for job_id in ids} == set(JobState))
    until(lambda: all(service.job(ME, job_id).state is state for job_id, state in ends.items()))
    return ids


def _check_listings(service: Service, ids: list[str]) -> None:
    """Check every listing of all jobs against what is said of each of them."""
    every = [service.job(ME, job_id) for job_id in ids]
    states: list[set[JobState] | None] = [None, set(), set(JobState), *({state} for state in JobState)]
    states += [{JobState.RUNNING, JobState.COMPLETED}, {JobState.PAUSED, JobState.FAILED}]
    for which, owner, tag, start, limit in product(
        states, (None, "ann", "bob", "tom"), (None, "x", "xy"), (None, 0, 3, 9), (1, 3, 5, 100)
    ):
        fitting = [
            view
            for view in every[0 if start is None else start + 1 :]
            if (which is None or view.state in which)
            and owner in (None, view.owner)
            and (tag is None or tag in view.tags)
        ]
        after = None if start is None else ids[start]
        listed = service.jobs(ME, states=which, owner=owner, tag=tag, after=after, limit=limit)
        assert listed == fitting[:limit]


def test_a_listing_is_what_is_said_of_each_job(open_service: Callable[..., Service]) -> None:
    """Filters leave out exactly what does not fit, in order, also where an end is stored and not shown yet."""
    service = open_service(max_jobs_active=6)
    ids = _some_of_every_state(service)
    work = service._at_work
    # Held, so that nothing moves between the one and the other.
    with work.lock:
        _check_listings(service, ids)
        running = next(job_id for job_id in ids if _in_state(service, ME, job_id, JobState.RUNNING))
        end = JobEnded(job_id=running, at=work.clock.now(), state=JobState.COMPLETED)
        service.store.append([end])
        _check_listings(service, ids)
        work.take([end])
    until(partial(_in_state, service, ME, running, JobState.COMPLETED))
    with work.lock:
        _check_listings(service, ids)


def test_no_more_jobs_run_than_may_and_the_queue_keeps_its_order(
    open_service: Callable[..., Service],
) -> None:
    """Beyond the limit jobs wait, and start in the order they came."""
    service = open_service(max_jobs_active=1)
    first = service.submit(ME, python(TRAINS, name="first"))
    later = [service.submit(ME, python(TRAINS, name="later")).id for _ in range(2)]
    until(iterated(service, first.id, 3))
    assert [service.job(ME, job_id).state for job_id in later] == [JobState.QUEUED] * 2
    service.cancel(ME, first.id)
    until(lambda: service.job(ME, later[0]).state is JobState.RUNNING)
    assert service.job(ME, later[1]).state is JobState.QUEUED


def test_a_paused_job_stands_still_and_goes_on(open_service: Callable[..., Service]) -> None:
    """Pausing takes all units, resuming gives some back; nothing is lost in between."""
    service = open_service()
    job = service.submit(ME, python(TRAINS))
    until(iterated(service, job.id, 5))
    service.pause(ME, job.id)
    until(lambda: service.job(ME, job.id).units == 0)
    assert service.job(ME, job.id).state is JobState.PAUSED
    before = service.job(ME, job.id).iteration
    service.resume(ME, job.id)
    until(iterated(service, job.id, before + 20))


def test_cancelling_ends_a_job_once_whether_it_runs_or_waits(open_service: Callable[..., Service]) -> None:
    """A cancelled job is cancelled, and cannot be cancelled, paused or changed again."""
    service = open_service(max_jobs_active=1)
    runs = service.submit(ME, python(TRAINS))
    until(iterated(service, runs.id, 1))
    waits = service.submit(ME, python(TRAINS))
    for job_id in (waits.id, runs.id):
        service.cancel(ME, job_id)
        until(partial(_in_state, service, ME, job_id, JobState.CANCELLED))
        for act in (service.cancel, service.pause, service.resume):
            with pytest.raises(ConflictError):
                act(ME, job_id)


def test_a_job_is_shown_as_under_way_until_its_end_is_stored(open_service: Callable[..., Service]) -> None:
    """Nobody sees a job go back, vanish, or end before all that it reported can be read."""
    service = open_service()
    job = service.submit(ME, Submission(external=True)).id
    until(partial(_in_state, service, ME, job, JobState.RUNNING))
    service.report(ME, job, reports(3.0), offset=0)
    until(iterated(service, job, 0))
    work, told = service._at_work, Observation(iteration=1, loss=2.0, cpu_seconds=0.1, wall_seconds=0.1)
    with work.lock:
        now = work.clock.now()
        end = JobEnded(job_id=job, at=now, state=JobState.COMPLETED, reason="done")
        events: list[Event] = [LossObserved(job_id=job, at=now, observation=told), end]
        work.ledger.append(events)
        work.roster.absorb(events)
        assert [view.id for view in service.jobs(ME, states={JobState.COMPLETED})] == []
        (view,) = service.jobs(ME, states={JobState.RUNNING})
        assert view == service.job(ME, job)
        assert (view.state, view.iteration) == (JobState.RUNNING, 1)
    until(partial(_in_state, service, ME, job, JobState.COMPLETED))
    assert [one["loss"] for one in service.observations(ME, job)] == [3.0, 2.0]
    assert service.job(ME, job).reduction > 0.0
    assert service.jobs(ME, states={JobState.RUNNING}) == []


def test_weight_and_limits_can_be_changed_while_a_job_runs(open_service: Callable[..., Service]) -> None:
    """A change is in force with the next decision, and survives a restart."""
    service = open_service()
    job = service.submit(ME, python(TRAINS))
    until(iterated(service, job.id, 3))
    service.change(ME, job.id, weight=4.0, tags=["big"], max_cores=0.25)
    per_core = service.cluster(ME).units_per_core
    until(lambda: 0 < service.job(ME, job.id).units <= per_core // 4)
    again = open_service().job(ME, job.id)
    assert (again.weight, again.tags) == (4.0, ("big",))


def test_stop_at_ends_a_job_near_its_forecast_end(open_service: Callable[..., Service]) -> None:
    """A job whose owner wants a part of its reduction ends, completed, once that is done."""
    service = open_service()
    job = service.submit(ME, python(TRAINS, stop_at=0.8))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.COMPLETED
    assert "reduction" in ended.reason


def test_users_see_and_touch_their_own_jobs_only(open_service: Callable[..., Service]) -> None:
    """Another's job is unknown in every respect; an admin's eyes and hands reach everything."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True, name="hers")).id
    acts: list[Callable[[Identity], Any]] = [
        lambda who: service.job(who, job),
        lambda who: service.submission(who, job),
        lambda who: service.observations(who, job),
        lambda who: service.allocations(who, job),
        lambda who: service.log(who, job),
        lambda who: service.pause(who, job),
        lambda who: service.resume(who, job),
        lambda who: service.change(who, job, weight=2.0),
        lambda who: service.report(who, job, b"\n", offset=0),
        lambda who: service.notices(who, job_id=job),
        lambda who: service.cancel(who, job),
    ]
    for act in acts:
        with pytest.raises(UnknownJobError):
            act(BOB)
    assert service.jobs(BOB) == []
    assert [view.id for view in service.jobs(ANN)] == [job]
    for act in acts:
        act(ME)


def test_with_open_visibility_others_read_but_learn_no_secrets_and_touch_nothing(
    open_service: Callable[..., Service],
) -> None:
    """Where all may read, what a job runs, prints and where it lives stays its owner's."""
    service = open_service(visibility="all")
    job = service.submit(ANN, Submission(external=True)).id
    seen = service.job(BOB, job)
    assert (seen.summary, seen.directory) == ("", "")
    for act in (service.cancel, service.pause, service.log, service.submission):
        with pytest.raises(ForbiddenError):
            act(BOB, job)


def test_only_admins_do_what_admins_do(open_service: Callable[..., Service], tmp_path: Path) -> None:
    """Policies, limits, pruning, copies and jobs for others are for admins."""
    service = open_service()
    acts: list[Callable[[], Any]] = [
        lambda: service.set_policy(ANN, "fair"),
        lambda: service.set_user(ANN, "ann", weight=9.0),
        lambda: service.user(ANN, "bob"),
        lambda: service.prune(ANN),
        lambda: service.backup(ANN, tmp_path / "copy.db"),
        lambda: service.submit(ANN, Submission(external=True, user="bob")),
    ]
    for act in acts:
        with pytest.raises(ForbiddenError):
            act()
    assert [view.user for view in service.users(ANN)] == ["ann"]


def test_a_user_at_their_limit_is_told_and_another_is_not(open_service: Callable[..., Service]) -> None:
    """Limits count jobs that have not ended, per user."""
    service = open_service(defaults=UserLimits(max_jobs=1))
    first = service.submit(ANN, Submission(external=True))
    with pytest.raises(LimitError):
        service.submit(ANN, Submission(external=True))
    service.submit(BOB, Submission(external=True))
    service.end(ANN, first.id, state=JobState.COMPLETED)
    until(lambda: service.job(ANN, first.id).state.ended)
    service.submit(ANN, Submission(external=True))


def test_users_share_by_weight_whatever_their_number_of_jobs(open_service: Callable[..., Service]) -> None:
    """Five jobs of one user get no more than the one job of another."""
    service = open_service()
    for who, jobs in ((ANN, 5), (BOB, 1)):
        for _ in range(jobs):
            job = service.submit(who, Submission(external=True, max_cores=64.0)).id
            until(partial(_in_state, service, who, job, JobState.RUNNING))
            service.report(who, job, reports(1.0, 0.5, 0.4, 0.3), offset=0)
    capacity = service.cluster(ME).capacity
    until(lambda: [user.units for user in service.users(ME)][:2] == [capacity / 2] * 2)


def test_reports_from_elsewhere_count_once_however_often_they_are_sent(
    open_service: Callable[..., Service],
) -> None:
    """Sending again does no harm, a gap is refused by its offset, and a restart finds all of it."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True)).id
    lines = reports(4.0, 3.0, 2.0)
    first, rest = lines[: lines.index(b"\n") + 1], lines[lines.index(b"\n") + 1 :]
    assert service.report(ANN, job, rest, offset=len(first)) == 0
    assert service.report(ANN, job, first, offset=0) == len(first)
    assert service.report(ANN, job, lines, offset=0) == len(lines)
    assert service.report(ANN, job, lines, offset=0) == len(lines)
    until(lambda: service.job(ANN, job).iteration == 2)
    again = open_service()
    assert again.report(ANN, job, lines, offset=0) == len(lines)
    until(lambda: again.job(ANN, job).state is JobState.RUNNING)
    assert [one["loss"] for one in again.observations(ANN, job)] == [4.0, 3.0, 2.0]


def test_another_source_of_reports_takes_over(open_service: Callable[..., Service]) -> None:
    """A job that goes on elsewhere reports from there; its old place is told so."""
    service = open_service()
    job = service.submit(ANN, Submission(external=True)).id
    service.report(ANN, job, reports(4.0), offset=0, source="here")
    service.report(ANN, job, reports(3.0), offset=0, source="there")
    with pytest.raises(ConflictError):
        service.report(ANN, job, reports(9.0), offset=len(reports(4.0)), source="here")
    until(lambda: [one["loss"] for one in service.observations(ANN, job)] == [4.0, 3.0])


def test_a_restart_goes_on_with_curves_ids_queue_and_balances(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """After a stop every job is where it was: running ones go on from their own checkpoint."""
    service = open_service(max_jobs_active=2)
    runs = [service.submit(ME, python(GOES_ON, name="runs")).id for _ in range(2)]
    waits = [service.submit(ME, python(GOES_ON, name="waits")).id for _ in range(2)]
    for job_id in runs:
        until(iterated(service, job_id, 12))
    before = {job_id: service.job(ME, job_id) for job_id in runs}
    service.close()
    left = service._at_work.roster
    with SqliteStore(tmp_path / "slaq.db") as store:
        kept = store.snapshot()
        found = FractionalRoster(make_forecaster("slaq"), left._units_per_core)
        assert kept is not None
        found.restore(kept[0])
    assert found.dump() == left.dump()
    again = open_service(max_jobs_active=2)
    assert [view.id for view in again.jobs(ME)] == [*runs, *waits]
    for job_id in runs:
        until(iterated(again, job_id, before[job_id].iteration + 5))
        losses = [one["loss"] for one in again.observations(ME, job_id, limit=100_000)]
        assert losses[0] == 1.0
        assert again.job(ME, job_id).attempts == 2
        log = until(partial(_lines, again, job_id, 2))
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


def test_what_was_reported_and_never_read_is_read_after_a_restart(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    """A loss counts as reported once slaq.report has returned, whatever becomes of the service."""
    service = open_service()
    job = service.submit(ME, python("import time, slaq\nslaq.report(5.0)\ntime.sleep(600)")).id
    until(iterated(service, job, 0))
    service.close()
    path = tmp_path / "jobs" / job / "reports.jsonl"
    pid = json.loads(path.read_text().splitlines()[-1])["pid"]
    with path.open("a") as file:
        for k in (1, 2, 3):
            line = {"iteration": k, "loss": 5.0 - k, "time": 1e9 + k, "cpu": 0.1, "pid": pid}
            file.write(json.dumps(line) + "\n")
        file.write('{"iteration": 4, "loss": 0.')
    again = open_service()
    assert [one["loss"] for one in again.observations(ME, job)][:4] == [5.0, 4.0, 3.0, 2.0]


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


def test_policy_and_limits_that_admins_changed_survive_a_restart(
    open_service: Callable[..., Service],
) -> None:
    """Until the settings themselves change, what an admin chose at run time holds."""
    service = open_service()
    service.set_policy(ME, "fair")
    service.set_user(ME, "ann", weight=3.0, max_jobs=7)
    again = open_service()
    assert again.cluster(ME).policy == "fair"
    assert (again.user(ME, "ann").weight, again.user(ME, "ann").max_jobs) == (3.0, 7)
    assert open_service(policy="fifo").cluster(ME).policy == "fifo"


def test_limits_that_no_admin_touched_follow_the_settings(open_service: Callable[..., Service]) -> None:
    """A choice for one user says nothing about the others."""
    service = open_service(users={"bob": UserLimits(max_jobs=3)})
    service.set_user(ME, "ann", weight=3.0)
    assert service.user(ME, "bob").max_jobs == 3
    again = open_service(users={"bob": UserLimits(max_jobs=9)})
    assert again.user(ME, "bob").max_jobs == 9
    assert again.user(ME, "ann").weight == 3.0


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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run jobs as others")
def test_a_service_of_root_runs_jobs_as_their_submitters(tmp_path: Path) -> None:
    """A job has its submitter's rights and environment, not the service's, and cannot touch the service's files."""
    home = Path(f"/tmp/slaq-test-{os.getpid()}")  # tmp_path is closed to others
    settings = ServiceSettings(home=home, listen=home / "slaq.sock", epoch_seconds=0.1)
    service = Service(settings)
    nobody = Identity(user="nobody", uid=pwd.getpwnam("nobody").pw_uid)
    secret = tmp_path / "losses.csv"
    secret.write_text("loss\n1.0\n2.0\n")
    secret.chmod(0o600)
    code = f"""
import os
print(os.getuid(), os.geteuid(), os.getgroups(), os.environ["HOME"], "SLAQ_SECRET" in os.environ)
beside = os.path.join(os.path.dirname(os.environ["SLAQ_JOB_DIR"]), "x")
read = (lambda: open({str(home / "slaq.db")!r}), lambda: open({str(secret)!r}))
for act in (*read, lambda: os.symlink("/x", beside)):
    try:
        act()
        print("done")
    except OSError:
        print("refused")
"""
    os.environ["SLAQ_SECRET"] = "s"
    try:
        job = service.submit(nobody, Submission(command=("/usr/bin/python3", "-c", code)))
        peeks = service.submit(nobody, Submission(command=("sleep", "1"), loss_file=str(secret)))
        ended = until(lambda: (v := service.job(nobody, job.id)).state.ended and v)
        said = service.log(nobody, job.id).data.decode()
        assert ended.state is JobState.COMPLETED, said
        uid, account = nobody.uid, pwd.getpwnam("nobody")
        assert said.splitlines()[0] == f"{uid} {uid} [{account.pw_gid}] {account.pw_dir} False"
        assert said.splitlines()[1:] == ["refused", "refused", "refused"]
        until(lambda: service.job(nobody, peeks.id).state.ended)
        assert service.observations(nobody, peeks.id) == []
    finally:
        del os.environ["SLAQ_SECRET"]
        service.close()
        shutil.rmtree(home)


def test_upkeep_keeps_as_much_as_the_settings_say(open_service: Callable[..., Service]) -> None:
    """Old decisions go, and ended jobs once they are older than they need to be kept."""
    service = open_service(keep_decisions=5, retention_days=1.0)
    stays = service.submit(ME, python(TRAINS, name="stays")).id
    gone = service.submit(ME, python("pass", name="gone")).id
    until(lambda: service.store.job(gone).state.ended and len(service.store.decisions()) > 20)
    service._upkeep.once()
    assert len(service.store.decisions()) < 20
    assert service.job(ME, gone).id == gone
    service.store.change(gone, ended_at=1.0)
    service._upkeep.once()
    with pytest.raises(UnknownJobError):
        service.job(ME, gone)
    assert service.job(ME, stays).id == stays


def _submit_without_end(service: Service) -> None:
    while True:
        service.submit(ANN, Submission(external=True, name="during"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """New jobs are refused with the reason, the ones there go on, and once there is room all is as before."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "slaq-test", small], check=True)
    try:
        service = Service(ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1))
        try:
            job = service.submit(ANN, Submission(external=True, name="before")).id
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
            after = service.submit(ANN, Submission(external=True, name="after")).id
            until(lambda: service.job(ANN, after).state is JobState.RUNNING)
            # Of what was refused, the lines for which there was room count; sent again, the rest is added.
            service.report(ANN, job, more, offset=sent)
            until(lambda: service.job(ANN, job).iteration == 10_001)
        finally:
            service.close()
        again = Service(ServiceSettings(home=small, listen=small / "slaq.sock", epoch_seconds=0.1))
        losses = [one["loss"] for one in again.observations(ANN, job, limit=20_000)]
        again.close()
        assert losses == [4.0, 3.0] + [2.0] * 10_000
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
