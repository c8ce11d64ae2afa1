"""The service takes any engine and any kinds of jobs: here, losses played from the submission itself."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Unpack

import pytest
from typing_extensions import override

from slaq.bootstrap import LivePolicies, make_forecaster
from slaq.config.service import ServiceSettings
from slaq.core.errors import CommandError, UnknownNameError
from slaq.core.events import Event, JobEnded, LossObserved
from slaq.core.job import JobSpec, JobState, Observation
from slaq.core.roster import Roster
from slaq.engines.clock import WallClock
from slaq.jobs.options import IfLost, ServiceOptions
from slaq.kinds.files import JobFolder
from slaq.kinds.notifying import ShellNotifier
from slaq.ports import Clock, LiveEngine
from slaq.service.kinds import Description, JobFiles, JobKind, Kinds, Progress, Recovered
from slaq.service.parts import Parts
from slaq.service.records import JobView, Submission
from slaq.service.service import Service
from slaq.stores.sqlite import SqliteStore
from slaq.stores.sqlite.records import JobIdentity, JobRow
from tests.integration.opening import ANN
from tests.integration.serving import until

#: Losses between two polls.
EACH = 3


@dataclass
class TapeEngine(LiveEngine):
    """Plays the losses of each job that holds cores; a tape without an end is never over."""

    clock: Clock
    cores: float = 2.0
    prepared: dict[str, list[float]] = field(default_factory=dict)
    playing: dict[str, Iterator[Observation]] = field(default_factory=dict)
    held: Mapping[str, float] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    endless: set[str] = field(default_factory=set)

    @override
    def capacity(self) -> float:
        return self.cores

    @override
    def prepare(self, job_id: str, work: list[float], /) -> None:
        self.prepared[job_id] = work

    @override
    def start(self, spec: JobSpec) -> None:
        first, *losses = self.prepared.pop(spec.id)
        self.playing[spec.id] = iter(
            [Observation(iteration=int(first) + place, loss=loss) for place, loss in enumerate(losses)]
        )

    @override
    def kill(self, job_id: str) -> None:
        pass

    @override
    def stop(self, job_id: str) -> None:
        self.end(job_id, JobState.CANCELLED, "stopped on request")

    @override
    def finish(self, job_id: str, reason: str) -> None:
        self.end(job_id, JobState.COMPLETED, reason)

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        self.held = dict(cores)

    @override
    def poll(self) -> Sequence[Event]:
        for job_id, losses in list(self.playing.items()):
            if not self.held.get(job_id):
                continue
            for _ in range(EACH):
                told = next(losses, None)
                if told is not None:
                    self.events.append(LossObserved(job_id=job_id, at=self.clock.now(), observation=told))
                elif job_id not in self.endless:
                    self.end(job_id, JobState.COMPLETED, "")
                    break
        events, self.events = self.events, []
        return events

    @override
    def close(self) -> None:
        for job_id in list(self.playing):
            self.end(job_id, JobState.CANCELLED, "the engine was closed")

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        if self.playing.pop(job_id, None) is not None:
            self.events.append(JobEnded(job_id=job_id, at=self.clock.now(), state=state, reason=reason))


@dataclass(frozen=True)
class TapeKind(JobKind):
    """Jobs whose command is the losses that they report, and after that, perhaps, words."""

    engine: TapeEngine
    folder: Path
    #: Losses that jobs reported while no service was there to read them, by job id.
    unread: Mapping[str, float] = field(default_factory=dict)
    name = "command"
    remote = None

    @override
    def check(self, submission: Submission, owner: str) -> None:
        if "nonsense" in (submission.command or ()):
            raise CommandError("the tape is nonsense", "give losses")

    @override
    def describe(self, submission: Submission) -> Description:
        return Description(name="tape", summary=f"{len(submission.command or ())} words")

    @override
    def files(self, job: JobIdentity) -> JobFiles:
        return JobFolder(jobs=self.folder, job=job)

    @override
    def prepare(self, row: JobRow, submission: Submission, progress: Progress) -> None:
        words = submission.command or ()
        if "torn" in words:
            raise CommandError("the tape is torn", "mend it")
        if "endless" in words:
            self.engine.endless.add(row.id)
        start = progress.last_iteration + 1
        losses = [float(word) for word in words if word != "endless"][start:]
        self.engine.prepare(row.id, [start, *losses])

    @override
    def recover(self, row: JobRow, submission: Submission, now: float) -> Recovered:
        missed = [
            LossObserved(
                job_id=row.id, at=now, observation=Observation(iteration=row.iteration + 1, loss=loss)
            )
            for job_id, loss in self.unread.items()
            if job_id == row.id
        ]
        return Recovered(unread=missed, if_lost=IfLost(submission.options["if_lost"]))


Opened = tuple[Service, TapeEngine]


@contextmanager
def opened(home: Path, unread: Mapping[str, float] | None = None) -> Iterator[Opened]:
    """Open a service on a home, with the engine and the kind of this module."""
    settings = ServiceSettings(home=home, listen=home / "slaq.sock", epoch_seconds=0.05)
    store = SqliteStore(settings.database)
    clock = WallClock(store.last_time() + 1.0)
    engine = TapeEngine(clock)
    parts = Parts(
        store=store,
        clock=clock,
        engine=engine,
        kinds=Kinds.of(TapeKind(engine, home / "jobs", unread or {})),
        policies=LivePolicies(),
        roster=Roster(make_forecaster("slaq")),
        units_per_core=4,
        notifier=ShellNotifier("secret"),
    )
    service = Service(settings, parts)
    try:
        yield service, engine
    finally:
        service.close()


def tape(*words: str | float, **options: Unpack[ServiceOptions]) -> Submission:
    return Submission(command=tuple(str(word) for word in words), options=options)


def come_to(service: Service, job_id: str, iteration: int) -> bool:
    return service.job(ANN, job_id).iteration == iteration


def ended(service: Service, job_id: str) -> JobView | None:
    view = service.job(ANN, job_id)
    return view if view.state.ended else None


def test_a_service_runs_jobs_of_any_kind_on_any_engine(tmp_path: Path) -> None:
    """The losses and the end that an engine reports are stored and shown, whatever the engine is."""
    with opened(tmp_path) as (service, engine):
        job = service.submit(ANN, tape(4.0, 3.0, 2.0, 1.0))
        assert (job.work, job.summary) == ("command", "4 words")
        view = until(lambda: ended(service, job.id))
        assert (view.state, view.iteration, view.best_loss) == (JobState.COMPLETED, 3, 1.0)
        assert [one["loss"] for one in service.observations(ANN, job.id)] == [4.0, 3.0, 2.0, 1.0]
        assert service.cluster(ANN).capacity == engine.cores


def test_a_kind_checks_prepares_and_may_refuse(tmp_path: Path) -> None:
    """What a kind refuses at submission is no job; what it cannot prepare ends as failed and holds nothing."""
    with opened(tmp_path) as (service, engine):
        with pytest.raises(CommandError, match="the tape is nonsense; give losses"):
            service.submit(ANN, tape("nonsense"))
        with pytest.raises(UnknownNameError, match="there is no kind of job 'external'"):
            service.submit(ANN, Submission(external=True))
        assert service.jobs(ANN) == []
        torn = service.submit(ANN, tape("torn")).id
        view = until(lambda: ended(service, torn))
        assert (view.state, view.cores) == (JobState.FAILED, 0.0)
        assert view.reason == "could not be started: the tape is torn; mend it"
        assert not engine.prepared
        with service._loop.paused() as scheduler:
            assert not scheduler.roster.ids
            assert not scheduler.admission.running.jobs


def test_a_kind_finds_its_jobs_after_a_restart(tmp_path: Path) -> None:
    """A running job goes on from its last loss and from what was not read, begins anew, or fails, as asked."""
    with opened(tmp_path) as (service, _):
        jobs = {way: service.submit(ANN, tape(3.0, 2.0, "endless", if_lost=way)).id for way in IfLost}
        for job_id in jobs.values():
            until(partial(come_to, service, job_id, 1))
    with opened(tmp_path, {jobs[IfLost.RESUME]: 1.0}) as (service, engine):
        assert service.job(ANN, jobs[IfLost.FAIL]).state is JobState.FAILED
        resumed, again = jobs[IfLost.RESUME], jobs[IfLost.RESTART]
        assert [one["loss"] for one in service.observations(ANN, resumed)] == [3.0, 2.0, 1.0]
        until(lambda: [one["loss"] for one in service.observations(ANN, again)] == [3.0, 2.0])
        assert {service.job(ANN, job_id).attempts for job_id in (resumed, again)} == {2}
        assert set(engine.playing) == {resumed, again}
