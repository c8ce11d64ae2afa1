"""The thread in which the scheduler decides, and what follows each decision."""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite, isnan

from slaq.core.appraisal import Appraisal
from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded
from slaq.core.job import JobState
from slaq.core.prospects import Prospects, foresee
from slaq.ports import Clock, LiveEngine
from slaq.scheduler import Scheduler
from slaq.service.buffered_store import BufferedStore
from slaq.service.live_jobs import LiveJobs
from slaq.service.records import Prospect

#: Epochs from one snapshot of the scheduler's state to the next; a restart reads again what came after it.
SNAPSHOT_EPOCHS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The current decision and its inputs; None if no job is active."""

    decision: Decision | None = None
    appraisal: Appraisal | None = None
    prospects: Prospects | None = None

    @property
    def granted(self) -> float:
        """The cores that all jobs hold together."""
        return 0.0 if self.decision is None else float(self.decision.cores.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStatus:
    """The state of the loop."""

    alive: bool
    #: The number of the coming epoch.
    epoch: int
    #: When the last epoch ended, and how many seconds it took.
    decided_at: float
    seconds: float
    late_epochs: int
    #: Why the store cannot be written; empty when all is well.
    store_trouble: str
    #: Why the last epoch failed; empty when all is well.
    trouble: str


class EpochLoop:
    """Runs epochs in a thread of its own. Whoever changes jobs or the policy does so inside `changing`."""

    def __init__(
        self, scheduler: Scheduler, engine: LiveEngine, store: BufferedStore, live_jobs: LiveJobs
    ) -> None:
        self._scheduler = scheduler
        self._engine = engine
        self._store = store
        self._live_jobs = live_jobs
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slaq-scheduler", daemon=True)
        self._decided_at, self._seconds = self._clock.now(), 0.0
        self._late_epochs = self._since_snapshot = 0
        self._trouble = ""
        #: The decision in force.
        self.decided = Decided()

    @property
    def _clock(self) -> Clock:
        return self._scheduler.clock

    @property
    def status(self) -> LoopStatus:
        """The present state of the loop."""
        return LoopStatus(
            alive=self._thread.is_alive(),
            epoch=self._scheduler.epoch,
            decided_at=self._decided_at,
            seconds=self._seconds,
            late_epochs=self._late_epochs,
            store_trouble=self._store.trouble,
            trouble=self._trouble,
        )

    @contextmanager
    def paused(self) -> Iterator[Scheduler]:
        """Give the scheduler between two epochs: none begins before this ends."""
        with self._lock:
            yield self._scheduler

    @contextmanager
    def changing(self) -> Iterator[Scheduler]:
        """Give the scheduler between two epochs, and begin the next one soon after."""
        with self.paused() as scheduler:
            yield scheduler
        self._clock.wake()

    def kill(self, job_id: str) -> None:
        """End a job at once that was told to end."""
        self._engine.kill(job_id)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop deciding, close the engine and store its last events; unfinished jobs continue after a restart."""
        self._closing.set()
        self._clock.wake()
        if self._thread.is_alive():
            self._thread.join()
        self._engine.close()
        with self.paused() as scheduler:
            events = [event for event in scheduler.engine.poll() if not self._cut_off(event)]
            self._store.append(events)
            scheduler.roster.absorb(events)
            self._store.flush(self._clock.now(), scheduler.roster.dump)

    def _cut_off(self, event: Event) -> bool:
        """Return whether a job was ended only because the engine was closed."""
        if not isinstance(event, JobEnded) or event.state is not JobState.CANCELLED:
            return False
        job = self._live_jobs.jobs.get(event.job_id)
        return job is not None and not job.ending

    # The thread.

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                for decision in self._scheduler.epochs(self._closing.is_set, self._lock):
                    self._follow_up(decision)
                    self._trouble = ""
            except Exception:
                # A failed epoch must not end the service: its results were not published, and the next may succeed.
                _log.exception("epoch failed", extra={"epoch": self._scheduler.epoch - 1})
                self._trouble = "the last epoch failed, and is tried again; the log says why"
                self._closing.wait(self._scheduler.appraiser.epoch_seconds)

    def _follow_up(self, decision: Decision | None) -> None:
        """Show, store and publish what an epoch decided and what happened before it; the lock is held."""
        began = self._scheduler.began
        self._live_jobs.hold(self._scheduler.held())
        if decision is None:
            self.decided = Decided()
        else:
            self._show(decision)
        self._save(began)
        self._decided_at = self._clock.now()
        self._seconds = self._decided_at - began
        if self._seconds > self._scheduler.appraiser.epoch_seconds:
            self._late_epochs += 1
            about = {"epoch": self._scheduler.epoch - 1, "seconds": round(self._seconds, 3)}
            _log.warning("epoch late", extra=about)

    def _show(self, decision: Decision) -> None:
        scheduler = self._scheduler
        appraisal, roster = scheduler.appraisal, scheduler.roster
        assert appraisal is not None
        prospects = foresee(roster, appraisal, roster.usual_cores[appraisal.rows])
        self.decided = Decided(decision=decision, appraisal=appraisal, prospects=prospects)
        done = self._live_jobs.decide(decision, _by_job(prospects, decision.time))
        for job_id, reduction in done:
            self._engine.finish(job_id, f"{reduction:.1%} of its forecast reduction is done")
        self._live_jobs.publish_progress(decision.ids)
        totals = {
            "epoch": decision.epoch,
            "capacity": decision.capacity,
            "granted": self.decided.granted,
            "active": len(decision.ids),
        }
        self._live_jobs.broker.publish("decision", decision.time, totals)

    def _save(self, now: float) -> None:
        """Store the epoch, and now and then the scheduler's state; then show the ends that are stored."""
        self._since_snapshot += self.decided.decision is not None
        due = self._since_snapshot >= SNAPSHOT_EPOCHS
        if self._store.flush(now, self._scheduler.roster.dump if due else None):
            self._since_snapshot = 0 if due else self._since_snapshot
            self._live_jobs.settle()


def _by_job(prospects: Prospects, now: float) -> Mapping[str, Prospect]:
    """Return when each job is expected to be good enough, in moments."""
    moments = now + prospects.seconds_to
    table = (prospects.ids, moments.tolist(), prospects.chance.tolist(), prospects.out_of_reach.tolist())
    return {
        job_id: Prospect(
            at_90=at_90 if isfinite(at_90) else None,
            at_95=at_95 if isfinite(at_95) else None,
            chance=None if isnan(chance) else chance,
            out_of_reach=out_of_reach,
        )
        for job_id, (at_90, at_95), chance, out_of_reach in zip(*table, strict=True)
    }
