"""The scheduler of the service at work: its parts, its recovery, and the thread in which it decides."""

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import Any

from typing_extensions import override

from slaq.bootstrap import make_forecaster, make_live_policy, make_station
from slaq.config.service import ServiceSettings, UserLimits
from slaq.core.appraisal import Appraiser
from slaq.core.decision import Decision
from slaq.core.enough import reduction_made
from slaq.core.errors import SlaqError
from slaq.core.events import CurveBegan, Event, JobEnded, LearningRateChanged, LossObserved
from slaq.core.job import JobSpec, JobState
from slaq.core.policies import BetweenOwners
from slaq.core.prospects import Prospects, foresee
from slaq.engines.clock import WallClock
from slaq.engines.journal import SHUT_DOWN, Ending, Listener
from slaq.engines.local.engine import cores_here, usual_units_per_core
from slaq.engines.processes.tree import kill_marked
from slaq.engines.units import FractionalRoster
from slaq.scheduler import Scheduler
from slaq.service.bulletin import Bulletin
from slaq.service.launching import Launcher
from slaq.service.ledger import Ledger, Steward
from slaq.service.records import Prospect
from slaq.service.recovery import Recovery
from slaq.service.standing import Board, Standing
from slaq.stores.sqlite import SqliteStore

#: Epochs from one snapshot of the scheduler's state to the next; a restart reads again what came after it.
SNAPSHOT_EPOCHS = 10
#: The part of an epoch that passes at least between two decisions, however many jobs come and go.
SHORTEST_EPOCH = 0.1
#: A job with more losses was in a decision not long before its end.
LONGEST_MEASURED = 1_000
#: The name under which the store keeps what marks the processes of the service that ran last.
_TOKEN = "processes"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What has been counted since the start."""

    observations: int = 0
    late_epochs: int = 0
    ended: Counter[JobState] = field(default_factory=Counter)


class Scheduling(Listener, Steward):
    """One scheduler over the durable store and this machine's cores.

    Whoever changes something holds `lock`; the thread holds it while it decides.
    """

    def __init__(self, settings: ServiceSettings, store: SqliteStore, started_at: float) -> None:
        self.settings = settings
        self.store = store
        self.lock = threading.RLock()
        self.cores = settings.cores or cores_here()
        self.units_per_core = settings.units_per_core or usual_units_per_core(self.cores)
        # Never before what is stored: a clock that was set back must not make time run backwards.
        self.clock = WallClock(max(started_at, store.last_time()))
        self.board = Board()
        self.bulletin = Bulletin(lambda count: store.next_notice(count).start)
        token = self._new_token()
        self.station = make_station(
            self.clock,
            self,
            cores=self.cores,
            units_per_core=self.units_per_core,
            throttle=settings.throttle,
            token=token,
        )
        self.launcher = Launcher(
            jobs=settings.jobs,
            store=store,
            engine=self.station.engine,
            commands=self.station.commands,
            external=self.station.external,
            units_per_core=self.units_per_core,
        )
        self.ledger = Ledger(store, self)
        self.roster = FractionalRoster(make_forecaster("slaq"), self.units_per_core)
        self.scheduler = Scheduler(
            engine=self.station.engine,
            store=self.ledger,
            clock=self.clock,
            policy=make_live_policy(settings.policy),
            appraiser=Appraiser(epoch_seconds=settings.epoch_seconds),
            roster=self.roster,
        )
        last = store.decision()
        self.scheduler.epoch = 0 if last is None else last.epoch + 1
        #: How capacity is shared between users: the arguments of `BetweenOwners` beside the policy.
        self.sharing: dict[str, Any] = {}
        #: The decision in force; None where no job is active.
        self.decision: Decision | None = None
        #: What its jobs may hope for.
        self.prospects: Prospects | None = None
        #: The moment the last epoch ended, and how many seconds it took.
        self.decided_at, self.decide_seconds = self.clock.now(), 0.0
        self.counts = Counts()
        #: Jobs started in this epoch, which may have reported before.
        self._admitted: list[Standing] = []
        #: Ends that are not in the store yet; until they are, their jobs stay on the board as they were.
        self._ends: dict[str, JobEnded] = {}
        self._since_snapshot = 0
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def capacity(self) -> int:
        """The units there are."""
        return self.station.engine.capacity()

    @property
    def alive(self) -> bool:
        """Whether it decides."""
        return self._thread is not None and self._thread.is_alive()

    def set_policy(self, name: str, limits: Mapping[str, UserLimits], usual: UserLimits) -> None:
        """Decide by this policy from now on, inside what each user is due."""
        self.sharing = {
            "weight": {user: limit.weight for user, limit in limits.items()},
            "most": {user: self._units(limit) for user, limit in limits.items()},
            "usual_weight": usual.weight,
            "usual_most": self._units(usual),
        }
        self.scheduler.policy = BetweenOwners(make_live_policy(name), **self.sharing)

    def start(self) -> None:
        """Take up the jobs of an earlier service, and begin to decide."""
        now = self.clock.now()
        recovery = Recovery(store=self.store, roster=self.roster, board=self.board, launcher=self.launcher)
        for spec in recovery.recover(now):
            self.station.engine.start(spec, None)
            self.take_reports(self.board.jobs[spec.id])
        self._thread = threading.Thread(target=self._run, name="slaq-scheduler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop deciding and end all processes; their jobs are still to be done, and known as such."""
        self._closing.set()
        self.wake()
        if self._thread is not None:
            self._thread.join()
        self.station.engine.close()
        with self.lock:
            # What the end of the engine ended goes on when the service is back.
            events = [event for event in self.station.engine.poll() if not _shut_down(event)]
            self.ledger.append(events)
            self.roster.absorb(events)
            self.ledger.flush(self.clock.now(), self.roster.dump)

    def wake(self) -> None:
        """Decide anew soon, rather than when the epoch is over."""
        self._woken.set()

    # Told by the engine, in its threads.

    @override
    def observed(self, event: LossObserved, metrics: Mapping[str, float]) -> None:
        """Nothing to do: the scheduler's thread takes it from the engine."""

    @override
    def learning_rate_changed(self, event: LearningRateChanged) -> None:
        """Nothing to do, likewise."""

    @override
    def curve_began(self, event: CurveBegan) -> None:
        """Nothing to do, likewise."""

    @override
    def ended(self, event: JobEnded, ending: Ending) -> None:
        self.wake()

    # The scheduler's thread.

    def _run(self) -> None:
        length = self.settings.epoch_seconds
        while not self._closing.is_set():
            self._woken.clear()
            try:
                with self.lock:
                    self._run_epoch()
            except Exception:
                # One bad epoch must not end the service: the next one may be well, and nothing was acknowledged.
                _log.exception("epoch failed", extra={"epoch": self.scheduler.epoch})
            now = self.clock.now()
            due = (now // length + 1) * length
            self._closing.wait(min(SHORTEST_EPOCH * length, due - now))
            self._woken.wait(max(due - self.clock.now(), 0.0))

    def _run_epoch(self) -> None:
        began = self.clock.now()
        epoch = self.scheduler.epoch
        self.decision = self.scheduler.run_epoch()
        self.scheduler.epoch += 1
        while self._admitted:
            self.take_reports(self._admitted.pop())
        if self.decision is not None:
            for job_id, reduction in self.board.decide(self.decision, self._prospects(began)):
                self.station.engine.finish(job_id, f"it has done {reduction:.1%} of its forecast reduction")
            self._tell(self.decision)
            self._since_snapshot += 1
        due = self._since_snapshot >= SNAPSHOT_EPOCHS
        if self.ledger.flush(began, self.roster.dump if due else None):
            self._since_snapshot = 0 if due else self._since_snapshot
            for job_id in list(self._ends):
                self._let_go(job_id)
        self.decided_at = self.clock.now()
        self.decide_seconds = self.decided_at - began
        if self.decide_seconds > self.settings.epoch_seconds:
            self.counts.late_epochs += 1
            _log.warning("epoch late", extra={"epoch": epoch, "seconds": round(self.decide_seconds, 3)})

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """End a job that nothing runs; the store has it when this returns."""
        end = JobEnded(job_id=job_id, at=self.clock.now(), state=state, reason=reason)
        self.store.append([end])
        self.take([end])
        self._let_go(job_id)

    def _let_go(self, job_id: str) -> None:
        """Show and tell the end of a job, which the store has: whoever learns of it finds all of it there."""
        end = self._ends.pop(job_id)
        self._measure(self.board.jobs[job_id])
        self.publish("job.ended", self.board.mark(job_id, end.state, end.reason, end.at))

    def _measure(self, job: Standing) -> None:
        """Measure how far a job came that reported something after the last decision about it."""
        if job.fresh and 0 < job.iteration < LONGEST_MEASURED:
            # A job that cannot be measured has ended all the same.
            with suppress(SlaqError):
                losses = self.store.observations(job.row.id).loss
                job.reduction = reduction_made(losses, job.submission.target_loss)
                self.store.change(job.row.id, reduction=job.reduction)

    def _prospects(self, now: float) -> Mapping[str, Prospect]:
        """Return when each job is expected to be good enough."""
        appraisal = self.scheduler.appraisal
        assert appraisal is not None
        found = self.prospects = foresee(self.roster, appraisal, self.roster.usual_units[appraisal.rows])
        moments = now + found.seconds_to
        rows = zip(found.ids, moments.tolist(), found.chance.tolist(), found.hopeless.tolist(), strict=True)
        return {
            job_id: Prospect(
                at_90=at_90 if isfinite(at_90) else None,
                at_95=at_95 if isfinite(at_95) else None,
                chance=None if isnan(chance) else chance,
                hopeless=hopeless,
            )
            for job_id, (at_90, at_95), chance, hopeless in rows
        }

    def _tell(self, decision: Decision) -> None:
        """Publish what is new since the last decision."""
        for job_id in decision.ids:
            job = self.board.jobs.get(job_id)
            if job is not None and job.fresh:
                job.fresh = False
                body = {
                    "iteration": job.iteration,
                    "loss": job.loss,
                    "reduction": job.reduction,
                    "units": job.units,
                    "diverged": job.diverged,
                }
                self.publish("job.observed", job, body)
        totals = {
            "epoch": decision.epoch,
            "capacity": decision.capacity,
            "granted": int(decision.units.sum()),
            "active": len(decision.ids),
        }
        self.bulletin.publish("decision", decision.time, totals)

    def publish(self, kind: str, job: Standing, body: Mapping[str, object] | None = None) -> None:
        """Tell those who listen about a job."""
        facts = {"state": str(job.state), "reason": job.row.reason} if body is None else body
        self.bulletin.publish(kind, self.clock.now(), facts, job_id=job.row.id, owner=job.row.owner)

    @override
    def room(self) -> int:
        running = sum(
            job.row.state is JobState.RUNNING and job_id not in self._ends
            for job_id, job in self.board.jobs.items()
        )
        return self.settings.max_jobs_active - running

    @override
    def admit(self, spec: JobSpec) -> bool:
        now = self.clock.now()
        try:
            job = self.board.replace_row(self.launcher.launch(self.store.job(spec.id), now))
        except (SlaqError, OSError) as error:
            end = JobEnded(
                job_id=spec.id, at=now, state=JobState.FAILED, reason=f"it could not be started: {error}"
            )
            self.ledger.append([end])
            return False
        self._admitted.append(job)
        self.publish("job.started", job)
        return True

    def take_reports(self, job: Standing) -> None:
        """Take in what a job that runs elsewhere has reported, if it has been started."""
        if job.submission.external:
            with job.reporting:
                self.launcher.take_reports(job.row.id)

    @override
    def take(self, events: Sequence[Event]) -> None:
        self.counts.observations += self.board.take(events)
        for event in events:
            if isinstance(event, JobEnded):
                self.counts.ended[event.state] += 1
                if event.job_id in self.board.jobs and event.job_id not in self._ends:
                    self._ends[event.job_id] = event
                    _log.info(
                        "job ended",
                        extra={"job": event.job_id, "state": str(event.state), "reason": event.reason},
                    )

    def _units(self, limit: UserLimits) -> int | None:
        return None if limit.max_cores is None else max(1, round(limit.max_cores * self.units_per_core))

    def _new_token(self) -> str:
        """Return what marks the processes to come; those of a service that was killed are ended first."""
        before = self.store.meta(_TOKEN)
        if before is not None:
            kill_marked(f"{before}.")
        token = secrets.token_hex(8)
        self.store.set_meta(_TOKEN, token)
        return token


def _shut_down(event: Event) -> bool:
    return isinstance(event, JobEnded) and event.state is JobState.CANCELLED and event.reason == SHUT_DOWN
