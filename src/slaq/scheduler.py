"""The epoch loop: events in, a decision, a grant out. Start reading here."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from slaq.core.admission import Admission, Review
from slaq.core.allocation import Policy
from slaq.core.appraisal import Appraisal, Appraiser, explain
from slaq.core.decision import Decision
from slaq.core.events import Event, JobEnded, JobLost
from slaq.core.explanation import why_beaten
from slaq.core.job import JobState
from slaq.core.roster import Roster
from slaq.core.searches import Losers, settled
from slaq.core.sizes import fit_sizes
from slaq.ports import Clock, Engine, Store

#: The part of an epoch that passes at least between two decisions, however often the clock is woken.
SHORTEST = 0.1


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """Moves capacity, once an epoch, to the jobs that will improve most.

    The same object runs live, replayed and simulated: only its clock, engine and store differ.
    """

    engine: Engine
    store: Store
    clock: Clock
    policy: Policy
    appraiser: Appraiser
    roster: Roster
    admission: Admission = field(default_factory=Admission)
    #: The number of the coming epoch: one more with each of them, whatever time has passed.
    epoch: int = 0
    #: When the last epoch began.
    began: float = 0.0
    #: What the last decision was made from; None before the first.
    appraisal: Appraisal | None = None
    #: Which queued jobs the last epoch started, and why others that were due had to wait.
    review: Review = field(default_factory=Review)
    #: The jobs that the engine has lost, by id; they are started again in the coming epoch.
    lost: list[str] = field(default_factory=list)
    #: Finds the jobs of searches that are to be ended, and why those are that have not ended yet, by id.
    losers: Losers = field(default_factory=Losers)
    beaten: dict[str, str] = field(default_factory=dict)
    #: Epochs begin at whole multiples of their length: the next of these multiples.
    next_multiple: int = 0

    def epochs(
        self, stop: Callable[[], bool] | None = None, lock: AbstractContextManager[Any] | None = None
    ) -> Iterator[Decision | None]:
        """Run epochs until `stop` says so, by default until no job is active or queued.

        Yield each decision once it is in force, and None for an epoch without an active job. The lock is held
        while an epoch is decided and dealt with, and free while the scheduler waits for the next one.
        """
        stop = stop or self.idle
        while not stop():
            with lock or nullcontext():
                yield self.run_epoch()
            if not stop():
                self.wait()

    def idle(self) -> bool:
        """Return whether no job is active or queued."""
        return not self.roster.ids and next(iter(self.store.queued()), None) is None

    def held(self) -> dict[str, str]:
        """Return for each queued job, by id, one sentence on why the job has not started."""
        return self.admission.reasons(self.review, self.store.queued(), self.clock.now())

    def run_epoch(self) -> Decision | None:
        """Decide and grant once; return the decision, or None where no job is active."""
        now = self.clock.now()
        self.epoch, self.began = self.epoch + 1, now
        # 1. Admit: jobs that were lost go on, and of the queued jobs those that nothing holds back are started.
        # What waits for a job that has not ended well is ended.
        self._restart_lost()
        self.review = self.admission.review(self.store.queued, now)
        for spec in self.review.start:
            self.roster.admit(spec, now)
            self.store.started(spec.id, now)
            self.engine.start(spec)

        if self.review.refused:
            self.store.append(
                [
                    JobEnded(job_id=job_id, at=now, state=JobState.CANCELLED, reason=reason)
                    for job_id, reason in self.review.refused.items()
                ]
            )

        # 2. Drain: what has happened goes into the store first, then into the histories.
        events = [self._as_beaten(event) for event in self.engine.poll()]
        self.store.append(events)
        self._note_absent(events)
        began = time.process_time()
        self.roster.absorb(events)
        return self.decide(now, began) if self.roster.ids else None

    def decide(self, now: float, began: float) -> Decision:
        """Divide the capacity among the active jobs; work on this decision began at the CPU time `began`."""
        # 3. and 4. Forecast every active job in one array pass, and turn forecasts into gains over units.
        appraisal = self.appraisal = self.appraiser.appraise(self.roster, self.engine.capacity(), now)

        # 5. Allocate: pure, so the simulator and the live cluster decide alike. Then fit to the jobs' sizes.
        allocation = self.policy.allocate(appraisal.candidates, appraisal.capacity)
        allocation, size_credit = fit_sizes(appraisal.candidates, allocation, appraisal.capacity)

        # 6. Grant, in cores, and record the decision with the numbers it was made from.
        grant = appraisal.grant(allocation, size_credit)
        self.engine.grant(grant.as_dict())
        self.roster.hold(appraisal.rows, grant, now)
        spent = time.process_time() - began
        decision = explain(appraisal, allocation, self.epoch - 1, now, spent)
        self.store.record(decision, grant)
        self._stop_losers(appraisal, decision)
        return decision

    def _stop_losers(self, appraisal: Appraisal, decision: Decision) -> None:
        """End the jobs that have practically no chance to become the best of their search, where this was asked."""
        if not len(decision.best_final):
            return
        rows, running = appraisal.rows, self.admission.running.jobs
        known = settled(self.roster.observed[rows], self.roster.total[rows])
        lost = self.losers.find(
            appraisal.candidates, known, lambda job_id: job_id in running and running[job_id].stop_losers
        )
        for job_id in lost:
            if job_id not in self.beaten:
                self.beaten[job_id] = why_beaten(decision, job_id)
                self.engine.stop(job_id)

    def _as_beaten(self, event: Event) -> Event:
        """Return the event, told as the end of a beaten job where the scheduler stopped it as such."""
        if not isinstance(event, JobEnded):
            return event
        reason = self.beaten.pop(event.job_id, "")
        if not reason or event.state is not JobState.CANCELLED:
            return event
        return replace(event, state=JobState.BEATEN, reason=reason)

    def _restart_lost(self) -> None:
        lost, self.lost = self.lost, []
        for job_id in lost:
            spec = self.admission.running.jobs.get(job_id)
            if spec is not None:
                self.engine.start(spec)

    def _note_absent(self, events: Sequence[Event]) -> None:
        """Take note of the jobs that no longer run."""
        for event in events:
            if isinstance(event, JobEnded):
                self.admission.running.end(event.job_id)
            elif isinstance(event, JobLost):
                self.lost.append(event.job_id)

    def wait(self) -> None:
        """7. Wait for the next epoch, or until the clock is woken; a late epoch is skipped, never queued up."""
        length, now = self.appraiser.epoch_seconds, self.clock.now()
        if now >= self.next_multiple * length:
            self.next_multiple = max(self.next_multiple + 1, math.ceil(now / length))
        self.clock.sleep_until(self.next_multiple * length, earliest=now + SHORTEST * length)
