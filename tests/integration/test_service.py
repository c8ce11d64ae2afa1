"""The service without its sockets: jobs, what is shown of them, and changes to them."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from slaq.core.errors import (
    ConflictError,
    SlaqError,
)
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobState, Observation
from slaq.service.records import Submission
from slaq.service.service import Service
from tests.integration.opening import ANN, BOB, ME, TRAINS, in_state, iterated, printed, python, reports
from tests.integration.serving import until


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
    job = service.submit(ME, Submission(program=table, options={"max_cores": 1.0}))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.COMPLETED, ended.reason
    assert ended.iteration == 5
    assert list(Path(ended.directory).glob("state/*/model.npz"))


def test_a_job_that_cannot_start_fails_with_the_reason(open_service: Callable[..., Service]) -> None:
    """A job that cannot start ends as failed with the reason, holds no core and leaves no files."""
    service = open_service()
    job = service.submit(ME, Submission(command=("no-such-program-anywhere",)))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.FAILED
    assert ended.reason.startswith("could not be started: there is no program 'no-such-program-anywhere'")
    assert not Path(ended.directory).exists()
    with service._loop.paused() as scheduler:
        assert job.id not in scheduler.roster.ids
        assert not scheduler.admission.running.jobs
    again = service.submit(ME, Submission(command=("true",), options={"name": job.id}))
    until(lambda: service.job(ME, again.id).state is JobState.COMPLETED)


@pytest.mark.parametrize(
    "wrong",
    [
        Submission(),
        Submission(command=()),
        Submission(command=("true",), external=True),
        Submission(command=("a\0b",)),
        Submission(command=("true",), options={"weight": 0.0}),
        Submission(command=("true",), options={"stop_at": 1.5}),
        Submission(command=("true",), options={"name": "../escape"}),
        Submission(command=("true",), options={"name": ".hidden"}),
        Submission(command=("true",), options={"cwd": "relative/path"}),
        Submission(command=("true",), options={"loss_pattern": "(unclosed"}),
        Submission(command=("true",), options={"loss_pattern": "(x)", "loss_file": "f.csv"}),
        Submission(command=("true",), options={"min_cores": 2.0, "max_cores": 1.0}),
        Submission(command=("true",), options={"tags": ("two words",)}),
        Submission(command=("true",), options={"env": {"A=B": "c"}}),
        Submission(command=("x" * 200_000,)),
        Submission(command=("true",), options={"deadline": float("inf")}),
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
    service = open_service(concurrent=1)
    ids = [service.submit(ME, python(TRAINS, name="same")).id for _ in range(4)]
    assert ids == ["same", "same-2", "same-3", "same-4"]
    assert [view.id for view in service.jobs(ME)] == ids
    assert [view.id for view in service.jobs(ME, after="same-2", limit=1)] == ["same-3"]


def _some_of_every_state(service: Service) -> list[str]:
    """Submit jobs of two users, with and without tags; return their ids once there is one of each state.

    No job is beaten: only searches have such jobs.
    """
    ids = [
        service.submit(
            (ANN, BOB)[k % 2], Submission(external=True, options={"tags": ("x", "xy")[: k % 3]})
        ).id
        for k in range(16)
    ]
    for job_id in (ids[6], ids[9], ids[14]):
        service.cancel(ME, job_id)
    for job_id in (ids[2], ids[12], ids[13]):
        service.pause(ME, job_id)
    ends = {
        ids[0]: JobState.COMPLETED,
        ids[1]: JobState.FAILED,
        ids[11]: JobState.COMPLETED,
        ids[8]: JobState.DIVERGED,
    }
    for job_id, state in ends.items():
        service.end(ME, job_id, state=state, reason="so it was")
    until(lambda: {service.job(ME, job_id).state for job_id in ids} == set(JobState) - {JobState.BEATEN})
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
        if start is None:
            last, total = service.last_jobs(ME, limit, states=which, owner=owner, tag=tag)
            # Those that have not ended count as the last ones.
            ranked = sorted(fitting, key=lambda view: (not view.state.ended, view.ended_at or 0.0))
            chosen = {view.id for view in ranked[max(len(ranked) - limit, 0) :]}
            lasting = [view for view in fitting if not view.state.ended]
            if len(lasting) > limit:
                chosen = {view.id for view in lasting[-limit:]}
            assert total == len(fitting)
            assert last == [view for view in fitting if view.id in chosen]


def test_a_listing_is_what_is_said_of_each_job(open_service: Callable[..., Service]) -> None:
    """Filters leave out exactly what does not fit, in order, also where an end is stored and not shown yet."""
    service = open_service(concurrent=6)
    ids = _some_of_every_state(service)
    # Between two epochs, so that nothing changes while listings are compared.
    with service._loop.paused() as scheduler:
        _check_listings(service, ids)
        running = next(job_id for job_id in ids if in_state(service, ME, job_id, JobState.RUNNING))
        end = JobEnded(job_id=running, at=scheduler.clock.now(), state=JobState.COMPLETED)
        service.store.append([end])
        _check_listings(service, ids)
        service._live_jobs.take([end])
    until(partial(in_state, service, ME, running, JobState.COMPLETED))
    with service._loop.paused():
        _check_listings(service, ids)


def test_no_more_jobs_run_than_may_and_the_queue_keeps_its_order(
    open_service: Callable[..., Service],
) -> None:
    """Beyond the limit jobs wait, and start in the order they came."""
    service = open_service(concurrent=1)
    first = service.submit(ME, python(TRAINS, name="first"))
    later = [service.submit(ME, python(TRAINS, name="later")).id for _ in range(2)]
    until(iterated(service, first.id, 3))
    assert [service.job(ME, job_id).state for job_id in later] == [JobState.QUEUED] * 2
    service.cancel(ME, first.id)
    until(lambda: service.job(ME, later[0]).state is JobState.RUNNING)
    assert service.job(ME, later[1]).state is JobState.QUEUED


def test_a_paused_job_stands_still_and_goes_on(open_service: Callable[..., Service]) -> None:
    """Pausing takes all cores, resuming gives some back; nothing is lost in between."""
    service = open_service()
    job = service.submit(ME, python(TRAINS))
    until(iterated(service, job.id, 5))
    service.pause(ME, job.id)
    until(lambda: service.job(ME, job.id).cores == 0)
    assert service.job(ME, job.id).state is JobState.PAUSED
    before = service.job(ME, job.id).iteration
    service.resume(ME, job.id)
    until(iterated(service, job.id, before + 20))


def test_cancelling_ends_a_job_once_whether_it_runs_or_waits(open_service: Callable[..., Service]) -> None:
    """A cancelled job is cancelled, and cannot be cancelled, paused or changed again."""
    service = open_service(concurrent=1)
    runs = service.submit(ME, python(TRAINS))
    until(iterated(service, runs.id, 1))
    waits = service.submit(ME, python(TRAINS))
    for job_id in (waits.id, runs.id):
        service.cancel(ME, job_id)
        until(partial(in_state, service, ME, job_id, JobState.CANCELLED))
        for act in (service.cancel, service.pause, service.resume):
            with pytest.raises(ConflictError):
                act(ME, job_id)


def test_a_cancelled_job_stays_cancelled_though_the_service_stops(
    open_service: Callable[..., Service],
) -> None:
    """A job whose owner asked for its end does not go on after a restart, even if it had not ended yet."""
    service = open_service()
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(600)"
    )
    asked, others = (service.submit(ME, python(deaf)).id for _ in range(2))
    for job_id in (asked, others):
        until(partial(printed, service, job_id, 1))
    service.cancel(ME, asked)
    service.close()
    again = open_service()
    assert again.job(ME, asked).state is JobState.CANCELLED
    assert again.job(ME, others).state is JobState.RUNNING


def test_a_job_is_shown_as_under_way_until_its_end_is_stored(open_service: Callable[..., Service]) -> None:
    """Nobody sees a job go back, vanish, or end before all that it reported can be read."""
    service = open_service()
    job = service.submit(ME, Submission(external=True)).id
    until(partial(in_state, service, ME, job, JobState.RUNNING))
    service.report(ME, job, reports(3.0), offset=0)
    until(iterated(service, job, 0))
    told = Observation(iteration=1, loss=2.0, cpu_seconds=0.1, wall_seconds=0.1)
    with service._loop.paused() as scheduler:
        now = scheduler.clock.now()
        end = JobEnded(job_id=job, at=now, state=JobState.COMPLETED, reason="done")
        events: list[Event] = [LossObserved(job_id=job, at=now, observation=told), end]
        scheduler.store.append(events)
        scheduler.roster.absorb(events)
        assert [view.id for view in service.jobs(ME, states={JobState.COMPLETED})] == []
        (view,) = service.jobs(ME, states={JobState.RUNNING})
        assert view == service.job(ME, job)
        assert (view.state, view.iteration) == (JobState.RUNNING, 1)
    until(partial(in_state, service, ME, job, JobState.COMPLETED))
    assert [one["loss"] for one in service.observations(ME, job)] == [3.0, 2.0]
    assert service.job(ME, job).reduction > 0.0
    assert service.jobs(ME, states={JobState.RUNNING}) == []


def test_weight_and_limits_can_be_changed_while_a_job_runs(open_service: Callable[..., Service]) -> None:
    """A change is in force with the next decision, and survives a restart."""
    service = open_service()
    job = service.submit(ME, python(TRAINS))
    until(iterated(service, job.id, 3))
    service.change(ME, job.id, weight=4.0, tags=["big"], max_cores=0.25)
    until(lambda: 0 < service.job(ME, job.id).cores <= 0.25)
    again = open_service().job(ME, job.id)
    assert (again.weight, again.tags) == (4.0, ("big",))


def test_stop_at_ends_a_job_near_its_forecast_end(open_service: Callable[..., Service]) -> None:
    """A job whose owner wants a part of its reduction ends, completed, once that is done."""
    service = open_service()
    job = service.submit(ME, python(TRAINS, stop_at=0.8))
    ended = until(lambda: (v := service.job(ME, job.id)).state.ended and v)
    assert ended.state is JobState.COMPLETED
    assert "reduction" in ended.reason


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
